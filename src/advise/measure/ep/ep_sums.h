// SPDX-License-Identifier: Apache-2.0
//
// The end of a round of dispatch and combine: the weighted sum of each token's results.
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
  // Written as a bf16 row, as libraries of this kind return it. If one of the token's bf16 result
  // rows is private to its rank (`over`), the sum replaces it, as if an expert had written into the
  // output; otherwise it goes to a row of its own.
  kRow,
  kResidual,  // added to a float32 row, which is read and written, as in wideep's engine
};
std::string_view sum_name(EpSum sum);
// Errors (invalid input): another name.
Result<EpSum> sum_of(const std::string& name);

class EpSums {
 public:
  EpSums(EpSum sum, int num_tokens, int hidden, const kernels::Kernels& kernels);

  // Sums a token's results. rows: in `format`; weights: one for each row. over: the row that the
  // sum may replace, or null.
  void add_up(int token, std::span<const std::byte* const> rows, const float* weights,
              kernels::RowFormat format, std::byte* over);
  void clear();

  // Whether all elements of a token's sum are `expected`, that of n rows in `format`, within the
  // bound of ep_check.h.
  bool matches(int token, double expected, kernels::RowFormat format, int n) const;
  Dtype dtype() const { return sum_ == EpSum::kRow ? Dtype::kBf16 : Dtype::kF32; }
  float first(int token) const { return at(token, 0); }

  // The row of the token's last sum, at least hidden · 2 bytes.
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
