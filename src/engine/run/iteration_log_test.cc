// SPDX-License-Identifier: Apache-2.0
//
// Files are read back as JSON, line by line, after all that may cut one: a rotation, a process that
// died in the middle of a line, a full disk, which a limit of file sizes plays. Both files must
// have whole lines without a gap, and the keys that users' tools read. A failure costs the last
// lines before a crash, those that one wants.
#include "run/iteration_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
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

// Nothing is lost between the two files, and each has whole lines.
TEST(IterationLog, ARotatedLogHasTheLastLinesInTwoFiles) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("log.jsonl");
  constexpr uint64_t kMaxBytes = 2000;  // a few lines
  auto log = IterationLog::create(path, kMaxBytes);
  ASSERT_TRUE(log.ok()) << log.status().message();
  for (int i = 0; i < 40; ++i) {
    log->add(IterationSummary{.iteration = i, .queue = {}, .imbalance_ratios = {}});
  }
  ASSERT_TRUE(log->status().ok()) << log->status().message();
  std::vector<json> lines = lines_of(path + ".1");
  EXPECT_GT(lines.size(), 1u);
  for (const json& line : lines_of(path)) lines.push_back(line);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["iter"], 40 - static_cast<int>(lines.size()) + static_cast<int>(i));
  }
  EXPECT_LE(formats::read_file(path)->size(), kMaxBytes);
  EXPECT_LE(formats::read_file(path + ".1")->size(), kMaxBytes);
}

// The process that wrote it has died, perhaps in the middle of a line, or of a rotation.
TEST(IterationLog, AnotherProcessGoesOnWithTheFileThatHasThePathNow) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("log.jsonl");
  auto first = IterationLog::create(path, 5000);
  ASSERT_TRUE(first.ok());
  first->add(IterationSummary{.iteration = 1});
  std::filesystem::rename(path, path + ".1");
  std::ofstream(path) << "{\"iter\": 2}\n{\"iter\": 3, \"iterLat";
  ASSERT_TRUE(first->go_on().ok());
  for (int64_t iteration = 3; iteration < 40; ++iteration)
    first->add(IterationSummary{.iteration = iteration});
  EXPECT_TRUE(first->status().ok());
  int64_t expected = 39;
  const auto last = lines_of(path), previous = lines_of(path + ".1");
  for (auto line = last.rbegin(); line != last.rend(); ++line) {
    EXPECT_EQ((*line)["iter"], expected--);
  }
  for (auto line = previous.rbegin(); line != previous.rend(); ++line) {
    EXPECT_EQ((*line)["iter"], expected--);
  }
  EXPECT_LE(std::filesystem::file_size(path), 5000u);
  EXPECT_LE(std::filesystem::file_size(path + ".1"), 5000u);
  // Removed by somebody: a new one begins.
  std::filesystem::remove(path);
  ASSERT_TRUE(first->go_on().ok());
  first->add(IterationSummary{.iteration = 40});
  EXPECT_EQ(lines_of(path).size(), 1u);
}

// Its lines would look like those before the first of this run.
TEST(IterationLog, AnEarlierRunsSecondFileIsRemoved) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("log.jsonl");
  for (const std::string& each : {path, path + ".1"}) {
    ASSERT_TRUE(formats::write_file(each, "{\"iter\": 5}\n").ok());
  }
  ASSERT_TRUE(IterationLog::create(path).ok());  // without a bound there is no second file
  EXPECT_TRUE(std::filesystem::exists(path + ".1"));
  ASSERT_TRUE(IterationLog::create(path, 100).ok());
  EXPECT_FALSE(std::filesystem::exists(path + ".1"));
  EXPECT_EQ(formats::read_file(path).value(), "");
}

TEST(IterationLog, ALineLongerThanTheBoundIsWritten) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("log.jsonl");
  auto log = IterationLog::create(path, 1);
  ASSERT_TRUE(log.ok());
  for (int i = 0; i < 3; ++i) {
    log->add(IterationSummary{.iteration = i, .queue = {}, .imbalance_ratios = {}});
  }
  EXPECT_EQ(lines_of(path).at(0)["iter"], 2);
  EXPECT_EQ(lines_of(path + ".1").at(0)["iter"], 1);
}

TEST(IterationLog, WhereItCannotRotateIsAnEarlyError) {
  const base::ScratchDirectory directory;
  std::filesystem::create_directory(directory.file("log.1"));
  EXPECT_THAT(IterationLog::create(directory.file("log"), 100).status().message(),
              HasSubstr("log.1: cannot be written: expected a regular file or a new name, found a "
                        "directory"));
  EXPECT_TRUE(IterationLog::create(directory.file("log")).ok());
  EXPECT_TRUE(IterationLog::create("/dev/null", 100).ok());
}

// The limit of file sizes cuts the third line in its middle, as a full disk does.
TEST(IterationLog, AFullDiskLeavesWholeLines) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("log.jsonl");
  auto log = IterationLog::create(path);
  ASSERT_TRUE(log.ok());
  const IterationSummary summary{.queue = {}, .imbalance_ratios = {}};
  log->add(summary);
  const size_t line = formats::read_file(path)->size();
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited;
  ::getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit limit{.rlim_cur = 2 * line + line / 2, .rlim_max = unlimited.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  log->add(summary);
  log->add(summary);
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, before);
  EXPECT_THAT(log->status().message(), HasSubstr("log.jsonl: cannot be written: File too large"));
  EXPECT_EQ(lines_of(path).size(), 2u);
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
