// SPDX-License-Identifier: Apache-2.0
//
// Attention of every instruction set against ref's double precision, and its row invariance bit by
// bit.
#include "kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/attention_testing.h"

namespace wideep::kernels {
namespace {

const Kernels& ref() { return *all_kernels().back(); }

class Attention : public testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported()) GTEST_SKIP() << "this processor cannot run " << GetParam()->isa;
  }
  const Kernels& kernels() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Kernels, Attention, testing::ValuesIn(all_kernels()),
                         [](const auto& test) { return std::string(test.param->isa); });

constexpr Dtype kCaches[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF8E4M3};

AttentionShape random_shape(Dtype dtype, std::mt19937& rng) {
  AttentionShape shape;
  shape.cache_dtype = dtype;
  shape.form = rng() % 3 == 0 ? CacheForm::kRows : CacheForm::kPanels;
  shape.num_tokens = 1 + static_cast<int>(rng() % 9);
  shape.num_heads = 1 + static_cast<int>(rng() % 7);
  // Often at the border of a page.
  shape.first_position = rng() % 2 ? static_cast<int>(rng() % 200)
                                   : static_cast<int>(64 * (rng() % 3) + (rng() % 2 ? 63 : 0));
  shape.value_dim = 1 + static_cast<int>(rng() % 150);
  shape.key_dim = shape.form == CacheForm::kRows ? shape.value_dim + static_cast<int>(rng() % 20)
                                                 : 1 + static_cast<int>(rng() % 150);
  shape.window = rng() % 3 == 0 ? 1 + static_cast<int>(rng() % 150) : 0;
  shape.chunk = rng() % 3 == 0 ? 1 + static_cast<int>(rng() % 150) : 0;
  shape.sinks = rng() % 3 == 0;
  return shape;
}

// Values are of order 1 and weights sum to 1. Float32: a few dozen roundings of exponentials and
// the products' chains. bf16: weights are rounded to 8 bits (2^-9 of each), scores are chains of
// float32 steps over products that are exact.
double tolerance(const AttentionArgs& args, const std::vector<float>& expected) {
  float largest = 1.0f;
  for (float x : expected) largest = std::max(largest, std::abs(x));
  return args.cache_dtype == Dtype::kF32 ? 1e-5 : 4.0 * largest * 0x1p-9;
}

TEST_P(Attention, AgreesWithRef) {
  std::mt19937 rng(4);
  for (int round = 0; round < 90; ++round) {
    const AttentionShape shape = random_shape(kCaches[round % 3], rng);
    AttentionCase block(ref(), shape, static_cast<uint32_t>(round));
    const std::vector<float> expected = block.run(ref());
    const std::vector<float> actual = block.run(kernels());
    const double allowed = tolerance(block.args, expected);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], allowed)
          << "round " << round << " element " << i << " of " << expected.size();
    }
  }
}

TEST_P(Attention, WritesPagesAsRefDoes) {
  std::mt19937 rng(5);
  for (int round = 0; round < 60; ++round) {
    const AttentionShape shape = random_shape(kCaches[round % 3], rng);
    const AttentionCase a(ref(), shape, 7), b(kernels(), shape, 7);
    ASSERT_EQ(a.memory.size(), b.memory.size());
    for (size_t page = 0; page < a.memory.size(); ++page) {
      ASSERT_EQ(std::memcmp(a.memory[page].data(), b.memory[page].data(), a.page_bytes()), 0)
          << "round " << round << " page " << page;
    }
  }
}

