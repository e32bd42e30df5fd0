// SPDX-License-Identifier: Apache-2.0
//
// Examples of the command's use, as manual pages show them.
//
// Thread safety: functions of their arguments.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "command_line/facts.h"

namespace wideep::tools {

struct Example {
  std::string_view command;    // whose page shows it: "", "serve", "balance plan"
  std::string_view purpose;    // "Serve a model on four ranks"
  std::string_view arguments;  // after "wideep "; words are separated by one space, none is quoted
};

std::span<const Example> examples();

// What is wrong with an example for this program: an unknown command, option or value, a required
// option that is missing; empty if nothing is.
std::string example_complaint(const command_line::CommandFacts& program, const Example& example);

// The words of a text, which single spaces separate.
std::vector<std::string> words_of(std::string_view text);

}  // namespace wideep::tools
