// SPDX-License-Identifier: Apache-2.0
//
// The indexer's scores against ref's double precision and bit by bit under other blocks; selection
// against sorting.
#include "kernels/indexer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "base/aligned_bytes.h"
#include "kernels/kernels.h"

namespace wideep::kernels {
namespace {

// Queries over a cache with random keys; what was not stored is NaN.
class IndexCase {
 public:
  IndexCase(Dtype dtype, int tokens, int heads, int first_position, int dim, uint32_t seed)
      : rng_(seed) {
    args = {.num_tokens = tokens,
            .num_heads = heads,
            .first_position = first_position,
            .dim = dim,
            .q_token_stride = static_cast<size_t>(heads * dim),
            .q_head_stride = static_cast<size_t>(dim),
            .weights_stride = static_cast<size_t>(heads),
            .cache_dtype = dtype,
            .row_stride = static_cast<size_t>(padded_value_dim(dim))};
    q = random(tokens * heads * dim);
    weights = random(tokens * heads);
    const int positions = first_position + tokens;
    for (int p = 0; p < positions; ++p) {
      if (p % kPageTokens == 0) {
        memory.emplace_back(kPageTokens * args.row_stride * dtype_bytes(dtype));
        std::fill_n(memory.back().data(), memory.back().size(), std::byte{0xff});
        pages.push_back({memory.back().data(), nullptr});
      }
      std::byte* row = memory.back().data() +
                       static_cast<size_t>(p % kPageTokens) * args.row_stride * dtype_bytes(dtype);
      all_kernels().back()->store_row(dtype, random(dim).data(), dim, row);
    }
    args.q = q.data();
    args.weights = weights.data();
    args.pages = pages.data();
    args.num_pages = static_cast<int>(pages.size());
    args.scores_stride = static_cast<size_t>(positions) + 1;
  }
  // Scores of positions that are not visible are −1.
  std::vector<float> run(const Kernels& kernels, IndexArgs part) {
    base::AlignedBytes scratch(index_scratch_bytes(part));
    std::vector<float> scores(static_cast<size_t>(part.num_tokens) * part.scores_stride, -1.0f);
    part.scores = scores.data();
    part.scratch = scratch.data();
    kernels.index_scores(part);
    return scores;
  }

  IndexArgs args;
  std::vector<float> q, weights;
  std::vector<base::AlignedBytes> memory;
  std::vector<KvPage> pages;

 private:
  std::vector<float> random(int count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(rng_);
    return values;
  }
  std::mt19937 rng_;
};

class Indexer : public testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported()) GTEST_SKIP() << "this processor cannot run " << GetParam()->isa;
  }
  const Kernels& kernels() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Kernels, Indexer, testing::ValuesIn(all_kernels()),
                         [](const auto& test) { return std::string(test.param->isa); });

TEST_P(Indexer, ScoresAgreeWithRef) {
  std::mt19937 rng(1);
  for (int round = 0; round < 40; ++round) {
    const Dtype dtype = round % 2 == 0 ? Dtype::kF32 : Dtype::kBf16;
    const int dim = 1 + static_cast<int>(rng() % 140), heads = 1 + static_cast<int>(rng() % 20);
    IndexCase random(dtype, 1 + static_cast<int>(rng() % 5), heads, static_cast<int>(rng() % 200),
                     dim, static_cast<uint32_t>(round));
    random.args.rectifies = round % 3 != 0;
    const auto expected = random.run(*all_kernels().back(), random.args);
    const auto scores = random.run(kernels(), random.args);
    for (size_t i = 0; i < scores.size(); ++i) {
      ASSERT_NEAR(scores[i], expected[i], 1e-5 * heads * std::sqrt(dim) + 1e-6)
          << "round " << round << " " << i;
    }
  }
}

