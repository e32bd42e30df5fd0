// SPDX-License-Identifier: Apache-2.0
//
// The command line of a program: options, commands with options of their own, --help.
//
//   Program program("Counts words", "count");
//   program.add_option("--file", path, "The file to read").required();
//   program.add_option("--threads", threads, "That count").range(1, 64).show_default();
//   WIDEEP_TRY_ASSIGN(const bool goes_on, program.parse(arguments));
//
// CLI11 does the work. All of it is in headers, which whoever includes them compiles anew; only
// command_line.cc does. Names of options are written with '-'. Not thread safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "wideep/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace wideep::command_line {

// What an option can set. A vector takes several values; nothing in an optional: it was not given.
template <typename T>
concept OptionValue =
    std::same_as<T, int> || std::same_as<T, int64_t> || std::same_as<T, uint64_t> ||
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::string> ||
    std::same_as<T, std::vector<int>> || std::same_as<T, std::vector<std::string>> ||
    std::same_as<T, std::optional<int>> || std::same_as<T, std::optional<int64_t>> ||
    std::same_as<T, std::optional<double>> || std::same_as<T, std::optional<std::string>>;

// A handle of an option that was added; valid as long as its program. Each method returns the
// option, so that calls can be chained. A value that a check refuses is invalid input.
class Option {
 public:
  Option& required();
  Option& show_default();  // --help says the value that the variable has now
  Option& hide();          // --help does not list it
  Option& range(int least, int most);
  Option& range(uint64_t least, uint64_t most);
  Option& range(double least, double most);
  Option& positive();
  Option& not_negative();
  Option& one_of(const std::vector<std::string>& names);
  // complaint(text): what is wrong with the text of a value; empty if nothing is.
  Option& check(std::string (*complaint)(const std::string& text));
  Option& separate_values_by(char delimiter);  // values of a vector may be one argument: A,B,C
  Option& one_value_each();                    // a vector takes one value each time it is given
  Option& excludes(const Option& other);       // it is an error to give both

 private:
  friend class Command;
  explicit Option(CLI::Option* option) : option_(option) {}

  CLI::Option* option_;
};

// A handle of a command, valid as long as its program. Variables of options must live until the
// program has parsed.
class Command {
 public:
  Command add_command(const std::string& name, const std::string& description) const;
  void require_command() const;  // one of those added must be given

  // `names`: "--output", or several: "--output,--output-path".
  template <OptionValue T>
  Option add_option(const std::string& names, T& variable,
                    const std::string& description = "") const;
  Option add_flag(const std::string& names, bool& variable,
                  const std::string& description = "") const;

  // An option that names one of several values, of an enum: add_choice<Split>(...).
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

  // What to do where the command is given, once all arguments are read.
  void on_run(std::function<void()> run) const;

 protected:
  explicit Command(CLI::App* app) : app_(app) {}

  CLI::App* app_;

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

  // Sets the variables and runs the command that was given. False: --help or --version was given,
  // what it asks for is on stdout, and nothing remains to be done. Errors (invalid input): an
  // option that is unknown, missing or has a wrong value.
  Result<bool> parse(std::vector<std::string> arguments);

  // The same for a main() without commands: the exit code, where nothing remains to be done; an
  // error is on stderr.
  std::optional<int> parse_main(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> owned_;
};

}  // namespace wideep::command_line
