// SPDX-License-Identifier: Apache-2.0
//
// Each setting of experts by itself, for a dense model and one with experts.
#include "run/without_experts.h"

#include <gmock/gmock.h>

#include "model/config/config_testing.h"

namespace wideep::run {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const model::ModelConfig& config_of(const char* family) {
  static const model::ModelConfig dense = model::parse(model::small_json("llama")).value();
  static const model::ModelConfig sparse = model::parse(model::small_json("mixtral")).value();
  return std::string(family) == "llama" ? dense : sparse;
}

RunOptions options_of(const std::string& yaml) {
  RunOptions options;
  options.parallel = parallel::parse_parallel_config(yaml, "p.yaml").value();
  return options;
}

std::vector<std::string> notes_of(const std::string& yaml, const char* family = "llama") {
  const auto notes = settings_without_experts(options_of(yaml), config_of(family));
  EXPECT_TRUE(notes.ok()) << notes.status().message();
  return notes.ok() ? *notes : std::vector<std::string>();
}

TEST(WithoutExperts, ParallelismOfExpertsHasNoEffectWithALine) {
  const std::string shared = "tensor_parallel_size: 4\nmoe_expert_parallel_size: 4\n";
  EXPECT_THAT(notes_of(shared),
              ElementsAre(AllOf(
                  StartsWith("p.yaml: moe_expert_parallel_size 4 has no effect: the model has no"),
                  HasSubstr("tensor_parallel_size divides the products"))));
  EXPECT_THAT(notes_of(shared + "enable_attention_dp: true\n"),
              ElementsAre(HasSubstr("each rank computes all layers for its own requests")));
  EXPECT_THAT(notes_of("tensor_parallel_size: 4\n"), IsEmpty());
  EXPECT_THAT(notes_of(shared, "mixtral"), IsEmpty());
  EXPECT_THAT(notes_of("moe_config: {dispatch_dtype: FP8}\n"),
              ElementsAre(HasSubstr("moe_config has no effect")));
  RunOptions ranks;
  ranks.parallel = parallel::parallel_config_for_ranks(4).value();
  EXPECT_THAT(*settings_without_experts(ranks, config_of("llama")), IsEmpty());
}

TEST(WithoutExperts, WhatNeedsExpertsIsRefusedByName) {
  const auto expect_refused = [](const RunOptions& options, const char* name) {
    EXPECT_TRUE(settings_without_experts(options, config_of("mixtral")).ok()) << name;
    const Status status = settings_without_experts(options, config_of("llama")).status();
    EXPECT_EQ(status.exit_code(), 2);
    EXPECT_THAT(status.message(), AllOf(StartsWith(name), HasSubstr("has no experts"),
                                        testing::Not(HasSubstr("\n"))));
  };
  RunOptions options;
  options.perfect_router = true;
  expect_refused(options, "--perfect-router");
  options = {};
  options.routing_log.emplace();
  expect_refused(options, "--routing-log");
  options = {};
  options.routed_experts = true;
  expect_refused(options, "--enable-return-routed-experts");
  options = {};
  options.statistics.emplace();
  expect_refused(options, "--expert-statistic-path");
  options = {};
  options.records_on_request = true;
  expect_refused(options, "--expert-statistic-path");
  expect_refused(options_of("moe_config: {load_balancer: {num_slots: 8}}\n"),
                 "p.yaml: moe_config.load_balancer");
}

}  // namespace
}  // namespace wideep::run
