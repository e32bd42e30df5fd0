// SPDX-License-Identifier: Apache-2.0
//
// The promise of equal bits: the logits of a request are bit-identical for every number of ranks
// (each with its own batches, or all sharing one: tensor parallelism), number of pipeline stages,
// placement, replication, batch, and chunking of the prefill. Each run compares the SHA-256 of
// every generated step's logits with those of a run on one rank, one prompt at a time, without load
// balancer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "generated.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using recordings::BalancerSettings;
using run::GenerateOptions;

constexpr int kMaxTokens = 12;

const std::vector<std::string> kPrompts = {
    "The captain looked at the sea and said that",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Question: Anna has 12 apples and gives 5 of them to Ben. How many apples does she have left, "
    "and how many would she have if Ben gave half of his back to her?\nAnswer:",
};

// ---- placements ----

struct ModelFacts {
  std::string directory;
  std::vector<int> moe_layers;
  int num_experts = 0;
  int num_heads = 0;
};

// Every expert once, then `redundant` more slots for the experts that `next` returns; then shuffled
// by `order`, so that any expert can be in any slot.
template <typename Next, typename Order>
BalancerSettings settings(const ModelFacts& model, int redundant, Next next, Order order) {
  BalancerSettings result;
  result.num_slots = model.num_experts + redundant;
  result.initial_global_assignments.emplace();
  for (const int layer : model.moe_layers) {
    std::vector<int64_t> slots(model.num_experts);
    for (int e = 0; e < model.num_experts; ++e) slots[e] = e;
    for (int i = 0; i < redundant; ++i) slots.push_back(next(layer, i));
    order(layer, slots);
    (*result.initial_global_assignments)[layer] = slots;
  }
  return result;
}

using Placements = std::vector<std::pair<std::string, std::optional<BalancerSettings>>>;

Placements placements(const ModelFacts& model) {
  const auto keep = [](int, std::vector<int64_t>&) {};
  const auto in_turn = [&](int layer, int i) { return (7 * i + layer) % model.num_experts; };
  Placements all = {{"no balancer", std::nullopt}};
  for (const int redundant : {0, 8, 32}) {
    all.emplace_back(fmt::format("static, {} redundant", redundant),
                     settings(model, redundant, in_turn, keep));
  }
  for (const uint32_t seed : {1u, 2u}) {
    std::mt19937 rng(seed);
    all.emplace_back(
        fmt::format("random {}", seed),
        settings(
            model, 16, [&](int, int) { return static_cast<int64_t>(rng() % model.num_experts); },
            [&](int, std::vector<int64_t>& slots) {
              std::shuffle(slots.begin(), slots.end(), rng);
            }));
  }
  all.back().second->share_update = balance::ShareUpdate::kWindow;
  // All 16 further slots hold the layer's expert 1, side by side: several on one rank.
  all.emplace_back("replicas of one expert on the same rank",
                   settings(model, 16, [](int, int) { return 1; }, keep));
  return all;
}

// ---- runs ----

struct Variant {
  const char* name;
  int companions;  // further prompts in the batch, of other lengths
  int max_num_tokens;
  int max_batch_size;
  int prefill_chunk;
  int64_t dispatch_tokens;  // of all ranks in one dispatch, at least one per rank; 0: no limit
};

constexpr Variant kVariants[] = {
    {"together, whole prompts", 0, 512, 64, 0, 0},
    {"5 companions, chunks of 7, 20 tokens a dispatch", 5, 64, 64, 7, 20},
    {"3 companions, 2 requests at a time, chunks of 1, least dispatch", 3, 4, 2, 1, 1},
};

GenerateOptions options_for(const ModelFacts& model, kernels::WeightFormat format, int ranks) {
  GenerateOptions options;
  options.model_dir = model.directory;
  options.max_tokens = kMaxTokens;
  options.format = format;
  options.logits_digest = true;
  options.parallel = parallel::parallel_config_for_ranks(ranks).value();
  return options;
}

