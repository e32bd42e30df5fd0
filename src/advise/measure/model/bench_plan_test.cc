// SPDX-License-Identifier: Apache-2.0
#include "measure/model/bench_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace wideep::measure {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

model::ModelConfig config_with(int context) {
  model::ModelConfig config;
  config.vocab_size = 1000;
  config.max_position_embeddings = context;
  return config;
}

TEST(MakePlan, EveryTestInTurn) {
  const auto plan = make_plan({.prompt = 64, .generate = 4, .batches = {1, 6}, .repeats = 2},
                              config_with(256), 2);
  ASSERT_TRUE(plan.ok());
  std::vector<std::string> names;
  for (const BenchRun& run : plan->runs) {
    names.push_back((run.is_warm_up ? "warm-up " : "") + plan->tests[run.test].name());
  }
  EXPECT_THAT(names, ElementsAre("warm-up prefill 64", "warm-up decode x1", "warm-up decode x6",
                                 "prefill 64", "decode x1", "decode x6",  //
                                 "prefill 64", "decode x1", "decode x6"));
  EXPECT_EQ(plan->tests[0].sequences, 2);  // one for each rank
  EXPECT_EQ(plan->limits.max_batch_size, 3);
  EXPECT_EQ(plan->limits.max_pages, 3);
}

TEST(MakePlan, RefusesImpossibleOptions) {
  const auto nothing = make_plan({.prompt = 0, .generate = 0}, config_with(256), 1);
  ASSERT_FALSE(nothing.ok());
  EXPECT_THAT(nothing.status().message(), HasSubstr("nothing to measure"));
  const auto prompt = make_plan({.prompt = 256, .generate = 0}, config_with(256), 1);
  ASSERT_FALSE(prompt.ok());
  EXPECT_THAT(prompt.status().message(), HasSubstr("lower --prompt"));
  const auto depth =
      make_plan({.prompt = 0, .generate = 64, .depth = 200, .batches = {1}}, config_with(256), 1);
  ASSERT_FALSE(depth.ok());
  EXPECT_THAT(depth.status().message(), HasSubstr("lower --generate or --depth"));
}

TEST(MakeRequests, EverySequenceAndRunHasItsOwnTokens) {
  const model::ModelConfig config = config_with(256);
  const BenchPlan plan =
      make_plan({.prompt = 0, .generate = 8, .depth = 16, .batches = {3}, .repeats = 2}, config, 1)
          .value();
  std::set<std::vector<int32_t>> prompts;
  for (size_t run = 0; run < plan.runs.size(); ++run) {
    for (const engine::Request& request : make_requests(plan, config, run)) {
      EXPECT_EQ(request.prompt.size(), 16u);
      EXPECT_LT(*std::max_element(request.prompt.ids().begin(), request.prompt.ids().end()), 1000);
      // One with the prompt's last token, then the steps that are measured.
      EXPECT_EQ(request.max_tokens, plan.runs[run].is_warm_up ? 3 : 9);
      prompts.insert(request.prompt.ids());
    }
  }
  EXPECT_EQ(prompts.size(), 9u);
  EXPECT_EQ(make_requests(plan, config, 1)[2].prompt.ids(),
            make_requests(plan, config, 1)[2].prompt.ids());
}

// 8 prompts of 100 tokens take two iterations of at most 512 tokens: the first sequences are ahead.
TEST(MakeRequests, EnoughTokensUntilTheLastSequenceIsDone) {
  const model::ModelConfig config = config_with(256);
  const BenchPlan plan =
      make_plan({.prompt = 0, .generate = 8, .depth = 100, .batches = {8}}, config, 1).value();
  EXPECT_EQ(make_requests(plan, config, 1)[0].max_tokens, 8 + 2);
}

}  // namespace
}  // namespace wideep::measure
