// SPDX-License-Identifier: Apache-2.0
//
// Options of a command in a YAML file: `wideep serve --options-file FILE`. Its keys are the options'
// names without dashes, so that the table of options is also that of the file:
//
//   model: /srv/models/m           # --model /srv/models/m
//   enable-return-routed-experts: true
//   cors-origin: [https://a.org, https://b.org]
//
// What the command line says wins, without a word. Nothing else of the file is special: values are
// checked as if they were given there, and a relative path is relative to the working directory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "command_line/facts.h"
#include "wideep/status.h"

namespace wideep::command_line {

class OptionsFile {
 public:
  static constexpr const char* kOption = "--options-file";

  // Reads the file that the arguments of a command name with --options-file, if they do and the
  // command has that option. program: facts of all commands that may have it. Errors (invalid
  // input): no YAML, with file and line; a key that is no option of the command, with the nearest
  // one; a value that is no text, or no true or false of a flag; two files.
  static Result<OptionsFile> expand(const CommandFacts& program,
                                    std::vector<std::string> arguments);

  // The arguments, followed by what the file says and they do not.
  const std::vector<std::string>& arguments() const { return arguments_; }
  // The error of a parser, with the file if it is about an option of that.
  std::string explain(const std::string& message) const;

 private:
  std::string path_;
  std::vector<std::string> arguments_;
  std::vector<std::string> names_;  // of options that the file has set
};

}  // namespace wideep::command_line
