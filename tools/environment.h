// SPDX-License-Identifier: Apache-2.0
//
// The environment variables of TensorRT-LLM and of its scripts, and those of OpenTelemetry for
// traces: which commands use them, and why the others do not. A variable that is set and not used is
// named, for whoever sets one believes that it acts.
//
// Thread safety: called by main, and while options are read.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::tools {

struct EnvironmentVariable {
  std::string_view name;
  // The commands that use it, as "serve", "bench throughput"; empty: none.
  std::span<const std::string_view> commands;
  std::string_view why;          // the others do not
  std::string_view effect = {};  // where it is used; manual pages say so
};

std::span<const EnvironmentVariable> environment_variables();

// The command that the program's arguments name, as "serve" or "bench ep"; "" without one.
std::string command_of(const std::vector<std::string>& arguments);

// "TLLM_X is set, but wideep bench ep does not use it: ..."; "" if the command uses it or it is no
// variable of the table.
std::string unused_line(std::string_view variable, std::string_view command);

// Logs a line for each variable that is set and that this command does not use, and remembers the
// command for log_if_unused().
void log_unused_variables(const std::string& command);
// The same for one variable, which has been set since then.
void log_if_unused(std::string_view variable);

}  // namespace wideep::tools
