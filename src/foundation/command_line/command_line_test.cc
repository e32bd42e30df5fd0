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

TEST(CommandLine, FactsTellWhatIsThere) {
  Program program("Counts", "count");
  program.require_command();
  int threads = 4;
  std::string model, file, secret;
  std::vector<std::string> names;
  bool json = false;
  const Command words = program.add_command("words", "Counts words");
  words.add_alias("w");
  words.add_option("--model,-m", model, "The model").model().required();
  words.add_option("--threads", threads, "That count").range(1, 8).show_default();
  words.add_option("--name", names, "A name").one_value_each().one_of({"a", "b"});
  words.add_option("file", file, "What is read").path();
  words.add_option("--secret", secret).hide();
  words.add_flag("--json", json, "Only JSON");
  program.add_command("internal", "For the build").hide();

  const CommandFacts facts = program.facts();
  EXPECT_THAT(facts.path, ElementsAre("count"));
  EXPECT_TRUE(facts.needs_command);
  ASSERT_EQ(facts.commands.size(), 1u);
  const CommandFacts& command = facts.commands[0];
  EXPECT_THAT(command.path, ElementsAre("count", "words"));
  EXPECT_THAT(command.aliases, ElementsAre("w"));
  EXPECT_EQ(command.description, "Counts words");
  EXPECT_FALSE(command.needs_command);

  ASSERT_EQ(command.options.size(), 5u);  // the first is --help
  EXPECT_THAT(command.options[0].names, ElementsAre("--help", "-h"));
  EXPECT_FALSE(command.options[0].takes_value);
  const OptionFacts& of_model = command.options[1];
  EXPECT_THAT(of_model.names, ElementsAre("--model", "-m"));
  EXPECT_EQ(of_model.kind, ValueKind::kModel);
  EXPECT_EQ(of_model.value_name, "MODEL");
  EXPECT_TRUE(of_model.is_required);
  EXPECT_FALSE(of_model.is_repeatable);
  const OptionFacts& of_threads = command.options[2];
  EXPECT_EQ(of_threads.description, "That count");
  EXPECT_EQ(of_threads.value_name, "INT");
  EXPECT_EQ(of_threads.range, "1 to 8");
  EXPECT_EQ(of_threads.default_text, "4");
  EXPECT_EQ(of_threads.kind, ValueKind::kText);
  EXPECT_FALSE(of_threads.is_required);
  EXPECT_THAT(command.options[3].choices, ElementsAre("a", "b"));
  EXPECT_TRUE(command.options[3].is_repeatable);
  EXPECT_THAT(command.options[4].names, ElementsAre("--json"));
  EXPECT_FALSE(command.options[4].takes_value);
  EXPECT_EQ(command.options[4].value_name, "");

  ASSERT_EQ(command.positionals.size(), 1u);
  EXPECT_THAT(command.positionals[0].names, ElementsAre("file"));
  EXPECT_EQ(command.positionals[0].kind, ValueKind::kPath);
}

}  // namespace
}  // namespace wideep::command_line