// The whole block, then every row alone, then pages handed over one by one.
TEST_P(Attention, RowsDoNotDependOnTheirBlock) {
  std::mt19937 rng(6);
  for (int round = 0; round < 24; ++round) {
    AttentionShape shape = random_shape(kCaches[round % 3], rng);
    shape.num_tokens = round < 3 && kernels().isa != "ref" ? 128 : 1 + static_cast<int>(rng() % 40);
    if (round < 3) shape.num_heads = 4;  // 512 rows
    AttentionCase block(kernels(), shape, static_cast<uint32_t>(round));
    const std::vector<float> together = block.run(kernels());
    const AttentionArgs whole = block.args;
    for (int t = 0; t < whole.num_tokens; ++t) {
      for (int h = t % 3; h < whole.num_heads; h += 3) {
        const size_t at = t * whole.out_token_stride + h * whole.out_head_stride;
        AttentionArgs one = whole;
        one.num_tokens = one.num_heads = 1;
        one.first_position += t;
        one.q += t * one.q_token_stride + h * one.q_head_stride;
        one.out += at;
        if (one.sinks != nullptr) one.sinks += h;
        std::fill_n(one.out, one.value_dim, NAN);
        kernels().attention(one);
        ASSERT_EQ(std::memcmp(one.out, together.data() + at, one.value_dim * sizeof(float)), 0)
            << "round " << round << " token " << t << " head " << h;
      }
    }
    block.args = whole;
    for (int i = 0; i < whole.num_pages; ++i) {
      block.args.start = i == 0;
      block.args.finish = i + 1 == whole.num_pages;
      block.args.first_page = i;
      block.args.num_pages = 1;
      block.args.pages = whole.pages + i;
      kernels().attention(block.args);
    }
    ASSERT_EQ(std::memcmp(block.out.data(), together.data(), together.size() * sizeof(float)), 0)
        << "round " << round;
  }
}

TEST_P(Attention, SurvivesHugeScores) {
  AttentionCase block(ref(), {.cache_dtype = Dtype::kF32, .num_heads = 2, .first_position = 129},
                      5);
  block.args.scale = 1e4f;
  const std::vector<float> expected = block.run(ref());
  const std::vector<float> actual = block.run(kernels());
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-4);
}

// A sink so large that it takes all weight leaves nothing of the values.
TEST_P(Attention, SinksJoinTheDenominator) {
  AttentionCase block(ref(), {.num_heads = 2, .first_position = 70, .sinks = true}, 5);
  block.sinks = {200.0f, -200.0f};
  block.run(kernels());
  EXPECT_NEAR(block.out[0], 0.0f, 1e-30);
  const float with_faint_sink = block.out[block.args.out_head_stride];
  block.args.sinks = nullptr;
  block.run(kernels());
  EXPECT_EQ(block.out[block.args.out_head_stride], with_faint_sink);
}

TEST_P(Attention, AWindowOfOneIsTheOwnValue) {
  AttentionCase block(ref(), {.first_position = 64, .window = 1}, 5);
  block.run(kernels());
  const auto* values = reinterpret_cast<const Bf16*>(block.pages[1].values);
  for (int d = 0; d < 64; ++d) ASSERT_EQ(block.out[d], static_cast<float>(values[2 * d]));
}

TEST(FirstVisible, IsTheLaterOfWindowAndChunk) {
  EXPECT_EQ(first_visible(0, 0, 1000), 0);
  EXPECT_EQ(first_visible(128, 0, 100), 0);
  EXPECT_EQ(first_visible(128, 0, 1000), 873);
  EXPECT_EQ(first_visible(0, 64, 63), 0);
  EXPECT_EQ(first_visible(0, 64, 64), 64);
  EXPECT_EQ(first_visible(10, 64, 64), 64);
  EXPECT_EQ(first_visible(10, 64, 90), 81);
}

// At the beginning of a chunk a token sees itself only.
TEST_P(Attention, AChunkBeginsWithTheOwnValue) {
  AttentionCase block(ref(), {.first_position = 96, .chunk = 48}, 5);
  block.run(kernels());
  const auto* values = reinterpret_cast<const Bf16*>(block.pages[1].values);
  for (int d = 0; d < 64; ++d) {
    ASSERT_EQ(block.out[d], static_cast<float>(values[16 * 2 * padded_value_dim(64) + 2 * d]));
  }
}

// Pages before the first visible position are not read, whether they are given or not.
TEST_P(Attention, NeedsNoPagesBeforeTheFirstVisible) {
  for (const CacheForm form : {CacheForm::kPanels, CacheForm::kRows}) {
    for (const Dtype dtype : kCaches) {
      for (const bool in_chunks : {false, true}) {
        AttentionCase block(ref(),
                            {.cache_dtype = dtype,
                             .form = form,
                             .num_tokens = 5,
                             .num_heads = 3,
                             .first_position = 700,
                             .window = in_chunks ? 0 : 100,
                             .chunk = in_chunks ? 300 : 0,
                             .sinks = true},
                            9);
        const std::vector<float> all = block.run(kernels());
        const int first = first_visible(block.args.window, block.args.chunk, 700) / kPageTokens;
        ASSERT_EQ(first, 9);
        for (int i = 0; i < first; ++i) block.pages[i] = {};  // reading them would crash
        EXPECT_EQ(block.run(kernels()), all);
        block.args.pages += first;
        block.args.first_page = first;
        block.args.num_pages -= first;
        EXPECT_EQ(block.run(kernels()), all);
      }
    }
  }
}

