// SPDX-License-Identifier: Apache-2.0
//
// What lines of a service look like on stderr. wideep route needs no model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "command.h"

namespace wideep::tests {
namespace {

using testing::AllOf;
using testing::Each;
using testing::MatchesRegex;
using testing::SizeIs;
using testing::StartsWith;

std::vector<std::string> lines_of_router(std::vector<std::string> more) {
  CommandOptions options{.arguments = {"route", "--replica", "127.0.0.1:1", "--port", "0"},
                         .keeps_times = true};
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  Command command(options);
  EXPECT_TRUE(wait_until([&] { return command.err().find("routing to 1") != std::string::npos; },
                         std::chrono::seconds(20)));
  command.send(SIGTERM);
  const CommandEnd end = command.wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  std::istringstream stream(end.err);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

constexpr const char* kTime = "20[0-9][0-9]-[0-9-]+T[0-9:]+[.][0-9][0-9][0-9]Z";

TEST(CommandLog, TimesWhereStderrIsAFile) {
  EXPECT_THAT(lines_of_router({}),
              AllOf(SizeIs(2), Each(MatchesRegex(std::string(kTime) + " info: (rout|stopp).*"))));
}

TEST(CommandLog, JsonIsAnObjectALine) {
  const std::vector<std::string> lines = lines_of_router({"--log-format", "json"});
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(object.is_object()) << line;
    EXPECT_EQ(object["level"], "info") << line;
    EXPECT_THAT(object["time"].get<std::string>(), MatchesRegex(kTime)) << line;
  }
  EXPECT_THAT(nlohmann::json::parse(lines[0])["message"].get<std::string>(),
              StartsWith("routing to 1 replicas on http://"));
}

// The variable names another stream: what systemd has connected is not stderr any more.
TEST(CommandLog, JournalOfAnotherStream) {
  Command command({.arguments = {"route", "--replica", "127.0.0.1:1", "--port", "0"},
                   .environment = {{"JOURNAL_STREAM", "1:2"}},
                   .keeps_times = true});
  EXPECT_TRUE(wait_until([&] { return command.err().find("routing to 1") != std::string::npos; },
                         std::chrono::seconds(20)));
  command.send(SIGTERM);
  EXPECT_THAT(command.wait().err, StartsWith("20"));
}

TEST(CommandLog, OtherCommandsAndBadOptionsHaveNoTimes) {
  expect_refused(run_command({.arguments = {"generate", "--model", "/absent", "--prompt", "x"},
                              .keeps_times = true}),
                 {"/absent"});
  expect_refused(
      run_command({.arguments = {"route", "--replica", "127.0.0.1:1", "--log-format", "xml"},
                   .keeps_times = true}),
      {"--log-format", "xml"});
}

}  // namespace
}  // namespace wideep::tests
