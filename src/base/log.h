// SPDX-License-Identifier: Apache-2.0
//
// Lines for the person at the terminal. Everything that is not a command's result goes to stderr.
// One call writes one whole line, so that ranks sharing a terminal do not interleave.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace wideep::log {

// Put in front of every line of this process, e.g. "rank 3: "; empty by default.
void set_prefix(std::string_view prefix);

void write_line(std::string_view level, std::string_view text);

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write_line("", fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write_line("warning: ", fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write_line("error: ", fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace wideep::log
