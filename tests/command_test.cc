// SPDX-License-Identifier: Apache-2.0
// wideep generate as a user runs it: output, and the same answer for every number of ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kPlacement =
    "num_slots: 24\n"
    "initial_global_assignments:\n"
    "  1: [3, 3, 3, 0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 9, 9, 12, 3]\n"
    "  2: [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 5, 5, 5, 5, 1, 2, 3, 15]\n";

constexpr const char* kFirst = "The cat sat on the mat";
constexpr const char* kLast = "Ünïcödé, and then some more of it";

CommandOptions three_prompts(const std::vector<std::string>& more) {
  CommandOptions options{.arguments = {"generate", "--model", small_model(), "--max-tokens", "6",
                                       "--prompt", kFirst, "--prompt", "x", "--prompt", kLast}};
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  return options;
}

std::vector<std::string> lines_beginning(const std::string& text, const std::string& prefix) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(prefix)) lines.push_back(line);
  }
  return lines;
}

// The texts, without the table of loads.
std::string texts(const std::string& out) {
  return out.substr(0, out.find("(token, expert) pairs"));
}

std::vector<std::string> digests(const std::vector<std::string>& more) {
  CommandOptions options = three_prompts(more);
  options.arguments.emplace_back("--logits-digest");
  const CommandEnd end = run_command(options);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(end.error_lines().empty()) << end.err;
  return lines_beginning(end.out, "digest ");
}

json run_json(const std::vector<std::string>& more) {
  CommandOptions options = three_prompts(more);
  options.arguments.emplace_back("--json");
  const CommandEnd end = run_command(options);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  return json::parse(end.out, nullptr, false);
}

TEST(Command, PrintsTextsAndLoad) {
  const CommandEnd end = run_command(three_prompts({"--ranks", "2"}));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, StartsWith("--- prompt 0 ---\nThe cat sat on the mat"));
  EXPECT_THAT(end.out, HasSubstr("--- prompt 2 ---\nÜnïcödé, and then some more of it"));
  EXPECT_THAT(end.out, HasSubstr("imbalance ratio"));
  EXPECT_THAT(end.err, HasSubstr("2 × "));
  EXPECT_THAT(end.err, HasSubstr("symmetric memory"));
}

TEST(Command, HelpAndVersion) {
  const CommandEnd help = run_command({.arguments = {"generate", "--help"}});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.err, "");
  EXPECT_THAT(help.out, HasSubstr("--load-balancer"));
  const CommandEnd version = run_command({.arguments = {"--version"}});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(std::regex_match(
      version.out,
      std::regex("wideep \\d+\\.\\d+\\.\\d+(, commit [0-9a-f]+\\+?)?, kernels \\w+\n")))
      << version.out;
}

TEST(Command, DigestsAreTheSameForEveryNumberOfRanks) {
  const base::ScratchDirectory directory;
  const std::string placement = directory.file("placement.yaml");
  ASSERT_TRUE(formats::write_file(placement, kPlacement).ok());

  const auto alone = digests({});
  const std::regex form("digest \\d [0-9a-f]{64}");
  ASSERT_EQ(alone.size(), 3u);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_TRUE(std::regex_match(alone[i], form)) << alone[i];
    EXPECT_THAT(alone[i], StartsWith(fmt::format("digest {} ", i)));
  }
  EXPECT_NE(alone[0].substr(9), alone[1].substr(9));

  for (const char* ranks : {"4", "8", "16"}) EXPECT_EQ(digests({"--ranks", ranks}), alone) << ranks;
  EXPECT_EQ(digests({"--ranks", "8", "--load-balancer", placement}), alone);
  EXPECT_EQ(digests({"--ranks", "3", "--load-balancer", placement, "--max-num-tokens", "7"}),
            alone);
}

TEST(Command, OnlyJsonOnStdout) {
  const json report = run_json({"--ranks", "4", "--logits-digest"});
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["model"], small_model());
  EXPECT_EQ(report["ranks"], 4);
  ASSERT_EQ(report["results"].size(), 3u);
  for (const json& result : report["results"]) {
    EXPECT_EQ(result["tokens"].size(), 6u);
    ASSERT_EQ(result["log_probabilities"].size(), 6u);
    for (const json& value : result["log_probabilities"]) {
      EXPECT_LE(value.get<double>(), 0.0);
      EXPECT_GT(value.get<double>(), -20.0);
    }
    EXPECT_EQ(result["finish_reason"], "length");
    EXPECT_EQ(result["logits_digest"].get<std::string>().size(), 64u);
    EXPECT_TRUE(result["text"].is_string());
  }
  EXPECT_EQ(report["results"][0]["prompt"], "The cat sat on the mat");
  EXPECT_EQ(report["results"][0]["num_prompt_tokens"], 22);  // one a byte
  EXPECT_GT(report["timings"]["wall_seconds"].get<double>(), 0.0);
  EXPECT_GE(report["timings"]["critical_path_ms"], report["timings"]["mean_rank_ms"]);
  EXPECT_EQ(report["load"]["iterations"], 6);
  EXPECT_EQ(report["load"]["generated_tokens"], 18);
}

