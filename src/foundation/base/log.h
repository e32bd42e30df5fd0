// SPDX-License-Identifier: Apache-2.0
//
// Log lines for the user, on stderr; stdout is for a command's result only. Each call writes one
// whole line with one system call, so that lines of ranks that share a terminal do not interleave.
//
// The form of lines is that of the process, and of those that it forks:
//
//   kBare     rank 3: warning: text            commands whose output a person reads
//   kTimes    2026-11-29T02:21:45.123Z rank 3: warning: text
//   kJournal  <4>rank 3: warning: text         systemd's journal has its own times
//   kJson     {"time":"…","level":"warning","rank":3,"message":"text"}
//
// Fields of a line are name=value behind the text, and members of their own in JSON.
//
// Thread safety: all but set_rank() and set_form(), which are called before other threads log.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace wideep::log {

enum class Level { kInfo, kWarning, kError };
enum class Form { kBare, kTimes, kJournal, kJson };

// A value that the line's reader may want apart. number: it is one, and has no quotes in JSON.
struct Field {
  std::string_view name;
  std::string value;
  bool is_number = false;
};

// What a service's lines look like. option: "auto", "text" or "json". auto: as the journal wants
// them if stderr leads there (JOURNAL_STREAM), bare on a terminal, else with times. text: bare on a
// terminal, else with times.
Form form_of_service(std::string_view option);
void set_form(Form form);
Form form();
// Every line of this process names the rank.
void set_rank(int rank);

// The line with its end. unix_ms: when, since 1970; kBare and kJournal have no times.
struct Line {
  Level level = Level::kInfo;
  std::string_view text;
  std::span<const Field> fields = {};
};
std::string formatted(const Line& line, Form form, std::optional<int> rank, int64_t unix_ms);
// "2026-11-29T02:21:45.123Z".
std::string time_text(int64_t unix_ms);

void write(const Line& line);

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write({Level::kInfo, fmt::format(format, std::forward<Args>(args)...)});
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write({Level::kWarning, fmt::format(format, std::forward<Args>(args)...)});
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write({Level::kError, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace wideep::log