// Sparse attention over random positions, the own one always included.
struct SparseCase : AttentionCase {
  std::vector<std::vector<int32_t>> positions;
  std::vector<const int32_t*> pointers;
  std::vector<int32_t> counts;

  SparseCase(const AttentionShape& shape, uint32_t seed) : AttentionCase(ref(), shape, seed) {
    std::mt19937 rng(seed);
    for (int t = 0; t < shape.num_tokens; ++t) {
      const unsigned one_in = 1 + rng() % 5;
      auto& of_token = positions.emplace_back();
      for (int p = 0; p < shape.first_position + t; ++p) {
        if (rng() % one_in == 0) of_token.push_back(p);
      }
      of_token.push_back(shape.first_position + t);
    }
    for (const auto& of_token : positions) {
      pointers.push_back(of_token.data());
      counts.push_back(static_cast<int32_t>(of_token.size()));
    }
    args.selected = pointers.data();
    args.num_selected = counts.data();
  }
};

AttentionShape sparse_shape(Dtype dtype, std::mt19937& rng) {
  AttentionShape shape = random_shape(dtype, rng);
  shape.form = CacheForm::kRows;
  shape.key_dim = shape.value_dim + static_cast<int>(rng() % 20);
  shape.window = shape.chunk = 0;
  return shape;
}

TEST_P(Attention, SparseAgreesWithRef) {
  std::mt19937 rng(14);
  for (int round = 0; round < 60; ++round) {
    SparseCase block(sparse_shape(kCaches[round % 3], rng), static_cast<uint32_t>(round));
    const std::vector<float> expected = block.run(ref());
    const std::vector<float> actual = block.run(kernels());
    const double allowed = tolerance(block.args, expected);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], allowed) << "round " << round << " element " << i;
    }
  }
}

// All positions selected: dense attention, up to rounding. One selected: its value.
TEST_P(Attention, SparseOverAllPositionsIsDense) {
  for (const Dtype dtype : kCaches) {
    SparseCase block({.cache_dtype = dtype,
                      .form = CacheForm::kRows,
                      .num_tokens = 3,
                      .num_heads = 5,
                      .first_position = 150},
                     3);
    std::vector<int32_t> all(153);
    for (int p = 0; p < 153; ++p) all[p] = p;
    for (int t = 0; t < 3; ++t) {
      block.pointers[t] = all.data();
      block.counts[t] = 151 + t;
    }
    const std::vector<float> sparse = block.run(kernels());
    block.args.selected = nullptr;
    const std::vector<float> dense = block.run(kernels());
    for (size_t i = 0; i < dense.size(); ++i) {
      ASSERT_NEAR(sparse[i], dense[i], tolerance(block.args, dense)) << i;
    }
  }
  SparseCase one({.cache_dtype = Dtype::kBf16, .form = CacheForm::kRows, .first_position = 150}, 4);
  const int32_t position = 70;
  one.pointers[0] = &position;
  one.counts[0] = 1;
  one.run(kernels());
  const auto* row = reinterpret_cast<const Bf16*>(one.pages[1].keys) + 6 * one.args.row_stride;
  for (int d = 0; d < 64; ++d) ASSERT_EQ(one.out[d], static_cast<float>(row[d])) << d;
}

