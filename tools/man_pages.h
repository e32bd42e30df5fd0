// SPDX-License-Identifier: Apache-2.0
//
// Manual pages of the command, one for each of its commands, made from the option tables.
//
// Thread safety: functions of their arguments.
#pragma once

#include <string>
#include <vector>

#include "command_line/facts.h"
#include "wideep/status.h"

namespace wideep::tools {

struct ManPage {
  std::string name;  // "wideep-balance-plan.1"
  std::string text;  // man(7), in UTF-8
};

// The pages of a program and of all its commands. date: "2026-11-29". Errors (failed): an example
// that the program would refuse (examples.h).
Result<std::vector<ManPage>> man_pages(const command_line::CommandFacts& program,
                                       const std::string& version, const std::string& date);

// The day of $SOURCE_DATE_EPOCH, by which a build can be repeated, else today; in UTC. Errors
// (invalid input): the variable is no number of seconds.
Result<std::string> man_date(const char* source_date_epoch);

}  // namespace wideep::tools
