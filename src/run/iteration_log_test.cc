// SPDX-License-Identifier: Apache-2.0
#include "run/iteration_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::run {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<json> lines_of(const std::string& path) {
  std::istringstream text(formats::read_file(path).value());
  std::vector<json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(IterationLog, HasALineForEachIterationAsItEnds) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("log.jsonl");
  auto log = IterationLog::create(path);
  ASSERT_TRUE(log.ok()) << log.status().message();
  IterationSummary summary{.iteration = 7,
                           .prompt_tokens = 20,
                           .generated_tokens = 3,
                           .queue = {.running = 4,
                                     .waiting = 2,
                                     .scheduled = 3,
                                     .prompts = 1,
                                     .cache_pages = 5,
                                     .max_pages = 8},
                           .wall_ms = 1.5,
                           .critical_path_ms = 1.25,
                           .imbalance_ratios = {0.5, 0.25}};
  online::Rebalance rebalance;
  rebalance.moves = 3;
  rebalance.bytes = 300;
  log->add(rebalance);
  log->add(summary);
  EXPECT_EQ(lines_of(path).size(), 1u);  // while it is open
  log->add(summary);
  EXPECT_TRUE(log->status().ok());
  const std::vector<json> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2u);
  const json& line = lines[0];
  EXPECT_EQ(line["iter"], 7);
  EXPECT_EQ(line["iterLatencyMS"], 1.5);
  EXPECT_EQ(line["numActiveRequests"], 4);
  EXPECT_EQ(line["numQueuedRequests"], 2);
  EXPECT_EQ(line["kvCacheStats"]["usedNumBlocks"], 5);
  EXPECT_EQ(line["kvCacheStats"]["freeNumBlocks"], 3);
  EXPECT_EQ(line["inflightBatchingStats"]["numGenRequests"], 2);
  EXPECT_EQ(line["inflightBatchingStats"]["numCtxTokens"], 20);
  EXPECT_EQ(line["inflightBatchingStats"]["numGeneratedTokens"], 3);
  EXPECT_EQ(line["imbalanceRatio"], 0.375);
  EXPECT_EQ(line["criticalPathMS"], 1.25);
  EXPECT_EQ(line["expertMoves"], 3);
  EXPECT_EQ(line["movedBytes"], 300);
  EXPECT_EQ(lines[1]["expertMoves"], 0);
}

TEST(IterationLog, ErrorsNameTheFile) {
  EXPECT_THAT(IterationLog::create("/nowhere/log").status().message(),
              HasSubstr("--iteration-log /nowhere/log: cannot be written: No such file"));
  auto full = IterationLog::create("/dev/full");
  ASSERT_TRUE(full.ok());
  full->add(IterationSummary{.queue = {}, .imbalance_ratios = {}});
  EXPECT_THAT(full->status().message(), HasSubstr("No space left"));
}

}  // namespace
}  // namespace wideep::run
