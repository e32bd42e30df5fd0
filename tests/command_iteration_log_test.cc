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

TEST(CommandIterationLog, RefusesAFileThatCannotBeWritten) {
  const CommandOptions options =
      generate(small_model(), {"--ranks", "2", "--iteration-log", "/nowhere/log.jsonl"});
  expect_refused(run_command(options), {"--iteration-log /nowhere/log.jsonl", "No such file"});
}

}  // namespace
}  // namespace wideep::tests
