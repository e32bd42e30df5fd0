// SPDX-License-Identifier: Apache-2.0
#include "base/proc_file.h"

#include <algorithm>
#include <charconv>
#include <fstream>

namespace wideep::base {
namespace {

constexpr std::string_view kBlanks = " \t";

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::optional<uint64_t> parse_number(std::string_view text) {
  text = trim(text);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  // A unit may follow after a blank ("16384 kB"); other text next to the digits is no number.
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  return rest.empty() || kBlanks.find(rest[0]) != std::string_view::npos ? std::optional(value)
                                                                         : std::nullopt;
}

// The text after the name, if the line's name is exactly `name`.
std::optional<std::string_view> after_name(std::string_view line, std::string_view name) {
  if (!line.starts_with(name)) return std::nullopt;
  const std::string_view rest = line.substr(name.size());
  const size_t end = rest.find_first_not_of(kBlanks);
  if (end == std::string_view::npos) return std::nullopt;
  if (rest[end] == ':') return trim(rest.substr(end + 1));
  return end > 0 ? std::optional(trim(rest)) : std::nullopt;  // no blank: a longer name
}

}  // namespace

std::vector<std::string> read_lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::optional<uint64_t> read_number(const std::string& path) {
  const std::vector<std::string> lines = read_lines(path);
  return lines.empty() ? std::nullopt : parse_number(lines[0]);
}

std::optional<uint64_t> read_field(const std::string& path, std::string_view name) {
  return parse_number(read_text_field(path, name));
}

std::string read_text_field(const std::string& path, std::string_view name) {
  for (const std::string& line : read_lines(path)) {
    if (const auto text = after_name(line, name)) return std::string(*text);
  }
  return {};
}

std::vector<int> parse_cpu_list(std::string_view text) {
  // Bounds the loop below: a malformed "0-99999999999" must not fill the memory.
  constexpr uint64_t kMaxNumbers = 1 << 16;
  std::vector<int> cpus;
  while (!text.empty()) {
    const std::string_view item = trim(text.substr(0, text.find(',')));
    text.remove_prefix(std::min(text.size(), text.find(',')));
    if (!text.empty()) text.remove_prefix(1);
    const size_t dash = item.find('-');
    const auto first = parse_number(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number(item.substr(dash + 1));
    if (!first || !last || *last >= kMaxNumbers) continue;
    for (uint64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

}  // namespace wideep::base
