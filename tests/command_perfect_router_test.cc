// SPDX-License-Identifier: Apache-2.0
// wideep generate --perfect-router: even loads, and outputs marked as meaningless.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "formats/files.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

CommandOptions perfect(std::vector<std::string> more) {
  more.insert(more.end(), {"--ranks", "4", "--perfect-router"});
  return generate(small_model(), more);
}

// With expert groups a token can only reach half of the ranks; the tokens of four ranks together
// reach all.
TEST(CommandPerfectRouter, LoadsAreEvenInTheJson) {
  const CommandEnd end = run_command(
      perfect({"--json", "--prompt", "A dog", "--prompt", "A cow", "--prompt", "A hen", "--prompt",
               "A fox", "--prompt", "The hen", "--prompt", "The dog", "--prompt", "The fox"}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out);
  EXPECT_TRUE(report.at("perfect_router").get<bool>());
  for (const json& result : report.at("results")) {
    EXPECT_TRUE(result.at("meaningless").get<bool>());
  }
  for (const json& layer : report.at("load").at("layers")) {
    EXPECT_EQ(layer.at("imbalance_ratio").get<double>(), 0.0) << layer;
  }
}

// The router of every family, with the biases of its weights: nothing but the perfect logits counts.
TEST(CommandPerfectRouter, EveryFamilyIsEven) {
  for (const char* golden : {"deepseek_v2_groups", "deepseek_v32_groups", "ernie4_5_moe_plain",
                             "glm4_moe_norm_bias", "glm4_moe_lite_bias", "gpt_oss_plain",
                             "llama4_scout", "minimax_m2_plain", "qwen3_next_plain"}) {
    const base::ScratchDirectory directory;
    write_random_model_like(directory.path(), golden);
    // With "The cat": prompts of equal lengths, one on each rank.
    const CommandEnd end = run_command(generate(
        directory.path(), {"--ranks", "2", "--perfect-router", "--json", "--prompt", "The hen"}));
    ASSERT_EQ(end.exit_code, 0) << golden << end.err;
    EXPECT_THAT(end.err, HasSubstr("router  perfect: ranks with equally many tokens")) << golden;
    for (const json& layer : json::parse(end.out).at("load").at("layers")) {
      EXPECT_EQ(layer.at("imbalance_ratio").get<double>(), 0.0) << golden << layer;
    }
  }
}

// 12 experts in 3 groups do not fit 4 ranks: a bound is printed, and the run keeps it.
TEST(CommandPerfectRouter, PrintsTheBoundWhereGroupsDoNotFitRanks) {
  const base::ScratchDirectory directory;
  write_random_model(directory.path(), {.num_experts = 12, .top_k = 4});
  json config = json::parse(*formats::read_file(directory.file("config.json")));
  config["n_group"] = 3;
  config["topk_group"] = 1;
  ASSERT_TRUE(formats::write_file(directory.file("config.json"), config.dump()).ok());
  const CommandEnd end = run_command(
      generate(directory.path(), {"--ranks", "4", "--perfect-router", "--json", "--prompt",
                                  "The hen", "--prompt", "The dog", "--prompt", "The fox"}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err,
              HasSubstr("router  perfect: groups of 4 experts do not fit the 3 of a rank: with T "
                        "tokens on each rank an imbalance of at most 0.5 / T (2 rows above the "
                        "mean), none where 3 divides T"));
  for (const json& layer : json::parse(end.out).at("load").at("layers")) {
    EXPECT_LE(layer.at("imbalance_ratio").get<double>(), 0.5) << layer;
    EXPECT_GT(layer.at("imbalance_ratio").get<double>(), 0.0) << layer;
  }
}

// One sequence: its 4 choices per token and layer cannot reach 8 ranks.
TEST(CommandPerfectRouter, SaysEvenlyOnlyWhereItIsSo) {
  const CommandEnd uneven =
      run_command(generate(small_model(), {"--ranks", "8", "--perfect-router"}));
  ASSERT_EQ(uneven.exit_code, 0) << uneven.err;
  EXPECT_EQ(uneven.out.find("evenly"), uneven.out.npos) << uneven.out;
  EXPECT_THAT(uneven.out, HasSubstr("iterations with different numbers of tokens on the ranks"));
  EXPECT_EQ(uneven.err.find("evenly"), uneven.err.npos) << uneven.err;
  const CommandEnd even = run_command(
      generate(small_model(), {"--ranks", "1", "--perfect-router", "--prompt", "A dog"}));
  EXPECT_THAT(even.out, HasSubstr("tokens went to all ranks evenly"));
}

TEST(CommandPerfectRouter, EveryTextIsMarked) {
  const CommandEnd end = run_command(perfect({}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("--- prompt 0 (perfect router: means nothing) ---"));
  EXPECT_THAT(end.out, HasSubstr("the texts mean nothing"));
  EXPECT_THAT(end.err, HasSubstr("router  perfect"));
}

TEST(CommandPerfectRouter, AServerMarksTheModelsName) {
  Command server({.arguments = {"serve", "--model", small_model(), "--port", "0", "--ranks", "4",
                                "--served-model-name", "m", "--perfect-router"}});
  EXPECT_TRUE(wait_until(
      [&] {
        return server.err().find("serving m (perfect router: means nothing)") != std::string::npos;
      },
      std::chrono::seconds(30) * kSlowdown))
      << server.err();
  // Clients use the name that they know; the answers' name tells that they mean nothing.
  const std::string url = server.err().substr(server.err().find("http://"));
  for (const std::string name : {"m", "m (perfect router: means nothing)"}) {
    const CommandEnd asked = run_command(
        {.arguments = {"bench", "serving", "--base-url", url.substr(0, url.find(' ')), "--model",
                       name, "--num-prompts", "2", "--random-input-len", "4", "--random-output-len",
                       "4", "--random-least-id", "1", "--random-num-ids", "9", "--json"}});
    EXPECT_EQ(asked.exit_code, 0) << asked.err;
  }
  server.send(SIGTERM);
  EXPECT_EQ(server.wait().exit_code, 0);
}

// Nor may its clients record what would look like the model's own choices.
TEST(CommandPerfectRouter, NoRecordingsInAServer) {
  const base::ScratchDirectory directory;
  expect_refused(
      run_command({.arguments = {"serve", "--model", small_model(), "--port", "0", "--ranks", "4",
                                 "--perfect-router", "--expert-statistic-path",
                                 directory.file("recorded")}}),
      {"--perfect-router", "expert statistics"});
}

TEST(CommandPerfectRouter, ReadsTensorRtLlmsVariable) {
  CommandOptions options = generate(small_model(), {"--ranks", "4", "--json"});
  options.environment.emplace_back("ENABLE_PERFECT_ROUTER", "1");
  const CommandEnd on = run_command(options);
  ASSERT_EQ(on.exit_code, 0) << on.err;
  EXPECT_TRUE(json::parse(on.out).contains("perfect_router"));
  options.environment.back().second = "0";
  const CommandEnd off = run_command(options);
  EXPECT_FALSE(json::parse(off.out).contains("perfect_router"));
  options.environment.back().second = "yes";
  expect_refused(run_command(options), {"ENABLE_PERFECT_ROUTER", "expected 0 or 1, found yes"});
}

TEST(CommandPerfectRouter, RefusesExpertStatistics) {
  expect_refused(run_command(perfect({"--expert-statistic-iter-range", "0-2"})),
                 {"--perfect-router", "leave out one of the two"});
}

TEST(CommandPerfectRouter, RanksThatDoNotDivideTheExpertsAreRefused) {
  expect_refused(run_command(generate(small_model(), {"--ranks", "3", "--perfect-router"})),
                 {"perfect router", "16 experts, found 3"});
}

}  // namespace
}  // namespace wideep::tests
