// SPDX-License-Identifier: Apache-2.0
//
// Every parallelism with every other: the sizes of tensor, pipeline, context and expert
// parallelism; whole and sharded experts; shared batches, or a batch per rank; without a balancer,
// with replicas, and while experts move. In every combination the logits of every generated step
// have the same bits as on one rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "generated.h"
#include "random_model.h"
#include "restless_policy.h"

namespace wideep::tests {
namespace {

using run::GenerateOptions;
using run::GenerateReport;

constexpr int kExperts = 16;
constexpr int kSlots = 24;
constexpr int kMaxTokens = 10;

struct Combination {
  int tp = 1, pp = 1, cp = 1;
  int moe_tp = 1;
  bool attention_dp = false;

  int world() const { return tp * pp * cp; }
  std::string name() const {
    return fmt::format("{}tp {} pp {} cp {}, moe_tp {} × moe_ep {}", attention_dp ? "adp, " : "",
                       tp, pp, cp, moe_tp, tp / moe_tp);
  }
};

// The random models have 4 query heads, so 8 ranks cannot share a batch.
constexpr Combination kCombinations[] = {
    {.tp = 2},
    {.tp = 2, .attention_dp = true},
    {.tp = 2, .moe_tp = 2},
    {.tp = 2, .moe_tp = 2, .attention_dp = true},
    {.tp = 4},
    {.tp = 4, .attention_dp = true},
    {.tp = 4, .moe_tp = 2},
    {.tp = 4, .moe_tp = 2, .attention_dp = true},
    {.tp = 4, .moe_tp = 4},
    {.tp = 4, .moe_tp = 4, .attention_dp = true},
    {.tp = 8, .attention_dp = true},
    {.tp = 8, .moe_tp = 2, .attention_dp = true},
    {.tp = 8, .moe_tp = 4, .attention_dp = true},
    {.cp = 2},
    {.cp = 4},
    {.tp = 2, .cp = 2},
    {.tp = 2, .cp = 2, .attention_dp = true},
    {.tp = 2, .cp = 3, .moe_tp = 2},
    {.tp = 4, .cp = 2, .moe_tp = 2, .attention_dp = true},
    {.pp = 2},
    {.tp = 2, .pp = 2, .attention_dp = true},
    {.tp = 2, .pp = 2, .moe_tp = 2},
    {.pp = 2, .cp = 2},
    {.tp = 2, .pp = 2, .cp = 2},
    {.tp = 2, .pp = 2, .cp = 2, .moe_tp = 2, .attention_dp = true},
    {.tp = 2, .pp = 3, .attention_dp = true},
};

enum class Balancer { kOff, kStatic, kOnline };
constexpr Balancer kBalancers[] = {Balancer::kOff, Balancer::kStatic, Balancer::kOnline};

struct Model {
  std::string family;
  int moe_layers;
};

GenerateOptions options_for(const std::string& directory) {
  GenerateOptions options;
  options.model_dir = directory;
  options.max_tokens = kMaxTokens;
  options.logits_digest = true;
  options.prompts = {"The captain looked at the sea", "def fibonacci(n):\n    return n",
                     std::string(150, 'x') + " a prompt of more than two pages", "x"};
  options.parallel = parallel::parallel_config_for_ranks(1).value();
  return options;
}

void spread(const Combination& c, GenerateOptions& options) {
  options.parallel.sizes = {.tp = c.tp,
                            .pp = c.pp,
                            .cp = c.cp,
                            .moe_tp = c.moe_tp,
                            .moe_ep = c.tp / c.moe_tp,
                            .moe_cluster = 1};
  options.parallel.enable_attention_dp = c.attention_dp;
  if (c.cp == 4) options.parallel.cp_config.emplace().tokens_per_block = 128;
}

// Online: experts move at random in every iteration (RestlessPolicy).
void balance(Balancer balancer, const Model& model, GenerateOptions& options) {
  if (balancer == Balancer::kOff) return;
  const bool online = balancer == Balancer::kOnline;
  options.parallel.moe_config.load_balancer = {.num_slots = kSlots,
                                               .layer_updates_per_iter = online ? 1 : 0};
  if (!online) return;
  options.parallel.max_batch_size = 2;  // more iterations
  options.adjust_online = [layers = model.moe_layers](run::OnlineParts& parts) {
    parts.make_policy = [=] { return std::make_unique<RestlessPolicy>(layers, kExperts, 1); };
    parts.plan.balancer.look_interval = std::chrono::microseconds(100);
  };
}

class ParallelMatrix : public testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    write_random_model(directory_.path(), {.family = GetParam().family, .expert_width = 64});
  }
  const base::ScratchDirectory directory_;
};

