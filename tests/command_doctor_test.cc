// SPDX-License-Identifier: Apache-2.0
// wideep doctor as a user runs it: output and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

CommandEnd doctor(const std::vector<std::string>& more,
                  const std::vector<std::pair<std::string, std::string>>& environment = {}) {
  CommandOptions options{.arguments = {"doctor"}, .environment = environment};
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  return run_command(options);
}

json doctor_json(std::vector<std::string> more, int exit_code = 0) {
  more.emplace_back("--json");
  const CommandEnd end = doctor(more);
  EXPECT_EQ(end.exit_code, exit_code) << end.err;
  return json::parse(end.out, nullptr, false);
}

// The machine is described all the same; the one error comes last.
void expect_verdict(const CommandEnd& end, int exit_code, const std::string& error) {
  EXPECT_EQ(end.exit_code, exit_code);
  ASSERT_EQ(end.error_lines().size(), 1u) << end.err;
  EXPECT_THAT(end.error_lines()[0], HasSubstr(error));
  EXPECT_THAT(end.out, AllOf(StartsWith("Machine\n"), Not(HasSubstr("all fine"))));
}

TEST(Doctor, DescribesTheMachine) {
  const CommandEnd end = doctor({});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, IsEmpty());
  EXPECT_THAT(end.out, AllOf(HasSubstr("Machine\n  processor  "), HasSubstr("yes, chosen"),
                             HasSubstr("wideep does not need it"), Not(HasSubstr("Model "))));
  const json toolkit = doctor_json({})["cuda_toolkit"];
  EXPECT_THAT(end.out, HasSubstr(toolkit.is_null() ? "built without CUDA"
                                                   : "CUDA " + toolkit.get<std::string>()));
}

// The reference model has a layer for speculation, which a run does not use.
TEST(Doctor, NamesWhatARunDoesNotUse) {
  const CommandEnd end = doctor({"--model", WIDEEP_SOURCE_DIR "/models/reference"});
  EXPECT_THAT(end.out, HasSubstr("  note              "));
  const std::string unwrapped = std::regex_replace(end.out, std::regex("\n +"), " ");
  EXPECT_THAT(unwrapped, HasSubstr("tensors of 1 layer that predict further tokens are not run"));
}