std::vector<std::string> reference_digests(const ModelFacts& model, kernels::WeightFormat format,
                                           const std::string& travel) {
  std::vector<std::string> result;
  for (const std::string& prompt : kPrompts) {
    GenerateOptions options = options_for(model, format, 1);
    options.parallel.moe_config.dispatch_dtype = travel;
    options.parallel.moe_config.combine_dtype = travel;
    options.prompts = {prompt};
    result.push_back(digests(run(options)).at(0));
  }
  return result;
}

GenerateOptions with_variant(GenerateOptions options, const Variant& variant) {
  for (int i = 0; i < variant.companions; ++i) {
    options.prompts.push_back(std::string(1 + 23 * i, static_cast<char>('a' + i)));
  }
  // The prompts under test come last, so that their ranks and their places in the batch change too.
  options.prompts.insert(options.prompts.end(), kPrompts.begin(), kPrompts.end());
  options.parallel.max_num_tokens = variant.max_num_tokens;
  options.parallel.max_batch_size = variant.max_batch_size;
  options.prefill_chunk = variant.prefill_chunk;
  if (variant.dispatch_tokens > 0) {
    options.parallel.moe_config.max_num_tokens =
        std::max<int64_t>(variant.dispatch_tokens, options.parallel.sizes.moe_ep);
  }
  return options;
}

// The part of the matrix to run.
struct Extent {
  std::vector<int> ranks = {1, 2, 4, 8};
  size_t placements = SIZE_MAX;  // the first of them
};

// Sanitizers run a third of the matrix, which covers every line of code: each combination of
// placement and number of ranks runs with one of the variants.
bool is_left_out(size_t combination, size_t variant) {
  return base::kSanitized && combination % std::size(kVariants) != variant;
}

// Whether the ranks of this combination share a batch: if they can, in all combinations, under
// sanitizers in a third of them.
bool shares_batches(const ModelFacts& model, int ranks, size_t combination) {
  if (ranks == 1 || model.num_heads % ranks != 0) return false;
  return !base::kSanitized || combination % 3 == 0;
}

// The number of pipeline stages: in a third of the combinations the layers are split over a
// pipeline of 2 or 3 stages in turn, whether ranks share batches or not.
int stages_of(const ModelFacts& model, int ranks, size_t combination) {
  const int layers = model.moe_layers.back() + 1;
  const int stages = combination % 2 == 0 ? 2 : std::min(3, layers);
  return ranks <= 2 && combination % 3 == 1 ? stages : 1;
}

// Runs the matrix and prints it. travel: dispatch_dtype and combine_dtype.
void expect_same_answers(const ModelFacts& model, kernels::WeightFormat format,
                         const Extent& extent = {}, const std::string& travel = "AUTO") {
  const auto expected = reference_digests(model, format, travel);
  ASSERT_EQ(expected.size(), kPrompts.size());
  EXPECT_NE(expected[0], expected[1]);
  int compared = 0;
  Placements all = placements(model);
  all.resize(std::min(all.size(), extent.placements));
  size_t combination = 0;
  for (const auto& [name, settings] : all) {
    std::string row = fmt::format("  {:<40}", name);
    for (const int ranks : extent.ranks) {
      ++combination;
      const auto compare = [&](const Variant& variant, bool attention_dp, int stages = 1) {
        GenerateOptions options = with_variant(options_for(model, format, ranks), variant);
        options.parallel.sizes.pp = stages;
        if (stages > 1 && combination % 2 == 0)
          options.parallel.pipeline_micro_batches = 2 * stages;
        options.parallel.enable_attention_dp = attention_dp;
        options.parallel.moe_config.load_balancer = settings;
        options.parallel.moe_config.dispatch_dtype = travel;
        options.parallel.moe_config.combine_dtype = travel;
        auto found = digests(run(options));
        found.erase(found.begin(), found.begin() + variant.companions);
        ASSERT_EQ(found, expected) << name << (attention_dp ? ", EP " : ", TP ") << ranks << ", PP "
                                   << stages << ", " << variant.name;
        compared += static_cast<int>(found.size());
      };
      for (size_t v = 0; v < std::size(kVariants); ++v) {
        if (is_left_out(combination, v)) continue;
        ASSERT_NO_FATAL_FAILURE(compare(kVariants[v], true));
      }
      const bool shares = shares_batches(model, ranks, combination);
      if (shares) {
        const Variant& variant = kVariants[(combination / 3) % std::size(kVariants)];
        ASSERT_NO_FATAL_FAILURE(compare(variant, false));
      }
      const int stages = stages_of(model, ranks, combination);
      if (stages > 1) {
        const Variant& variant = kVariants[(combination / 3) % std::size(kVariants)];
        ASSERT_NO_FATAL_FAILURE(compare(variant, true, stages));
        if (ranks > 1) {
          ASSERT_NO_FATAL_FAILURE(compare(variant, false, stages));
        }
      }
      row += fmt::format("  EP {}{}{} =", ranks, shares ? fmt::format(", TP {}", ranks) : "",
                         stages > 1 ? fmt::format(", PP {}", stages) : "");
    }
    fmt::print("{}\n", row);
  }
  fmt::print("  {} digests of {} steps each, all equal\n", compared, kMaxTokens);
}

