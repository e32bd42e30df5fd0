// SPDX-License-Identifier: Apache-2.0
//
// Log lines for the user, on stderr; stdout is for a command's result only. Each call writes one
// whole line with one system call, so that lines of ranks that share a terminal do not interleave.
//
// Thread safety: all but set_prefix(), which is called before other threads log.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace wideep::log {

// Sets the prefix of every line of this process, e.g. "rank 3: "; empty by default.
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