TEST(Doctor, FitsOnAScreen) {
  const CommandEnd end = doctor({"--model", small_model(), "--ranks", "8"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  std::istringstream lines(end.out);
  int num_lines = 0;
  for (std::string line; std::getline(lines, line); ++num_lines) {
    if (line.starts_with("Model ")) continue;  // its length depends on the path
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
  EXPECT_LE(num_lines, 48);
}

TEST(Doctor, MoreRanksThanCoresIsAWarning) {
  const json report = doctor_json({"--ranks", "4096"});
  EXPECT_EQ(report["ranks"], 4096);
  EXPECT_EQ(report["error"], nullptr);
  EXPECT_THAT(report["warnings"].dump(), HasSubstr("4096 ranks share"));
}

TEST(Doctor, AModelThatFits) {
  const json report = doctor_json({"--model", small_model(), "--ranks", "2"});
  EXPECT_EQ(report["model"]["fits"], true);
  EXPECT_EQ(report["model"]["num_slots"], 16);
  EXPECT_LE(report["model"]["bytes_needed"], report["model"]["bytes_usable"]);
  const json wider = doctor_json(
      {"--model", small_model(), "--ranks", "2", "--dtype", "float32", "--max-num-tokens", "1024"});
  EXPECT_GT(wider["model"]["bytes_needed"], report["model"]["bytes_needed"]);
}

// ---- --recovery ----

// The small model has 16 experts.
TEST(Doctor, TellsWhatTheLossOfARankWouldMean) {
  const CommandEnd end = doctor({"--model", small_model(), "--ranks", "4", "--recovery"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const std::string text = end.out.substr(end.out.find("\nRecovery, should a rank die"));
  EXPECT_THAT(text, HasSubstr("any one rank      survived: the others go on with its requests"));
  EXPECT_THAT(text, HasSubstr("any one node      there is one"));
  EXPECT_THAT(text, HasSubstr("experts lost      up to 4 of 16 in a layer"));
  EXPECT_THAT(text, HasSubstr("they come from    the checkpoint"));
  EXPECT_THAT(text, HasSubstr("slots             4 per rank and layer, then 6;"));
  EXPECT_THAT(text, HasSubstr("to lose none      num_slots: 32,"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  // Only where it is asked for.
  EXPECT_THAT(doctor({"--model", small_model(), "--ranks", "4"}).out, Not(HasSubstr("Recovery")));
}

TEST(Doctor, TheLossOfARankAsJson) {
  const json report = doctor_json({"--model", small_model(), "--ranks", "4", "--recovery"});
  const json recovery = report["recovery"];
  EXPECT_EQ(recovery["survives_any_rank"], true);
  EXPECT_EQ(recovery["survives_any_node"], false);
  EXPECT_EQ(recovery["others_go_on"], true);
  EXPECT_EQ(recovery["most_lost_experts"], 4);
  EXPECT_EQ(recovery["from_host_pool"], false);
  EXPECT_EQ(recovery["slots_per_rank"], 4);
  EXPECT_EQ(recovery["slots_per_rank_after"], 6);
  EXPECT_EQ(recovery["num_slots_to_lose_none"], 32);
  // 16 slots, then 18 of 3 ranks; 16 more for a second replica of each.
  const uint64_t before = recovery["slots_bytes"];
  EXPECT_EQ(recovery["slots_bytes_after"], before / 8 * 9);
  EXPECT_EQ(recovery["bytes_to_lose_none"], before);
  EXPECT_EQ(recovery["lost_bytes"], before / 4);
  EXPECT_EQ(recovery["host_pool_bytes"], before);
  EXPECT_FALSE(doctor_json({"--model", small_model(), "--ranks", "4"}).contains("recovery"));
}

TEST(Doctor, TheLossOfANode) {
  const std::vector<std::string> arguments = {"--model",    small_model(), "--ranks", "4",
                                              "--recovery", "--nnodes",    "2"};
  const std::string text = doctor(arguments).out;
  EXPECT_THAT(text, HasSubstr("any one node      all but the first: 2 ranks go on, with 8 slots"));
  std::istringstream lines(text.substr(text.find("\nRecovery")));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  const json recovery = doctor_json(arguments)["recovery"];
  EXPECT_EQ(recovery["nodes"], 2);
  EXPECT_EQ(recovery["survives_any_node"], false);
  EXPECT_EQ(recovery["survives_any_node_but_the_first"], true);
  EXPECT_EQ(recovery["ranks_after_node"], 2);
  EXPECT_EQ(recovery["slots_per_rank_after_node"], 8);
  EXPECT_EQ(recovery["slots_bytes_after_node"], recovery["slots_bytes"]);
  EXPECT_EQ(recovery["most_experts_lost_with_node"], 8);
}

TEST(Doctor, NodesThatCannotBeForecast) {
  const auto expect_refused = [](const std::vector<std::string>& arguments, const char* line) {
    const CommandEnd end = doctor(arguments);
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_THAT(end.out, IsEmpty());
    ASSERT_EQ(end.error_lines().size(), 1u) << end.err;
    EXPECT_THAT(end.err, HasSubstr(line));
  };
  expect_refused({"--model", small_model(), "--ranks", "2", "--nnodes", "2"},
                 "--nnodes: has no effect without --recovery; add it");
  expect_refused({"--model", small_model(), "--ranks", "2", "--recovery", "--nnodes", "3"},
                 "--nnodes: 3 nodes for 2 ranks: expected at most one node for each; add ranks");
}

TEST(Doctor, WhereEveryRankIsNeededTheOthersWait) {
  const base::ScratchDirectory files;
  std::ofstream(files.file("config.yaml")) << "tensor_parallel_size: 2\n";
  const std::vector<std::string> arguments = {"--model", small_model(), "--config",
                                              files.file("config.yaml"), "--recovery"};
  EXPECT_THAT(doctor(arguments).out, HasSubstr("survived: all wait until it is back"));
  EXPECT_EQ(doctor_json(arguments)["recovery"]["others_go_on"], false);
}

TEST(Doctor, RecoveryNeedsAModel) {
  const CommandEnd end = doctor({"--recovery"});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.out, IsEmpty());
  ASSERT_EQ(end.error_lines().size(), 1u) << end.err;
  EXPECT_THAT(end.err, HasSubstr("--recovery: depends on the model; add --model"));
}

// The model's experts alone need tens of terabytes.
TEST(Doctor, AModelThatDoesNotFitEndsWithCode1) {
  const ModelCopy copy;
  copy.edit_config([](json& config) {
    config["moe_intermediate_size"] = 1 << 20;
    config["intermediate_size"] = 1 << 20;
    config["hidden_size"] = 65536;
    config["vocab_size"] = 1 << 24;
  });
  const CommandEnd end = doctor({"--model", copy.path()});
  expect_verdict(end, 1, "the model does not fit: it needs");
  EXPECT_THAT(end.err, HasSubstr("use a machine with more than"));
  EXPECT_THAT(end.out, HasSubstr("it does not fit"));
  const json report = doctor_json({"--model", copy.path()}, 1);
  EXPECT_EQ(report["model"]["fits"], false);
  EXPECT_THAT(report["error"].dump(), HasSubstr("does not fit"));
}

// What would be read of experts is said of a budget too, before anything is packed.
TEST(Doctor, SomeExpertsInMemory) {
  const CommandEnd end = doctor({"--model", small_model(), "--expert-memory", "50%"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const std::string text = std::regex_replace(end.out, std::regex("\\s+"), " ");
  EXPECT_THAT(text, HasSubstr(": 50 % of experts in memory, expected hit rate 0.7"));
  EXPECT_THAT(text, HasSubstr("recorded routing of DeepSeek-V2-Lite stands for the model's"));
  EXPECT_THAT(text, HasSubstr("disk: 3 GB/s, assumed"));
  EXPECT_THAT(text, HasSubstr("packed weights, of which no directory is named"));
  const base::ScratchDirectory packed;
  std::ofstream(packed.file("weights")) << std::string(1 << 20, 'x');
  const json found = doctor_json(
      {"--model", small_model(), "--expert-memory", "50%", "--packed-cache", packed.path()});
  const json reading = found["experts_from_disk"];
  EXPECT_THAT(reading["disk"].get<std::string>(), HasSubstr("just measured, reading "));
  EXPECT_EQ(reading["fits"], true);
  EXPECT_EQ(reading["resident_bytes"], reading["expert_bytes"].get<uint64_t>() / 2);
  EXPECT_GT(reading["tokens_per_second"], 0.0);
  EXPECT_FALSE(doctor_json({"--model", small_model()}).contains("experts_from_disk"));
}

TEST(Doctor, BudgetsThatCannotBeRead) {
  expect_refused(doctor({"--expert-memory", "50%"}), {"--expert-memory", "add --model"});
  expect_refused(doctor({"--model", small_model(), "--expert-memory", "150%"}),
                 {"--expert-memory", "a share of 0% to 100%, found '150%'"});
  expect_refused(doctor({"--model", small_model(), "--expert-memory", "much"}),
                 {"--expert-memory", "found 'much'"});
}

TEST(Doctor, AModelThatWideepDoesNotComputeIsBadInput) {
  const ModelCopy copy;
  copy.edit_config(
      [](json& config) { config["quantization_config"] = {{"quant_method", "bitsandbytes"}}; });
  expect_verdict(doctor({"--model", copy.path()}), 2,
                 "quantization_config: quant_method bitsandbytes is not supported");
}

TEST(Doctor, ConfigJsonAloneIsEnough) {
  const ModelCopy copy;
  copy.remove("model.safetensors");
  const CommandEnd end = doctor({"--model", copy.path()});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, AllOf(HasSubstr("it fits"), HasSubstr("no model.safetensors"),
                             HasSubstr("download the whole model")));
}

TEST(Doctor, PlacesOfPrompts) {
  EXPECT_THAT(doctor({}).out, Not(HasSubstr("Prompts that leave")));
  const base::ScratchDirectory folder;
  const std::string prompts = folder.file("prompts");
  const CommandEnd end =
      doctor({"--host-cache-size", "64M", "--prompt-cache-dir", prompts, "--prompt-cache-bytes",
              "8M", "--prompt-cache-redis", "redis://127.0.0.1:1"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out,
              AllOf(HasSubstr("host              memory of this node, up to 64.0 MiB; "),
                    HasSubstr(prompts + ", up to 8.0 MiB; "), HasSubstr("redis://127.0.0.1:1"),
                    HasSubstr("start the server, or leave the option out")));
  EXPECT_FALSE(std::ifstream(prompts).good()) << "it was made";
  const json places =
      doctor_json({"--prompt-cache-dir", WIDEEP_SOURCE_DIR "/README.md/x"})["prompt_places"];
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0]["place"], "disk");
  EXPECT_EQ(places[0]["bytes"], uint64_t{32} << 30);
  EXPECT_EQ(places[0]["works"], false);
  EXPECT_THAT(
      doctor({"--model", WIDEEP_SOURCE_DIR "/models/reference", "--host-cache-size", "64M"}).out,
      HasSubstr("host cache              shared     64.0 MiB"));
}

TEST(Doctor, BadOptions) {
  expect_refused(doctor({"--ranks", "0"}), {"--ranks"});
  expect_refused(doctor({"--ranks", "2", "--config", "x.yaml"}), {"--ranks and --config"});
  expect_refused(doctor({}, {{"WIDEEP_ISA", "mmx"}}), {"WIDEEP_ISA=mmx", "choose one of"});
}

TEST(Doctor, AForcedInstructionSetIsShown) {
  const CommandEnd end = doctor({"--json"}, {{"WIDEEP_ISA", "ref"}});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const json document = json::parse(end.out);
  for (const json& set : document["machine"]["instruction_sets"]) {
    EXPECT_EQ(set["chosen"], set["isa"] == "ref");
  }
}

}  // namespace
}  // namespace wideep::tests
