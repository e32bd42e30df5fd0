// SPDX-License-Identifier: Apache-2.0
#include "server/stream_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/printable.h"
#include "formats/base64.h"

namespace wideep::server {

std::string record_comment(std::string_view record) {
  return fmt::format("{}{}\n\n", kRecordMark, formats::base64(record));
}

std::string marked_aside(std::string_view bytes) {
  if (bytes.empty()) return "";
  return fmt::format("{}{}\n\n{}", kAsideMark, bytes.size(), bytes);
}

Result<ResumedBody> split_resumed(std::string_view header, std::string_view body) {
  size_t length = 0;
  const auto read = std::from_chars(header.data(), header.data() + header.size(), length);
  const bool is_number = read.ec == std::errc() && read.ptr == header.data() + header.size();
  if (!is_number || length > body.size()) {
    return invalid_input(
        fmt::format("{}: expected the length of the first request's body, of at "
                    "most {} bytes, found '{}'",
                    kResumeHeader, body.size(), base::printable(header, 40)));
  }
  ResumedBody split{.request = body.substr(0, length), .records = {}};
  std::string_view rest = body.substr(length);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    auto record = formats::from_base64(rest.substr(0, end));
    if (!record) {
      return invalid_input(fmt::format("{}: record {}: expected base64, found '{}'", kResumeHeader,
                                       split.records.size(),
                                       base::printable(rest.substr(0, end), 40)));
    }
    split.records.push_back(std::move(*record));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return split;
}

}  // namespace wideep::server