ModelFacts random_model(const base::ScratchDirectory& directory, const std::string& family) {
  write_random_model(directory.path(), {.family = family});
  const bool deepseek = family == "deepseek_v3";
  return {directory.path(), deepseek ? std::vector<int>{1, 2} : std::vector<int>{0, 1, 2}, 16, 4};
}

TEST(SameAnswer, DeepseekV3Bf16) {
  const base::ScratchDirectory directory;
  expect_same_answers(random_model(directory, "deepseek_v3"), kernels::WeightFormat::kBf16);
}

TEST(SameAnswer, Qwen3MoeBf16) {
  const base::ScratchDirectory directory;
  expect_same_answers(random_model(directory, "qwen3_moe"), kernels::WeightFormat::kBf16);
}

TEST(SameAnswer, DeepseekV3Float32) {
  const base::ScratchDirectory directory;
  expect_same_answers(random_model(directory, "deepseek_v3"), kernels::WeightFormat::kF32);
}

// Quantised products depend on single rows in the same way, so a part of the matrix is enough.
TEST(SameAnswer, QuantisedWeights) {
  const base::ScratchDirectory directory;
  const ModelFacts model = random_model(directory, "deepseek_v3");
  for (const auto format :
       {kernels::WeightFormat::kFp8, kernels::WeightFormat::kInt8, kernels::WeightFormat::kNvfp4}) {
    expect_same_answers(model, format, {.ranks = {2}, .placements = 2});
  }
}

// Scales belong to rows, never to batches.
TEST(SameAnswer, RowsInLowPrecision) {
  const base::ScratchDirectory directory;
  const ModelFacts model = random_model(directory, "deepseek_v3");
  expect_same_answers(model, kernels::WeightFormat::kBf16, {.ranks = {2}, .placements = 2},
                      "NVFP4");
}

class SameAnswerOfReferenceModel : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(model_.directory + "/model.safetensors")) {
      GTEST_SKIP() << "models/reference has no weights";
    }
  }

  const ModelFacts model_ = {WIDEEP_SOURCE_DIR "/models/reference", {1, 2, 3, 4, 5, 6}, 32, 8};
};

TEST_F(SameAnswerOfReferenceModel, Bf16) {
  const Extent few = {.ranks = {4}, .placements = 3};
  expect_same_answers(model_, kernels::WeightFormat::kBf16, base::kSanitized ? few : Extent());
}

// The model's rows are multiples of the block of 128.
TEST_F(SameAnswerOfReferenceModel, RowsInFp8) {
  expect_same_answers(model_, kernels::WeightFormat::kBf16, {.ranks = {4}, .placements = 2}, "FP8");
}

}  // namespace
}  // namespace wideep::tests
