// SPDX-License-Identifier: Apache-2.0
//
// What a round of dispatch and combine ends with: the sum of each token's results.
//
// Thread safety: one thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_bytes.h"
#include "kernels/kernels.h"
#include "wideep/status.h"

namespace wideep::measure {

enum class EpSum {
  // Written as a bf16 row, what libraries of this kind return: over one of the token's bf16 rows
  // where a rank has it to itself, as experts that write their own tokens' results into its output
  // would; else to a row of its own.
  kRow,
  kResidual,  // added onto a float32 row, which is read and written: what wideep's engine does
};
std::string_view sum_name(EpSum sum);
// Errors (invalid input): another name.
Result<EpSum> sum_of(const std::string& name);

class EpSums {
 public:
  EpSums(EpSum sum, int num_tokens, int hidden, const kernels::Kernels& kernels);

  // rows: coded in `format`; weights: one for each. over: one of them, or null.
  void put(int token, std::span<const std::byte* const> rows, const float* weights,
           kernels::RowFormat format, std::byte* over);
  void clear();

  // Whether the first and the last element of a token are `expected`: all results' elements are
  // equal, so a bench that measured a wrong exchange would see it here.
  bool are(int token, float expected) const;
  float first(int token) const { return at(token, 0); }

  // Where the token's sum was put last, of at least hidden · 2 bytes.
  std::byte* row(int token) const { return places_[static_cast<size_t>(token)]; }

 private:
  float at(int token, int i) const;

  EpSum sum_;
  int hidden_;
  const kernels::Kernels& kernels_;
  base::AlignedBytes bytes_;        // [num_tokens, hidden] bf16 or float32
  std::vector<std::byte*> places_;  // [num_tokens]
};

}  // namespace wideep::measure