// Each token in each MoE layer goes to its top 4 experts; the last token is never fed back.
TEST(Command, LoadCountsEveryPairOnce) {
  const json report = run_json({"--ranks", "4"});
  ASSERT_TRUE(report.is_object());
  const size_t prompt_tokens = std::string(kFirst).size() + 1 + std::string(kLast).size();
  EXPECT_EQ(report["load"]["prompt_tokens"], prompt_tokens);
  ASSERT_EQ(report["load"]["layers"].size(), 2u);
  for (const json& layer : report["load"]["layers"]) {
    size_t pairs = 0;
    for (const json& received : layer["received"]) pairs += received.get<size_t>();
    EXPECT_EQ(pairs, 4 * (prompt_tokens + 3 * 5));
  }
}

// Bytes that are not UTF-8 are replaced, so that the JSON is valid.
TEST(Command, JsonOfAPromptThatIsNotUtf8) {
  const CommandEnd end =
      run_command(generate(small_model(), {"--prompt", "caf\xe9 \xff", "--json"}));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << end.out;
  EXPECT_THAT(report["results"][1]["prompt"].get<std::string>(), StartsWith("caf"));
}

TEST(Command, SamplingWithASeedIsTheSameOnAnyNumberOfRanks) {
  const auto sampled = [](const std::string& ranks, const std::string& seed) {
    const CommandEnd end =
        run_command(three_prompts({"--ranks", ranks, "--seed", seed, "--temperature", "0.9",
                                   "--top-p", "0.95", "--top-k", "100"}));
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return texts(end.out);
  };
  const std::string alone = sampled("1", "7");
  EXPECT_EQ(sampled("4", "7"), alone);
  EXPECT_EQ(sampled("16", "7"), alone);
  EXPECT_NE(sampled("4", "8"), alone);
}

TEST(Command, PromptsFromAFileFollowThoseFromOptions) {
  CommandOptions options = generate(small_model(), {"--prompts", "/dev/stdin", "--json"});
  options.input = "{\"prompt\": \"line one\"}\n\n{\"prompt\": \"Ü\\n\", \"id\": 5}\n";
  const CommandEnd end = run_command(options);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << end.out;
  std::vector<std::string> prompts;
  for (const json& result : report["results"]) prompts.push_back(result["prompt"]);
  EXPECT_THAT(prompts, ElementsAre("The cat", "line one", "Ü\n"));
}

TEST(Command, APromptIsNeverReadAsAnOptionOrAList) {
  for (const char* prompt : {"[1, 2, 3]", "--ranks", "a,b", "{}"}) {
    CommandOptions options = generate(small_model(), {"--json", "--prompt", prompt});
    const CommandEnd end = run_command(options);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    const json report = json::parse(end.out, nullptr, false);
    ASSERT_TRUE(report.is_object()) << end.out;
    ASSERT_EQ(report["results"].size(), 2u);
    EXPECT_EQ(report["results"][1]["prompt"], prompt);
  }
}

TEST(Command, ShardedCheckpointIsTheSameModel) {
  const ModelCopy model;
  json index;
  std::string shard;
  const auto take = [&](const std::string& name, bool (*belongs)(const std::string&)) {
    shard = name;
    model.edit_tensors([&](std::vector<tensor_files::TensorToWrite>& tensors) {
      std::erase_if(tensors, [&](const auto& tensor) { return !belongs(tensor.name); });
      for (const auto& tensor : tensors) index["weight_map"][tensor.name] = shard;
    });
    model.write(shard, model.read("model.safetensors"));
  };
  take("model-00001-of-00002.safetensors",
       [](const std::string& name) { return name.find(".experts.") == name.npos; });
  take("model-00002-of-00002.safetensors",
       [](const std::string& name) { return name.find(".experts.") != name.npos; });
  model.remove("model.safetensors");
  model.write("model.safetensors.index.json", index.dump());

  const CommandEnd whole = run_command(generate(small_model(), {"--logits-digest"}));
  const CommandEnd sharded =
      run_command(generate(model.path(), {"--logits-digest", "--ranks", "2"}));
  EXPECT_EQ(sharded.exit_code, 0) << sharded.err;
  EXPECT_EQ(lines_beginning(sharded.out, "digest"), lines_beginning(whole.out, "digest"));
  EXPECT_EQ(lines_beginning(sharded.out, "digest").size(), 1u);
}

TEST(Command, InstructionSetCanBeForced) {
  CommandOptions options = generate(small_model(), {"--json"});
  options.environment = {{"WIDEEP_ISA", "ref"}};
  const CommandEnd end = run_command(options);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(json::parse(end.out, nullptr, false)["isa"], "ref");
}

// Output that cannot be written is an error.
TEST(Command, OutputThatCannotBeWritten) {
  for (const char* form : {"--json", "--logits-digest"}) {
    CommandOptions options = three_prompts({"--ranks", "2", form});
    options.output = "/dev/full";
    expect_error(run_command(options), 1, {"stdout", "No space left on device"});
  }
}

TEST(Command, RoutingLogIsWritten) {
  const base::ScratchDirectory directory;
  const std::string log = directory.file("routing.json");
  const CommandEnd end = run_command(three_prompts({"--ranks", "4", "--routing-log", log}));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_GT(formats::read_file(log)->size(), 100u);

  // The error comes before the run.
  const std::string absent = directory.file("absent/log");
  const CommandEnd lost = run_command(three_prompts({"--routing-log", absent}));
  expect_refused(lost, {"--routing-log: " + absent, "No such file"});
  expect_refused(run_command(three_prompts({"--routing-log", "/dev/null"})),
                 {"--routing-log", "/dev/null"});
}

}  // namespace
}  // namespace wideep::tests
