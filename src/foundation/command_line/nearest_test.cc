// SPDX-License-Identifier: Apache-2.0
#include "command_line/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace wideep::command_line {
namespace {

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> options = {
      "--help", "-h", "--model", "--max-batch-size", "--max-draft", "--threads-per-rank"};
  EXPECT_EQ(nearest("--modle", options), "--model");
  EXPECT_EQ(nearest("-model", options), "--model");
  EXPECT_EQ(nearest("--mode", options), "--model");
  EXPECT_EQ(nearest("--max-bacth-size", options), "--max-batch-size");
  EXPECT_EQ(nearest("--max-batch", options), "--max-batch-size");
  EXPECT_EQ(nearest("--max-drat", options), "--max-draft");
  EXPECT_EQ(nearest("--threads", options), "--threads-per-rank");
  const std::vector<std::string> commands = {"generate", "serve", "route", "bench"};
  EXPECT_EQ(nearest("srve", commands), "serve");
  EXPECT_EQ(nearest("gen", commands), "");  // too short for a beginning
  EXPECT_EQ(nearest("gene", commands), "generate");
}

TEST(Nearest, GivesNothingWhereNothingIsNear) {
  const std::vector<std::string> options = {"--help", "-h", "--model", "--ranks"};
  EXPECT_EQ(nearest("--ctx-size", options), "");
  EXPECT_EQ(nearest("-x", options), "");
  EXPECT_EQ(nearest("-hf", options), "");
  EXPECT_EQ(nearest("--", options), "");
  EXPECT_EQ(nearest("", options), "");
  EXPECT_EQ(nearest("--model", {}), "");
  EXPECT_EQ(nearest(std::string(100'000, 'm'), options), "");
}

}  // namespace
}  // namespace wideep::command_line
