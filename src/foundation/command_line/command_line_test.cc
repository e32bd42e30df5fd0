// SPDX-License-Identifier: Apache-2.0
#include "command_line/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::command_line {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string complaint(Program& program, std::vector<std::string> arguments) {
  const Result<bool> parsed = program.parse(std::move(arguments));
  return parsed.ok() ? "" : parsed.status().message();
}

TEST(CommandLine, SetsVariables) {
  Program program("");
  int threads = 1;
  std::optional<double> tolerance;
  std::vector<int> rows;
  bool json = false;
  program.add_option("--threads", threads).range(1, 8);
  program.add_option("--tolerance", tolerance);
  program.add_option("--rows", rows).separate_values_by(',');
  program.add_flag("--json", json);
  ASSERT_TRUE(*program.parse({"--rows", "1,2", "--threads=4", "--json"}));
  EXPECT_EQ(threads, 4);
  EXPECT_EQ(tolerance, std::nullopt);
  EXPECT_THAT(rows, ElementsAre(1, 2));
  EXPECT_TRUE(json);
}

TEST(CommandLine, ErrorsNameTheOptionAndTheValue) {
  Program program("");
  int threads = 1;
  std::string name;
  program.add_option("--threads", threads).range(1, 8);
  program.add_option("--name", name).one_of({"a", "b"}).required();
  EXPECT_THAT(complaint(program, {"--name", "a", "--threads", "9"}),
              HasSubstr("--threads: Value 9 not in range"));
  EXPECT_THAT(complaint(program, {"--name", "c"}), HasSubstr("{a,b}"));
  EXPECT_THAT(complaint(program, {"--threads", "2"}), HasSubstr("--name is required"));
  EXPECT_THAT(complaint(program, {"--name", "a", "more", "--x"}),
              HasSubstr("unexpected arguments: more --x (see --help)"));
}

TEST(CommandLine, RunsTheCommand) {
  Program program("");
  program.require_command();
  int runs = 0;
  int number = 0;
  const Command twice = program.add_command("twice", "");
  twice.add_option("--number", number);
  twice.on_run([&] { runs += 2 * number; });
  ASSERT_TRUE(*program.parse({"twice", "--number", "3"}));
  EXPECT_EQ(runs, 6);
  EXPECT_THAT(complaint(program, {"thrice"}), HasSubstr("unknown command 'thrice'"));
}

TEST(CommandLine, ChoiceSetsAnEnumValue) {
  enum class Colour { kRed, kBlue };
  Program program("");
  std::optional<Colour> colour;
  program.add_choice<Colour>("--colour", colour, "",
                             {{"red", Colour::kRed}, {"blue", Colour::kBlue}});
  EXPECT_THAT(complaint(program, {"--colour", "green"}), HasSubstr("blue"));
  EXPECT_EQ(colour, std::nullopt);
  ASSERT_TRUE(*program.parse({"--colour", "blue"}));
  EXPECT_EQ(colour, Colour::kBlue);
}

TEST(CommandLine, HelpPrintsAndReturnsFalse) {
  Program program("What it is for");
  int threads = 7;
  program.add_option("--threads", threads, "How many").show_default();
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(*program.parse({"--help"}));
  const std::string help = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("What it is for"));
  EXPECT_THAT(help, HasSubstr("--threads INT=7"));
}

}  // namespace
}  // namespace wideep::command_line