// One head with weight 2, keys along or against the query.
TEST_P(Indexer, AScoreIsTheWeightedPositivePartOrAll) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    IndexCase two(dtype, 1, 1, 1, 2, 1);
    two.q = {1.0f, 3.0f};
    two.weights = {2.0f};
    const float along[] = {2.0f, 1.0f}, against[] = {-2.0f, -1.0f};
    kernels().store_row(dtype, along, 2, two.memory[0].data());
    kernels().store_row(dtype, against, 2,
                        two.memory[0].data() + two.args.row_stride * dtype_bytes(dtype));
    const auto scores = two.run(kernels(), two.args);
    EXPECT_EQ(scores[0], 10.0f);
    EXPECT_EQ(scores[1], 0.0f);
    two.args.rectifies = false;
    EXPECT_THAT(two.run(kernels(), two.args), testing::ElementsAre(10.0f, -10.0f, -1.0f));
  }
}

TEST_P(Indexer, BitsOfAScoreDoNotDependOnItsBlock) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    IndexCase random(dtype, 70, 10, 100, 36, 3);
    const auto whole = random.run(kernels(), random.args);
    for (int t = 0; t < 70; ++t) {
      IndexArgs one = random.args;
      one.num_tokens = 1;
      one.first_position += t;
      one.q += t * one.q_token_stride;
      one.weights += t * one.weights_stride;
      for (int page = 0; page < random.args.num_pages; ++page) {
        one.pages = random.args.pages + page;
        one.first_page = page;
        one.num_pages = 1;
        const auto scores = random.run(kernels(), one);
        for (int p = page * kPageTokens; p < (page + 1) * kPageTokens; ++p) {
          if (p > 170) continue;
          const float expected = p <= 100 + t ? whole[t * one.scores_stride + p] : -1.0f;
          ASSERT_EQ(scores[p], expected) << "token " << t << " position " << p;
        }
      }
    }
  }
}

std::vector<int32_t> selected(const std::vector<float>& scores, int k) {
  std::vector<int32_t> positions(scores.size(), -1);
  const int count = select_top(scores.data(), static_cast<int>(scores.size()), k, positions.data());
  positions.resize(static_cast<size_t>(count));
  return positions;
}

TEST(SelectTop, IsWhatSortingFinds) {
  std::mt19937 rng(5);
  for (int round = 0; round < 300; ++round) {
    const int n = 1 + static_cast<int>(rng() % 400), k = static_cast<int>(rng() % 450);
    std::vector<float> scores(static_cast<size_t>(n));
    // From all different to many ties, of both signs; some scores differ in their last bits only.
    for (float& score : scores) {
      const int value = static_cast<int>(rng() % (round % 3 == 0 ? 10 : 100000)) - 5;
      score = round % 3 == 1 ? 1.0f + static_cast<float>(value) * 0x1p-23f
                             : static_cast<float>(value) * 0.37f;
    }
    std::vector<int32_t> expected(static_cast<size_t>(n));
    std::iota(expected.begin(), expected.end(), 0);
    std::sort(expected.begin(), expected.end(),
              [&](int a, int b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
    expected.resize(static_cast<size_t>(std::min(n, k)));
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(selected(scores, k), expected) << "round " << round << ": " << k << " of " << n;
  }
}

TEST(SelectTop, ZerosAreEqualAndNanIsLeast) {
  EXPECT_THAT(selected({-0.0f, 0.0f, -1.0f, 1.0f}, 2), testing::ElementsAre(0, 3));
  EXPECT_THAT(selected({NAN, -INFINITY, NAN, 5.0f}, 2), testing::ElementsAre(1, 3));
  EXPECT_THAT(selected({NAN, -NAN, INFINITY}, 2), testing::ElementsAre(0, 2));
  EXPECT_THAT(selected({NAN, 1.0f}, 2), testing::ElementsAre(0, 1));
  EXPECT_THAT(selected({1.0f, 2.0f}, 0), testing::IsEmpty());
  EXPECT_THAT(selected({}, 3), testing::IsEmpty());
}

}  // namespace
}  // namespace wideep::kernels
