// SPDX-License-Identifier: Apache-2.0
#include "client/message_reader.h"

#include <utility>

namespace wideep::client {
namespace {

constexpr std::string_view kMark = "\"\"\"";

std::string_view without_end_spaces(std::string_view line) {
  while (line.ends_with(' ') || line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

std::optional<std::string> MessageReader::take(std::string_view line) {
  if (!is_inside() && line.starts_with(kMark)) {
    is_block_ = true;
    line.remove_prefix(kMark.size());
    if (without_end_spaces(line).empty()) return std::nullopt;  // the text begins below
  }
  if (is_block_) {
    const std::string_view text = without_end_spaces(line);
    if (text.ends_with(kMark)) {
      text_ += text.substr(0, text.size() - kMark.size());
      return end();
    }
    text_ += line;
    text_ += '\n';
    return std::nullopt;
  }
  continues_ = line.ends_with('\\');
  if (continues_) {
    text_ += line.substr(0, line.size() - 1);
    text_ += '\n';
    return std::nullopt;
  }
  text_ += line;
  return end();
}

void MessageReader::take_part(std::string_view line) {
  text_ += line;
  text_ += '\n';
  continues_ = !is_block_;
}

void MessageReader::clear() {
  text_.clear();
  is_block_ = continues_ = false;
}

std::optional<std::string> MessageReader::end() {
  std::string message = std::exchange(text_, {});
  clear();
  return message;
}

}  // namespace wideep::client
