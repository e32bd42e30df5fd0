// SPDX-License-Identifier: Apache-2.0
//
// The command line of a program: options, commands with options of their own, --help.
//
//   Program program("Counts words", "count");
//   program.add_option("--file", path, "The file to read").required();
//   program.add_option("--threads", threads, "That count").range(1, 64).show_default();
//   WIDEEP_TRY_ASSIGN(const bool continues, program.parse(arguments));
//
// A thin layer over CLI11. Only command_line.cc includes CLI11, whose headers are slow to compile.
// Names of options include their dashes. Not thread safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command_line/facts.h"
#include "wideep/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace wideep::command_line {

struct Marks;  // what CLI11 does not keep of options: of command_line.cc

// The types of variables that an option can set. A vector takes several values; an optional stays
// empty if the option is not given.
template <typename T>
concept OptionValue =
    std::same_as<T, int> || std::same_as<T, int64_t> || std::same_as<T, uint64_t> ||
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::string> ||
    std::same_as<T, std::vector<int>> || std::same_as<T, std::vector<std::string>> ||
    std::same_as<T, std::optional<int>> || std::same_as<T, std::optional<int64_t>> ||
    std::same_as<T, std::optional<double>> || std::same_as<T, std::optional<std::string>>;

// A handle of an added option, valid as long as its program. Each method returns the option, so
// that calls can be chained. A value outside a range, or refused by a check, is an error (invalid
// input).
class Option {
 public:
  Option& required();
  Option& show_default();  // --help shows the current value of the variable as the default
  Option& hide();          // --help does not list the option
  Option& range(int min, int max);
  Option& range(uint64_t min, uint64_t max);
  Option& range(double min, double max);
  Option& positive();
  Option& not_negative();
  Option& one_of(const std::vector<std::string>& names);
  // complaint(text): the error message for the text of a value; empty if the value is right.
  Option& check(std::string (*complaint)(const std::string& text));
  Option& separate_values_by(char delimiter);  // one argument may hold several values: A,B,C
  Option& one_value_each();                    // one value per occurrence: --x A --x B
  Option& excludes(const Option& other);       // giving both is an error
  Option& path();   // the value is a file or a directory: for facts and --help
  Option& model();  // the value is a model's directory or file: for facts and --help

 private:
  friend class Command;
  Option(CLI::Option* option, Marks* marks) : option_(option), marks_(marks) {}

  CLI::Option* option_;
  Marks* marks_;
};

struct GivenOption {
  std::string name;                 // the first, with its dashes; a positional's: its name
  std::vector<std::string> values;  // a flag has none
};

// A handle of a command, valid as long as its program. Variables of options must stay valid until
// Program::parse() returns.
class Command {
 public:
  Command add_command(const std::string& name, const std::string& description) const;
  void add_alias(const std::string& name) const;  // another name of this command
  void require_command() const;                   // the user must give one of the added commands
  void hide() const;                              // --help does not list this command

  // names: "--output", or several names of one option: "--output,--output-path".
  template <OptionValue T>
  Option add_option(const std::string& names, T& variable,
                    const std::string& description = "") const;
  Option add_flag(const std::string& names, bool& variable,
                  const std::string& description = "") const;

  // Lets the user give the value of `option`, which has one, also without its name: `serve FILE` for
  // `serve --model FILE`. An option that is required may then be given either way; both with
  // different values are an error. Needs on_run().
  void add_positional(const std::string& name, const Option& option) const;

  // An option whose value is one of several names, each of which stands for a value of an enum:
  // add_choice<Split>(...).
  template <typename Value, typename Variable>
  Option add_choice(const std::string& names, Variable& variable, const std::string& description,
                    const std::vector<std::pair<std::string, Value>>& choices) const {
    std::vector<std::string> choice_names;
    std::vector<Value> values;
    for (const auto& [name, value] : choices) {
      choice_names.push_back(name);
      values.push_back(value);
    }
    return add_choice(names, description, choice_names, [&variable, values](int chosen) {
      variable = values.at(static_cast<size_t>(chosen));
    });
  }

  // The options and positionals that the user has given, to give them to another program. After
  // parsing, so also from on_run().
  std::vector<GivenOption> given() const;

  // Called by Program::parse() if the user gives this command, after all arguments are parsed.
  void on_run(std::function<void()> run) const;

 protected:
  Command(CLI::App* app, Marks* marks) : app_(app), marks_(marks) {}

  CLI::App* app_;
  Marks* marks_;

 private:
  Option add_choice(const std::string& names, const std::string& description,
                    const std::vector<std::string>& choices, std::function<void(int)> choose) const;
};

class Program : public Command {
 public:
  explicit Program(const std::string& description, const std::string& name = "");
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void set_version(const std::string& version) const;  // adds --version, which prints it

  // What to say of an option or a command that is not there: the text after "unknown option --x: ".
  // "" of it: the nearest name is suggested. The command is the one that would have it.
  using Hint = std::function<std::string(const std::string& word, const CommandFacts& command)>;
  void set_hint(Hint hint);

  // The command line as data, without what is hidden. Valid once all commands and options are added.
  CommandFacts facts() const;

  // Sets the variables and runs the given command. Returns false for --help and --version, and
  // where a command is needed but no argument is given, after printing to stdout: the program should
  // then end. Errors (invalid input): an unknown or missing option, a wrong value.
  Result<bool> parse(std::vector<std::string> arguments);

  // The same for a main() without commands. Returns the exit code if the program should end (after
  // --help, --version, or an error, which is logged), otherwise nothing.
  std::optional<int> parse_main(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> owned_;
  std::unique_ptr<Marks> owned_marks_;
  Hint hint_;
};

}  // namespace wideep::command_line