TEST_P(ParallelMatrix, SameBitsAsOnOneRank) {
  const Model& model = GetParam();
  const auto expected = digests(run(options_for(directory_.path())));
  ASSERT_EQ(expected.size(), 4u);
  ASSERT_EQ(expected[0].size(), 64u);
  EXPECT_NE(expected[0], expected[1]);
  int64_t moves = 0;
  size_t number = 0;
  for (const Combination& combination : kCombinations) {
    for (const Balancer balancer : kBalancers) {
      // One expert rank has nothing to balance. Sanitizers run a third of the combinations, which
      // still covers every line.
      const bool one_owner = combination.tp == combination.moe_tp;
      if (balancer == Balancer::kOnline && one_owner) continue;
      if (base::kSanitized && ++number % 3 != 0) continue;
      GenerateOptions options = options_for(directory_.path());
      spread(combination, options);
      balance(balancer, model, options);
      const GenerateReport report = run(options);
      ASSERT_EQ(digests(report), expected)
          << combination.name() << ", balancer " << static_cast<int>(balancer);
      if (report.online) moves += report.online->moves;
    }
  }
  EXPECT_GT(moves, 0);
  fmt::print("  {} experts moved\n", moves);
}

// Slices of uneven width (48 columns are three panels), in every precision of weights.
TEST_P(ParallelMatrix, ShardedExpertsInEveryPrecision) {
  const base::ScratchDirectory directory;
  write_random_model(directory.path(), {.family = GetParam().family});
  using kernels::WeightFormat;
  int number = 0;
  for (const auto format : {WeightFormat::kF32, WeightFormat::kFp8, WeightFormat::kInt8,
                            WeightFormat::kInt4, WeightFormat::kMxfp4, WeightFormat::kNvfp4}) {
    if (base::kSanitized && number++ % 2 == 0) continue;
    GenerateOptions options = options_for(directory.path());
    options.format = format;
    const auto expected = digests(run(options));
    for (const Balancer balancer : {Balancer::kStatic, Balancer::kOnline}) {
      if (base::kSanitized && balancer == Balancer::kStatic) continue;
      GenerateOptions sharded = options;
      spread({.tp = 4, .moe_tp = 2, .attention_dp = true}, sharded);
      balance(balancer, GetParam(), sharded);
      ASSERT_EQ(digests(run(sharded)), expected) << kernels::weight_format_name(format);
    }
  }
}

// Dispatch in chunks, of which two are under way at a time: the rows between the two products need
// two buffers.
TEST_P(ParallelMatrix, ShardedExpertsInChunks) {
  const auto expected = digests(run(options_for(directory_.path())));
  for (const bool attention_dp : {false, true}) {
    GenerateOptions options = options_for(directory_.path());
    spread({.tp = 4, .moe_tp = 2, .attention_dp = attention_dp}, options);
    options.parallel.max_num_tokens = 64;
    options.parallel.moe_config.max_num_tokens = 20;
    options.prefill_chunk = 37;
    EXPECT_EQ(digests(run(options)), expected) << attention_dp;
  }
}

// Whichever way rows travel, the bits are the same; also where the other way moves fewer bytes.
TEST_P(ParallelMatrix, BothStrategiesOfDispatch) {
  const auto expected = digests(run(options_for(directory_.path())));
  for (const char* strategy : {"PUSH", "ALL_GATHER"}) {
    for (const Combination& combination :
         {Combination{}, Combination{.tp = 2}, Combination{.tp = 4, .attention_dp = true},
          Combination{.tp = 4, .moe_tp = 2, .attention_dp = true},
          Combination{.tp = 2, .pp = 2, .attention_dp = true}}) {
      GenerateOptions options = options_for(directory_.path());
      spread(combination, options);
      options.parallel.moe_config.dispatch_strategy = strategy;
      options.parallel.moe_config.max_num_tokens = 20;
      options.parallel.max_num_tokens = 64;
      EXPECT_EQ(digests(run(options)), expected) << strategy << ", " << combination.name();
    }
  }
}

// The sums of a rank's experts do not depend on the number of slices that the experts are cut into.
TEST_P(ParallelMatrix, ReducedCombineOfShardedExperts) {
  GenerateOptions options = options_for(directory_.path());
  options.parallel.moe_config.combine = "REDUCED";
  spread({.tp = 2, .attention_dp = true}, options);
  const auto expected = digests(run(options));
  spread({.tp = 4, .moe_tp = 2, .attention_dp = true}, options);
  EXPECT_EQ(digests(run(options)), expected);
}

INSTANTIATE_TEST_SUITE_P(Architectures, ParallelMatrix,
                         testing::Values(Model{"deepseek_v3", 2}, Model{"qwen3_moe", 3}),
                         [](const auto& test) {
                           return test.param.family == "qwen3_moe" ? "Qwen3Moe" : "DeepseekV3";
                         });

}  // namespace
}  // namespace wideep::tests
