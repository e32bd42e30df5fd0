// SPDX-License-Identifier: Apache-2.0
//
// CR ends its line at once: to wait for the LF that may follow would hold back an event of which
// everything has come, and a benchmark would count it as late.
#include "client/event_parser.h"

namespace wideep::client {

bool EventParser::take(std::string_view bytes, const OnEvent& on_event) {
  while (!bytes.empty() && !is_too_long()) {
    if (after_cr_) {
      after_cr_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const size_t end = bytes.find_first_of("\r\n");
    if (end == bytes.npos) {
      line_ += bytes;
      break;
    }
    after_cr_ = bytes[end] == '\r';
    if (line_.empty()) {
      take_line(bytes.substr(0, end), on_event);
    } else {
      line_ += bytes.substr(0, end);
      take_line(line_, on_event);
      line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
  return !is_too_long();
}

void EventParser::take_line(std::string_view line, const OnEvent& on_event) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (is_first_line_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  is_first_line_ = false;
  if (line.empty()) {
    if (has_data_) on_event(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  // Without a colon the line is a name with an empty value; a comment has an empty name.
  const size_t colon = line.find(':');
  if (line.substr(0, colon) != "data") return;
  std::string_view value = colon == line.npos ? "" : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace wideep::client
