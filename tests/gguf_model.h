// SPDX-License-Identifier: Apache-2.0
//
// For tests of the command: a small model as a GGUF file, and changes of it that make it lie.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tensor_files/gguf_testing.h"

namespace wideep::tests {

// ggml's numbers of types.
inline constexpr uint32_t kGgmlF32 = 0, kGgmlQ4_1 = 3, kGgmlQ8_0 = 8, kGgmlMxfp4 = 39;

struct GgufModelOptions {
  uint32_t type = kGgmlQ8_0;          // of the experts' gate and up
  uint32_t type_of_down = kGgmlQ8_0;  // of their down
  std::string chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}";
  int more_tokens = 0;  // than rows of the embedding

  // What a file may say instead.
  std::string architecture = "llama";
  std::map<std::string, uint32_t> integers;  // of keys that are integers
  std::set<std::string> left_out;            // keys and tensors
  std::set<std::string> transposed;          // tensors
  float score_of_a = -2.0f;
  float first_weight = 0.1f;                             // of the embedding
  std::string first_scale;                               // bytes, of an expert's down
  std::function<void(tensor_files::GgufBuilder&)> more;  // adds keys and tensors at the end
};

// A Mixtral of random weights (hidden 64, two layers with four experts of width 32, of which a
// token uses two) with a token for each byte and each letter.
tensor_files::GgufBuilder gguf_model(const GgufModelOptions& options = {});

// Writes the model in `count` files, "<stem>-00001-of-0000<count>.gguf", …; returns their paths.
std::vector<std::string> write_gguf_parts(const std::string& stem, int count);

}  // namespace wideep::tests
