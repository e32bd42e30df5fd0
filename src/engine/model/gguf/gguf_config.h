// SPDX-License-Identifier: Apache-2.0
//
// A GGUF file's metadata as the config.json of the model that llama.cpp's converter has read: the
// families' readers of config.json then read both. What a file does not say, and llama.cpp computes
// the same for every model of an architecture, is written out.
//
// Thread safety: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "tensor_files/gguf.h"
#include "wideep/status.h"

namespace wideep::model {

struct GgufConfig {
  std::string architecture;  // "qwen3moe"
  std::string json;          // config.json
  // Converters have moved the rows of queries and keys, from (i, i + d/2) to (2 i, 2 i + 1) of each
  // head, where rotation takes pairs.
  bool moves_rotated_rows = false;
  // RopeConfig::divisors, which config.json has only as those of longrope.
  std::vector<float> divisors;
  // Keys of config.json and the keys of the file that they come from.
  std::map<std::string, std::string> origins;
  std::vector<std::string> notes;
};

// Errors (invalid input): an architecture that wideep does not know, or rotary parameters that it
// does not compute. Wrong values of keys are errors of parse_model_config().
Result<GgufConfig> gguf_config(const tensor_files::GgufFiles& files);

// The model's description. Errors name keys as config.json does, with the file's own behind.
Result<ModelConfig> read_gguf_config(const tensor_files::GgufFiles& files);

// "qwen3moe, qwen2moe, …"
std::string gguf_architectures();

}  // namespace wideep::model
