// SPDX-License-Identifier: Apache-2.0
//
// What quantization_config says about the codes of all matrices. The tensors decide how a matrix is
// read (stored_matrix.h); where they cannot show it, as whether zero points of GPTQ are stored
// minus 1, this decides, and where both say something, they must agree.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace wideep::weights {

struct DeclaredLayout {
  int bits = 0;                  // of integer codes; 0: not said, or not alike in all matrices
  std::optional<int64_t> group;  // columns of a group of integers; −1: a whole row
  std::string group_key;         // the key that says it, for messages
  int64_t block_rows = 0;        // rows and columns that share a scale of fp8; 0: not said
  int64_t block_columns = 0;
  std::string block_key;             // likewise
  std::optional<bool> symmetric;     // integers around the middle, 2^(bits − 1)
  bool has_negative_scales = false;  // of integers: AutoRound chooses a scale's sign
};

}  // namespace wideep::weights
