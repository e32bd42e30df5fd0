// SPDX-License-Identifier: Apache-2.0
// --iteration-log: the sums of its lines, one per iteration, are those of the run's report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

using nlohmann::json;

std::vector<json> lines_of(const std::string& path) {
  std::istringstream text(formats::read_file(path).value());
  std::vector<json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(CommandIterationLog, LinesAddUpToTheReport) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("log.jsonl");
  const CommandEnd end = run_command(
      generate(small_model(), {"--ranks", "4", "--json", "--prompt", "A dog", "--prompt", "A hen",
                               "--max-tokens", "5", "--iteration-log", path}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json load = json::parse(end.out).at("load");
  int iteration = 0, prompt_tokens = 0, generated = 0;
  double imbalance = 0.0;
  for (const json& line : lines_of(path)) {
    EXPECT_EQ(line.at("iter"), iteration++);
    EXPECT_EQ(line.at("numActiveRequests"), 3);
    EXPECT_EQ(line.at("numQueuedRequests"), 0);
    EXPECT_GT(line.at("iterLatencyMS"), 0.0);
    EXPECT_GT(line.at("criticalPathMS"), 0.0);
    const json& batch = line.at("inflightBatchingStats");
    EXPECT_EQ(batch.at("numScheduledRequests"), 3);
    EXPECT_EQ(batch.at("numContextRequests"), iteration == 1 ? 3 : 0);
    EXPECT_GE(line.at("kvCacheStats").at("usedNumBlocks"), 3);
    prompt_tokens += batch.at("numCtxTokens").get<int>();
    generated += batch.at("numGeneratedTokens").get<int>();
    imbalance += line.at("imbalanceRatio").get<double>();
  }
  EXPECT_EQ(iteration, 5);
  EXPECT_EQ(generated, 3 * 5);
  EXPECT_EQ(prompt_tokens, 7 + 5 + 5);  // a token is a byte
  double expected = 0.0;
  for (const json& layer : load.at("layers")) {
    expected +=
        layer.at("imbalance_ratio").get<double>() / static_cast<double>(load["layers"].size());
  }
  EXPECT_NEAR(imbalance / iteration, expected, 1e-3);
}

TEST(CommandIterationLog, TheBoundIsForALog) {
  expect_refused(run_command(generate(small_model(), {"--iteration-log-max-size", "5"})),
                 {"--iteration-log-max-size: has no effect without --iteration-log FILE"});
  const base::ScratchDirectory directory;
  const std::string path = directory.file("log.jsonl");
  const CommandEnd end =
      run_command(generate(small_model(), {"--iteration-log", path, "--iteration-log-max-size", "1",
                                           "--max-tokens", "4"}));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(lines_of(path).size(), 4u);
}

// All outputs are checked before anything is loaded, with one exit code.
TEST(CommandIterationLog, OutputsThatCannotBeWrittenAreRefusedAtTheStart) {
  const std::string file = small_model() + "/config.json/below";  // below a file: for root too
  const std::vector<std::vector<std::string>> outputs = {
      {"--iteration-log", file},
      {"--routing-log", file},
      {"--profile-range", "0-1", "--profile-output", file},
      {"--expert-statistic-iter-range", "0-2", "--expert-statistic-path", file}};
  for (const std::vector<std::string>& each : outputs) {
    SCOPED_TRACE(each[0]);
    expect_refused(run_command(generate(small_model(), each)), {file, "Not a directory"});
  }
  const CommandEnd server = run_command({.arguments = {"serve", "--model", small_model(), "--port",
                                                       "0", "--expert-statistic-path", file}});
  expect_refused(server, {"--expert-statistic-path: " + file, "Not a directory"});
  const base::ScratchDirectory directory;
  const std::string csv = directory.file("load.csv");
  ASSERT_TRUE(formats::write_file(csv, "layer,e0,e1\n1,5,3\n").ok());
  expect_refused(run_command({.arguments = {"balance", "plan", "--stats", csv, "--ep-size", "2",
                                            "--output", file}}),
                 {"--output: " + file, "Not a directory"});
}

TEST(CommandIterationLog, RefusesAFileThatCannotBeWritten) {
  const CommandOptions options =
      generate(small_model(), {"--ranks", "2", "--iteration-log", "/nowhere/log.jsonl"});
  expect_refused(run_command(options), {"--iteration-log /nowhere/log.jsonl", "No such file"});
}

}  // namespace
}  // namespace wideep::tests
