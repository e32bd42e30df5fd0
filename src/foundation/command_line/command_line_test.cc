// SPDX-License-Identifier: Apache-2.0
#include "command_line/command_line.h"

#include <fmt/format.h>
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
              HasSubstr("unknown option --x (see --help)"));
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

// A program with the command `serve MODEL`, which counts its runs.
struct Server {
  Program program{"", "prog"};
  std::string model;
  std::optional<int> ranks;
  int runs = 0;

  Server() {
    program.require_command();
    const Command serve = program.add_command("serve", "");
    serve.add_positional("MODEL", serve.add_option("--model", model).model().required());
    serve.add_option("--ranks", ranks).range(1, 8);
    serve.on_run([this] { ++runs; });
    const Command balance = program.add_command("balance", "");
    balance.require_command();
    balance.add_command("plan", "");
  }
};

TEST(CommandLine, ValueWithoutTheNameOfItsOption) {
  for (const auto& arguments : {std::vector<std::string>{"serve", "a.gguf"},
                                {"serve", "--model", "a.gguf"},
                                {"serve", "--ranks", "2", "a.gguf"},
                                {"serve", "a.gguf", "--model=a.gguf"}}) {
    Server server;
    EXPECT_EQ(complaint(server.program, arguments), "");
    EXPECT_EQ(server.model, "a.gguf");
    EXPECT_EQ(server.runs, 1);
  }
  Server two;
  EXPECT_EQ(complaint(two.program, {"serve", "a.gguf", "--model", "b.gguf"}),
            "--model: b.gguf is given, and a.gguf as MODEL: expected one of them (see --help)");
  EXPECT_EQ(two.runs, 0);
  Server none;
  EXPECT_THAT(complaint(none.program, {"serve"}), HasSubstr("--model is required"));
  EXPECT_EQ(none.runs, 0);
  Server more;
  EXPECT_EQ(complaint(more.program, {"serve", "a.gguf", "b.gguf"}),
            "unexpected arguments: b.gguf (see --help)");
  const CommandFacts facts = Server().program.facts().commands[0];
  EXPECT_TRUE(facts.options[1].is_required);
  ASSERT_EQ(facts.positionals.size(), 1u);
  EXPECT_THAT(facts.positionals[0].names, ElementsAre("MODEL"));
  EXPECT_EQ(facts.positionals[0].kind, ValueKind::kModel);
  EXPECT_FALSE(facts.positionals[0].is_required);
}

TEST(CommandLine, NamesWhatIsUnknownBeforeWhatIsMissing) {
  Server server;
  EXPECT_EQ(complaint(server.program, {"serve", "--modle", "x"}),
            "unknown option --modle: did you mean --model? (see --help)");
  EXPECT_EQ(complaint(server.program, {"serve", "--rnaks=2", "--zzz", "-5", "x"}),
            "unknown option --rnaks: did you mean --ranks?; unknown option --zzz (see --help)");
  EXPECT_EQ(complaint(server.program, {"srve", "x"}),
            "unknown command 'srve': did you mean serve? (see --help)");
  EXPECT_EQ(complaint(server.program, {"plan"}),
            "unknown command 'plan': did you mean balance plan? (see --help)");
  EXPECT_EQ(complaint(server.program, {"balance", "plna"}),
            "unknown command 'plna': did you mean plan? (see --help)");
  EXPECT_EQ(complaint(server.program, {"serve", "-hf", "org/name"}),
            "unknown option -hf (see --help)");
  EXPECT_EQ(server.runs, 0);
}

TEST(CommandLine, HintsComeBeforeTheNearestName) {
  Server server;
  server.program.set_hint([](const std::string& word, const CommandFacts& command) {
    return word == "--ctx" ? "of " + command.path.back() : word == "pull" ? "no" : "";
  });
  EXPECT_EQ(complaint(server.program, {"serve", "--ctx", "5", "--modl", "x"}),
            "unknown option --ctx: of serve; unknown option --modl: did you mean --model? "
            "(see --help)");
  EXPECT_EQ(complaint(server.program, {"pull", "x"}), "unknown command 'pull': no (see --help)");
}

TEST(CommandLine, NoArgumentsPrintTheHelpOfCommands) {
  Server server;
  ::testing::internal::CaptureStdout();
  const Result<bool> parsed = server.program.parse({});
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("Subcommands:"));
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE(*parsed);
}

// What is given to another program must mean the same there.
TEST(CommandLine, WhatIsGivenCanBeGivenAgain) {
  const auto given_of = [](std::vector<std::string> arguments) {
    Program program("Counts", "count");
    int threads = 1, mode = 0;
    bool json = false;
    std::string model, unused;
    std::vector<std::string> names;
    std::vector<int> numbers;
    const Command words = program.add_command("words", "");
    const Option model_option = words.add_option("--model,-m", model).required();
    words.add_positional("MODEL", model_option);
    words.add_option("--threads", threads);
    words.add_option("--unused", unused);
    words.add_option("--name", names).one_value_each();
    words.add_option("--numbers", numbers).separate_values_by(',');
    words.add_choice<int>("--mode", mode, "", {{"slow", 5}, {"fast", 7}});
    words.add_flag("--json", json);
    std::vector<std::string> again = {"words"};
    std::string found;
    words.on_run([&] {
      for (const GivenOption& each : words.given()) {
        if (each.name == "MODEL") continue;
        if (each.values.empty()) again.push_back(each.name);
        for (const std::string& value : each.values) {
          again.push_back(each.name);
          again.push_back(value);
        }
      }
      found = fmt::format("{} {} {} {} {} {}", threads, mode, json, model, fmt::join(names, "|"),
                          fmt::join(numbers, "|"));
    });
    arguments.insert(arguments.begin(), "words");
    EXPECT_TRUE(program.parse(arguments).ok());
    return std::pair(found, again);
  };
  const auto [first, again] = given_of({"-m", "x y", "--name", "a", "--json", "--name=b,c",
                                        "--numbers", "3,4", "--mode", "fast", "--threads", "1"});
  EXPECT_EQ(first, "1 7 true x y a|b,c 3|4");
  EXPECT_EQ(again.size(), 14u);  // not --unused
  EXPECT_EQ(given_of({again.begin() + 1, again.end()}).first, first);
  EXPECT_EQ(given_of({"x"}).second, std::vector<std::string>{"words"});  // and no MODEL
}

}  // namespace
}  // namespace wideep::command_line