// Neither on other tokens and heads, nor on rows of the cache that it does not attend to, nor on
// where the pages begin.
TEST_P(Attention, SparseRowsDependOnTheirSelectionOnly) {
  std::mt19937 rng(15);
  for (int round = 0; round < 15; ++round) {
    AttentionShape shape = sparse_shape(kCaches[round % 3], rng);
    shape.first_position += 128;
    SparseCase block(shape, static_cast<uint32_t>(round));
    for (auto& of_token : block.positions) {  // none in the first page
      of_token.erase(of_token.begin(),
                     std::lower_bound(of_token.begin(), of_token.end(), kPageTokens));
    }
    for (int t = 0; t < shape.num_tokens; ++t) {
      block.pointers[t] = block.positions[t].data();
      block.counts[t] = static_cast<int32_t>(block.positions[t].size());
    }
    const std::vector<float> together = block.run(kernels());
    std::vector<bool> used(static_cast<size_t>(shape.first_position + shape.num_tokens));
    const AttentionArgs whole = block.args;
    for (int t = 0; t < whole.num_tokens; ++t) {
      for (int h = 0; h < whole.num_heads; h += 2) {
        const size_t at = t * whole.out_token_stride + h * whole.out_head_stride;
        AttentionArgs one = whole;
        one.num_tokens = one.num_heads = 1;
        one.first_position += t;
        one.q += t * one.q_token_stride + h * one.q_head_stride;
        one.out += at;
        one.selected += t;
        one.num_selected += t;
        one.pages += 1;
        one.first_page = 1;
        one.num_pages -= 1;
        if (one.sinks != nullptr) one.sinks += h;
        std::fill_n(one.out, one.value_dim, NAN);
        kernels().attention(one);
        ASSERT_EQ(std::memcmp(one.out, together.data() + at, one.value_dim * sizeof(float)), 0)
            << "round " << round << " token " << t << " head " << h;
      }
      for (const int32_t p : block.positions[t]) used[static_cast<size_t>(p)] = true;
    }
    const size_t bytes = whole.row_stride * dtype_bytes(whole.cache_dtype);
    for (size_t p = 0; p < used.size(); ++p) {
      if (used[p]) continue;
      std::memset(block.memory[p / kPageTokens].data() + p % kPageTokens * bytes, 0xff, bytes);
    }
    EXPECT_EQ(block.run(kernels()), together) << "round " << round;
  }
}

TEST_P(Attention, PacksRowsAsPanels) {
  std::mt19937 rng(8);
  for (int round = 0; round < 20; ++round) {
    const Dtype dtype = round % 2 ? Dtype::kF32 : Dtype::kBf16;
    const int dim = 1 + static_cast<int>(rng() % 80), count = 1 + static_cast<int>(rng() % 64);
    const AttentionCase rows(ref(),
                             {.cache_dtype = dtype,
                              .form = CacheForm::kRows,
                              .first_position = kPageTokens - 1,
                              .key_dim = dim,
                              .value_dim = 1},
                             3);
    const PageRows page{dtype, rows.pages[0].keys, rows.args.row_stride, count, dim};
    base::AlignedBytes expected(value_panel_bytes(dtype, dim)), actual(expected.size());
    ref().pack_keys(page, expected.data());
    kernels().pack_keys(page, actual.data());
    EXPECT_EQ(std::memcmp(expected.data(), actual.data(), actual.size()), 0) << dim << " " << count;
    ref().pack_values(page, expected.data());
    kernels().pack_values(page, actual.data());
    EXPECT_EQ(std::memcmp(expected.data(), actual.data(), actual.size()), 0) << dim << " " << count;
  }
}

TEST_P(Attention, WidensEveryFp8) {
  std::vector<std::byte> fp8(256 + 11);
  for (size_t i = 0; i < fp8.size(); ++i) fp8[i] = static_cast<std::byte>(i);
  std::vector<Bf16> expected(fp8.size()), actual(fp8.size());
  ref().widen_fp8(fp8.data(), fp8.size(), expected.data());
  kernels().widen_fp8(fp8.data(), fp8.size(), actual.data());
  for (size_t i = 0; i < fp8.size(); ++i) ASSERT_EQ(actual[i].bits, expected[i].bits) << i;
}

TEST(AttentionSplit, IsCutForThreadsAndPrinted) {
  const AttentionSplit prefill =
      choose_split({.num_tokens = 512, .num_heads = 16, .num_kv_heads = 4, .num_threads = 2});
  EXPECT_EQ(prefill.to_string(), "32 tokens × 4 heads per task");
  const AttentionSplit latent_decode =
      choose_split({.num_tokens = 1, .num_heads = 128, .num_kv_heads = 1, .num_threads = 2});
  EXPECT_EQ(latent_decode.to_string(), "1 tokens × 64 heads per task");
  const AttentionSplit batch = choose_split(
      {.num_tokens = 1, .num_heads = 128, .num_kv_heads = 1, .num_runs = 8, .num_threads = 2});
  EXPECT_EQ(batch.heads_per_task, 128);
}

}  // namespace
}  // namespace wideep::kernels
