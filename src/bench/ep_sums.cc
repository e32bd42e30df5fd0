// SPDX-License-Identifier: Apache-2.0
#include "bench/ep_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace wideep::bench {
namespace {

size_t value_bytes(EpSum sum) { return sum == EpSum::kRow ? sizeof(Bf16) : sizeof(float); }

// Of a sum in float32, and rounded to bf16's 8 bits.
float tolerance(EpSum sum) { return sum == EpSum::kRow ? 0x1p-8f : 1e-3f; }

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
      bytes_(static_cast<size_t>(num_tokens) * hidden * value_bytes(sum)) {
  clear();
}

void EpSums::put(int token, std::span<const std::byte* const> rows, const float* weights,
                 kernels::RowFormat format) {
  kernels::ReduceArgs args{.n = hidden_,
                           .top_k = static_cast<int>(rows.size()),
                           .format = format,
                           .rows = rows.data(),
                           .weights = weights};
  const size_t first = static_cast<size_t>(token) * hidden_;
  if (sum_ == EpSum::kRow) {
    args.sum = bytes_.as<Bf16>() + first;
  } else {
    args.x = bytes_.as<float>() + first;
  }
  kernels_.reduce_experts(args);
}

void EpSums::clear() { std::fill_n(bytes_.data(), bytes_.size(), std::byte{0}); }

bool EpSums::are(int token, float expected) const {
  const auto near = [&](float found) {
    return std::abs(found - expected) <= tolerance(sum_) * expected;
  };
  return near(at(token, 0)) && near(at(token, hidden_ - 1));
}

std::byte* EpSums::row(int token) {
  return bytes_.data() + static_cast<size_t>(token) * hidden_ * value_bytes(sum_);
}

float EpSums::at(int token, int i) const {
  const size_t at = static_cast<size_t>(token) * hidden_ + i;
  return sum_ == EpSum::kRow ? static_cast<float>(bytes_.as<Bf16>()[at]) : bytes_.as<float>()[at];
}

}  // namespace wideep::bench
