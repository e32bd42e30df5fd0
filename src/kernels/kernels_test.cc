// SPDX-License-Identifier: Apache-2.0
//
// Every table this processor can run is held against "ref" on random shapes, and each kernel's row
// invariance is checked bit by bit.
#include "kernels/kernels.h"
#include "base/aligned_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace wideep::kernels {
namespace {

std::vector<float> random_floats(size_t count, std::mt19937& rng, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

std::vector<Bf16> rounded(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

class EveryIsa : public testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported()) GTEST_SKIP() << "this processor cannot run " << GetParam()->isa;
  }
  const Kernels& kernels() const { return *GetParam(); }
  const Kernels& ref() const { return *all_kernels().back(); }
};

INSTANTIATE_TEST_SUITE_P(Kernels, EveryIsa, testing::ValuesIn(all_kernels()),
                         [](const auto& test) { return std::string(test.param->isa); });

// One query over a random paged cache. MLA form when value_dim shares the key rows.
struct Query {
  AttentionArgs args;
  std::vector<float> q, out;
  std::vector<base::AlignedBytes> key_storage, value_storage;
  std::vector<const std::byte*> keys, values;

  Query(Dtype dtype, int heads, int kv_heads, int key_dim, int value_dim, bool shared,
        int positions, std::mt19937& rng)
      : q(random_floats(size_t(heads) * key_dim, rng)), out(size_t(heads) * value_dim, NAN) {
    args = {.num_heads = heads,
            .num_kv_heads = kv_heads,
            .key_dim = key_dim,
            .value_dim = value_dim,
            .scale = 1.0f / std::sqrt(float(key_dim)),
            .num_positions = positions,
            .q = q.data(),
            .cache_dtype = dtype};
    args.key_stride = size_t(kv_heads) * key_dim;
    args.value_stride = shared ? args.key_stride : size_t(kv_heads) * value_dim;
    for (int page = 0; page * kPageTokens < positions; ++page) {
      keys.push_back(fill(key_storage, dtype, args.key_stride, rng));
      if (!shared) values.push_back(fill(value_storage, dtype, args.value_stride, rng));
    }
    args.key_pages = keys.data();
    args.value_pages = shared ? keys.data() : values.data();
    args.out = out.data();
  }
  static const std::byte* fill(std::vector<base::AlignedBytes>& storage, Dtype dtype, size_t stride,
                               std::mt19937& rng) {
    const auto values = random_floats(stride * kPageTokens, rng);
    base::AlignedBytes page(values.size() * dtype_bytes(dtype));
    if (dtype == Dtype::kF32) {
      std::memcpy(page.data(), values.data(), page.size());
    } else {
      std::memcpy(page.data(), rounded(values).data(), page.size());
    }
    storage.push_back(std::move(page));
    return storage.back().data();
  }
};

TEST_P(EveryIsa, AttentionAgreesWithRef) {
  std::mt19937 rng(4);
  for (int round = 0; round < 60; ++round) {
    const bool mla = round % 3 == 0;
    const int kv_heads = mla ? 1 : 1 + rng() % 3;
    const int value_dim = 1 + rng() % 70;
    const int key_dim = mla ? value_dim + rng() % 20 : 1 + rng() % 70;
    Query query(round % 2 ? Dtype::kBf16 : Dtype::kF32, kv_heads * (1 + rng() % 4), kv_heads,
                key_dim, value_dim, mla, 1 + rng() % 300, rng);
    ref().attention(query.args);
    const auto expected = query.out;
    kernels().attention(query.args);
    // Values are of order 1 and weights sum to 1: a few dozen float32 roundings of exponentials.
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(query.out[i], expected[i], 1e-5);
  }
}

TEST_P(EveryIsa, AttentionSurvivesHugeScores) {
  std::mt19937 rng(5);
  Query query(Dtype::kF32, 2, 1, 16, 16, false, 130, rng);
  query.args.scale = 1e4f;
  ref().attention(query.args);
  const auto expected = query.out;
  kernels().attention(query.args);
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(query.out[i], expected[i], 1e-4);
}

TEST_P(EveryIsa, RowOperationsAgreeWithRef) {
  std::mt19937 rng(6);
  for (int n : {1, 15, 16, 17, 64, 250}) {
    const auto x = random_floats(n, rng, 3.0f), other = random_floats(n, rng, 3.0f);
    std::vector<float> y(n), expected(n);
    kernels().rms_norm(x.data(), other.data(), 1e-6f, n, y.data());
    ref().rms_norm(x.data(), other.data(), 1e-6f, n, expected.data());
    for (int i = 0; i < n; ++i) ASSERT_NEAR(y[i], expected[i], 1e-5 * std::abs(expected[i]) + 1e-7);

    for (Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
      const auto halves = rounded(x);
      const void* source =
          dtype == Dtype::kF32 ? static_cast<const void*>(x.data()) : halves.data();
      y = expected = other;
      kernels().add_scaled(dtype, source, 0.7f, n, y.data());
      ref().add_scaled(dtype, source, 0.7f, n, expected.data());
      EXPECT_EQ(y, expected);
    }
  }
}

TEST_P(EveryIsa, ReductionIsEqualBitForBitToRef) {
  std::mt19937 rng(8);
  for (int n : {1, 16, 100}) {
    for (int top_k : {1, 3, 8}) {
      for (const bool has_shared : {false, true}) {
        std::vector<std::vector<Bf16>> rows;
        std::vector<const std::byte*> pointers;
        for (int k = 0; k < top_k; ++k) rows.push_back(rounded(random_floats(n, rng)));
        for (const auto& row : rows)
          pointers.push_back(reinterpret_cast<const std::byte*>(row.data()));
        const auto weights = random_floats(top_k, rng), shared = random_floats(n, rng);
        auto x = random_floats(n, rng), expected = x;
        ReduceArgs args{n,
                        top_k,
                        Dtype::kBf16,
                        pointers.data(),
                        weights.data(),
                        has_shared ? shared.data() : nullptr,
                        x.data()};
        kernels().reduce_experts(args);
        args.x = expected.data();
        ref().reduce_experts(args);
        EXPECT_EQ(x, expected) << n << " elements, top " << top_k;
      }
    }
  }
}

TEST_P(EveryIsa, Bf16RoundsAsTheScalarConversion) {
  std::mt19937 rng(7);
  const auto x = random_floats(1000, rng, 100.0f);
  std::vector<Bf16> y(x.size());
  kernels().to_bf16(x.data(), int(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, Bf16(x[i]).bits);
}

TEST(SelectKernels, BestFirstByDefault) {
  const auto best = select_kernels(nullptr);
  ASSERT_TRUE(best.ok());
  for (const Kernels* table : all_kernels()) {
    if (table->supported()) {
      EXPECT_EQ((*best)->isa, table->isa);
      break;
    }
  }
}

TEST(SelectKernels, TheNamedOneIsTheOneThatRuns) {
  for (const Kernels* table : all_kernels()) {
    if (!table->supported()) continue;
    const auto chosen = select_kernels(std::string(table->isa).c_str());
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(*chosen, table);
  }
}

TEST(SelectKernels, AMissingOneIsAnErrorThatListsTheChoices) {
  const auto chosen = select_kernels("sse9");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(chosen.status().message(), testing::HasSubstr("WIDEEP_ISA=sse9"));
  EXPECT_THAT(chosen.status().message(), testing::HasSubstr("ref"));
}

}  // namespace
}  // namespace wideep::kernels
