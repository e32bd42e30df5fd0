// SPDX-License-Identifier: Apache-2.0
#include "keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/try.h"
#include "formats/files.h"

namespace wideep::tools {

std::string complain_of_key(const std::string& key) {
  if (key.empty()) return "expected a key, found an empty one";
  const bool has_control =
      std::ranges::any_of(key, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; });
  if (has_control) return "expected a key, found a control character (a line end, a tab) in it";
  if (key.starts_with(' ') || key.ends_with(' ')) {
    return "expected a key, found one with a space before or after it";
  }
  return "";
}

Result<std::string> read_key_file(const std::string& option, const std::string& path) {
  const Result<std::string> text = formats::read_file(path);
  WIDEEP_TRY(text.status().at(option));
  std::string_view line = *text;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of some editors
  if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  std::string key(line.substr(0, line.find_first_of("\r\n")));
  const std::string complaint = complain_of_key(key);
  if (complaint.empty()) return key;
  return invalid_input(fmt::format("{}: {}: the first line: {}", option, path, complaint));
}

}  // namespace wideep::tools
