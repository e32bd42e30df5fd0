// SPDX-License-Identifier: Apache-2.0
#include "ep/result_sum.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace wideep::ep {
namespace {

// Against the kernels of wideep's engine, over random rows, weights and sizes.
TEST(ResultSumTest, HasTheBitsOfTheEngine) {
  std::mt19937_64 random(9);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (int round = 0; round < 60; ++round) {
    const bool is_f32 = round % 2 == 0;
    const int hidden = 1 + static_cast<int>(random() % 1500);
    const int top_k = 1 + static_cast<int>(random() % 9);
    const auto n = static_cast<size_t>(hidden);
    std::vector<std::vector<float>> values;
    std::vector<std::vector<Bf16>> rounded;
    std::vector<const std::byte*> rows;
    std::vector<float> weights, shared;
    for (int k = 0; k < top_k; ++k) {
      weights.push_back(normal(random));
      std::vector<float>& row = values.emplace_back();
      std::vector<Bf16>& as_bf16 = rounded.emplace_back();
      for (size_t i = 0; i < n; ++i) {
        row.push_back(normal(random));
        as_bf16.emplace_back(row.back());
      }
    }
    for (size_t k = 0; k < values.size(); ++k) {
      rows.push_back(is_f32 ? reinterpret_cast<const std::byte*>(values[k].data())
                            : reinterpret_cast<const std::byte*>(rounded[k].data()));
    }
    for (size_t i = 0; i < n; ++i) shared.push_back(normal(random));
    const float* const added = round % 3 == 0 ? shared.data() : nullptr;

    std::vector<uint16_t> found(n);
    sum_rows({.rows = rows,
              .type = is_f32 ? ResultType::kF32 : ResultType::kBf16,
              .weights = weights.data(),
              .shared = added,
              .hidden = n,
              .out = found.data()});
    std::vector<Bf16> expected(n);
    (*kernels::select_kernels("ref"))
        ->reduce_experts({.n = hidden,
                          .top_k = top_k,
                          .format = is_f32 ? kernels::RowFormat::kF32 : kernels::RowFormat::kBf16,
                          .rows = rows.data(),
                          .weights = weights.data(),
                          .shared = added,
                          .sum = expected.data()});
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(found[i], expected[i].bits) << round << ", " << i;
  }
}

TEST(ResultSumTest, TheSumMayReplaceARow) {
  std::vector<Bf16> first(700, Bf16(1.5f)), second(700, Bf16(2.0f));
  const std::vector<const std::byte*> rows = {reinterpret_cast<const std::byte*>(first.data()),
                                              reinterpret_cast<const std::byte*>(second.data())};
  const std::vector<float> weights = {2.0f, 0.5f};
  sum_rows({.rows = rows,
            .weights = weights.data(),
            .hidden = 700,
            .out = reinterpret_cast<uint16_t*>(second.data())});
  for (const Bf16 value : second) ASSERT_EQ(static_cast<float>(value), 4.0f);
}

}  // namespace
}  // namespace wideep::ep
