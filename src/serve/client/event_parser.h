// SPDX-License-Identifier: Apache-2.0
//
// Server-sent events, as WHATWG's HTML standard (9.2.6) has them: lines end in CRLF, LF or CR; an
// event ends at an empty line, and its data are the values of its `data` lines, joined by LF.
// Comments and other fields are left out.
//
//   parser.take("data: {\"a\"", …);        // nothing yet
//   parser.take(": 1}\r\n\r", on_event);   // on_event("{\"a\": 1}"): CR ends the event, LF or not
//
// Thread safety: one thread per object.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace wideep::client {

class EventParser {
 public:
  using OnEvent = std::function<void(std::string_view data)>;

  // max_bytes: the longest event, and the longest line, that is kept.
  explicit EventParser(size_t max_bytes = size_t{64} << 20) : max_bytes_(max_bytes) {}

  // Takes the next bytes, cut anywhere, and calls on_event for every event that ends in them; the
  // data is valid during the call. Each byte is looked at once; kept is what belongs to the event
  // that has not ended. Returns false once that is longer than max_bytes: the stream is then of no
  // use, and take() does nothing any more.
  bool take(std::string_view bytes, const OnEvent& on_event);

 private:
  bool is_too_long() const { return line_.size() > max_bytes_ || data_.size() > max_bytes_; }
  void take_line(std::string_view line, const OnEvent& on_event);

  size_t max_bytes_;
  std::string line_;  // beginning of a line whose end has not come
  std::string data_;  // of the event
  bool has_data_ = false;
  bool after_cr_ = false;  // a LF that comes next belongs to the line end before it
  bool is_first_line_ = true;
};

}  // namespace wideep::client
