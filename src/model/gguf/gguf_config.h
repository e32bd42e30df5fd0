// SPDX-License-Identifier: Apache-2.0
//
// A GGUF file's metadata as the config.json of the model that llama.cpp's converter has read: the
// families' readers of config.json then read both. What a file does not say, and llama.cpp computes
// the same for every model of an architecture, is written out.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "formats/gguf.h"
#include "model/config.h"
#include "wideep/status.h"

namespace wideep::model {

struct GgufConfig {
  std::string architecture;  // "qwen3moe"
  std::string json;          // config.json
  // Converters have moved the rows of queries and keys, from (i, i + d/2) to (2 i, 2 i + 1) of each
  // head, where rotation takes pairs.
  bool moves_rotated_rows = false;
  std::vector<std::string> notes;
};

// Errors (invalid input): an architecture that wideep does not know, or rotary parameters that it
// does not compute. Wrong values of keys are errors of parse_model_config(), which calls them by
// the names of config.json.
Result<GgufConfig> gguf_config(const formats::GgufFiles& files);

// The model's description.
Result<ModelConfig> read_gguf_config(const formats::GgufFiles& files);

// "qwen3moe, qwen2moe, …"
std::string gguf_architectures();

}  // namespace wideep::model
