// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fmt/chrono.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>

#include "base/utf8.h"

namespace wideep::log {
namespace {

struct State {
  Form form = Form::kBare;
  std::optional<int> rank;
};
State& state() {
  static State only;
  return only;
}

const char* name_of(Level level) {
  switch (level) {
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
  }
  return "";
}

// syslog's numbers.
int number_of(Level level) { return level == Level::kError ? 3 : level == Level::kWarning ? 4 : 6; }

// As JSON has it, in quotes. What is no UTF-8 becomes '?': readers of logs refuse such lines else.
std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '"' || byte == '\\') {
      result += '\\';
      result += text[i];
    } else if (byte == '\n') {
      result += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\u{:04x}", byte);
    } else if (byte < 0x80) {
      result += text[i];
    } else {
      const base::Utf8Unit unit = base::first_unit(text.substr(i));
      const bool is_character = unit.kind == base::Utf8Kind::kValid;
      result += is_character ? text.substr(i, unit.bytes) : "?";
      if (is_character) i += unit.bytes - 1;
    }
  }
  return result + "\"";
}

std::string json_line(const Line& line, std::optional<int> rank, int64_t unix_ms) {
  std::string text =
      fmt::format("{{\"time\":\"{}\",\"level\":\"{}\"", time_text(unix_ms), name_of(line.level));
  if (rank) text += fmt::format(",\"rank\":{}", *rank);
  for (const Field& field : line.fields) {
    text += fmt::format(",\"{}\":{}", field.name,
                        field.is_number ? field.value : json_string(field.value));
  }
  return text + fmt::format(",\"message\":{}}}\n", json_string(line.text));
}

// The journal takes every line for an entry of its own.
std::string with_level_on_each_line(std::string_view text, Level level) {
  const std::string start = fmt::format("<{}>", number_of(level));
  std::string result = start;
  for (size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) result += start;
  }
  return result;
}

// JOURNAL_STREAM is "device:inode" of what systemd has connected; another stream may be in its
// place by now.
bool leads_to_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat found = {};
  return stream != nullptr && ::fstat(STDERR_FILENO, &found) == 0 &&
         fmt::format("{}:{}", found.st_dev, found.st_ino) == stream;
}

}  // namespace

Form form_of_service(std::string_view option) {
  if (option == "json") return Form::kJson;
  if (option == "auto" && leads_to_journal()) return Form::kJournal;
  return ::isatty(STDERR_FILENO) == 1 ? Form::kBare : Form::kTimes;
}

void set_form(Form form) { state().form = form; }
Form form() { return state().form; }
void set_rank(int rank) { state().rank = rank; }

std::string time_text(int64_t unix_ms) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::time_t{unix_ms / 1000}),
                     unix_ms % 1000);
}

std::string formatted(const Line& line, Form form, std::optional<int> rank, int64_t unix_ms) {
  if (form == Form::kJson) return json_line(line, rank, unix_ms);
  std::string text = rank ? fmt::format("rank {}: ", *rank) : "";
  // A bare line without a level is for a person, who sees no other kind most of the time.
  if (line.level != Level::kInfo || form == Form::kTimes) {
    text += fmt::format("{}: ", name_of(line.level));
  }
  text += line.text;
  for (const Field& field : line.fields) text += fmt::format(" {}={}", field.name, field.value);
  text += '\n';
  if (form == Form::kTimes) return time_text(unix_ms) + " " + text;
  return form == Form::kJournal ? with_level_on_each_line(text, line.level) : text;
}

void write(const Line& line) {
  const int64_t unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  const std::string text = formatted(line, state().form, state().rank, unix_ms);
  // Where stdout and stderr go to the same file or pipe, their lines stay whole and in order. (By
  // lines of its own, stdout would end a command whose reader stops after the first.)
  std::fflush(stdout);
  // One write call, so that the line stays whole. The result is ignored: an error of stderr cannot
  // be reported anywhere.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace wideep::log
