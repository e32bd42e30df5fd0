// SPDX-License-Identifier: Apache-2.0
#include "measure/ep/ep_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "measure/ep/ep_check.h"

namespace wideep::measure {
namespace {

size_t value_bytes(EpSum sum) { return sum == EpSum::kRow ? sizeof(Bf16) : sizeof(float); }

}  // namespace

std::string_view sum_name(EpSum sum) { return sum == EpSum::kRow ? "row" : "residual"; }

Result<EpSum> sum_of(const std::string& name) {
  for (const EpSum sum : {EpSum::kRow, EpSum::kResidual}) {
    if (name == sum_name(sum)) return sum;
  }
  return invalid_input(fmt::format("sum: expected row or residual, found \"{}\"", name));
}

EpSums::EpSums(EpSum sum, int num_tokens, int hidden, const kernels::Kernels& kernels)
    : sum_(sum),
      hidden_(hidden),
      kernels_(kernels),
      bytes_(static_cast<size_t>(num_tokens) * hidden * value_bytes(sum)),
      places_(static_cast<size_t>(num_tokens)) {
  clear();
}

void EpSums::add_up(int token, std::span<const std::byte* const> rows, const float* weights,
                    kernels::RowFormat format, std::byte* over) {
  const bool fits = sum_ == EpSum::kRow && format == kernels::RowFormat::kBf16;
  std::byte* place = bytes_.data() + static_cast<size_t>(token) * hidden_ * value_bytes(sum_);
  if (fits && over != nullptr) place = over;
  kernels::ReduceArgs args{.n = hidden_,
                           .top_k = static_cast<int>(rows.size()),
                           .format = format,
                           .rows = rows.data(),
                           .weights = weights};
  if (sum_ == EpSum::kRow) {
    args.sum = reinterpret_cast<Bf16*>(place);
  } else {
    args.x = reinterpret_cast<float*>(place);
  }
  kernels_.reduce_experts(args);
  places_[static_cast<size_t>(token)] = place;
}

void EpSums::clear() { std::fill_n(bytes_.data(), bytes_.size(), std::byte{0}); }

bool EpSums::matches(int token, double expected, kernels::RowFormat format, int n) const {
  const double bound = max_sum_error(format, dtype(), n) * expected;
  for (int i = 0; i < hidden_; ++i) {
    if (std::abs(at(token, i) - expected) > bound) return false;
  }
  return true;
}

float EpSums::at(int token, int i) const {
  const std::byte* sum = row(token);
  return sum_ == EpSum::kRow ? static_cast<float>(reinterpret_cast<const Bf16*>(sum)[i])
                             : reinterpret_cast<const float*>(sum)[i];
}

}  // namespace wideep::measure
