// SPDX-License-Identifier: Apache-2.0
//
// Reads requests of HTTP/1.1 by the letter of RFC 9112. Whatever two readers could take for two
// different requests is refused (two lengths, white space before a colon, a lone CR or LF, …): so a
// proxy in front and this server never disagree where a request ends. http_request_reader_test.cc
// goes through the RFC's rules one by one.
//
//   RequestReader reader(limits);
//   size_t taken = reader.read(bytes);  // may take less than all: the rest is the next request
//   if (reader.progress() == RequestReader::kDone) handle(reader.head(), reader.take_body());
//
// Thread safety: none; one reader per connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/http_error.h"

namespace wideep::server {

// A body in chunks may come with twice as many bytes again of chunk sizes: so a request has at most
// 3 × max_body_bytes + 4 × max_header_bytes.
struct RequestLimits {
  size_t max_body_bytes = size_t{8} << 20;
  size_t max_header_bytes = 16 << 10;  // request line, header fields and, apart, trailer fields
  size_t max_fields = 128;             // of the header: each takes memory beside its bytes
};

// The refusal of a body.
HttpError body_too_large(size_t max_bytes);

struct RequestHead {
  std::string method;       // "GET"
  std::string target;       // path and query as they came; "*" or "host:port" where RFC 9112 has it
  int minor_version = 1;    // of HTTP/1.x
  bool keeps_alive = true;  // the connection serves another request afterwards
  bool expects_continue = false;  // the client waits for "100 Continue" before it sends the body
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case

  // Values of equal names are joined with ", ", as RFC 9110 5.3 has it; "": absent.
  std::string field(std::string_view name) const;
  size_t held_bytes() const;
};

class RequestReader {
 public:
  enum Progress { kNothing, kHead, kBody, kDone, kRefused };

  explicit RequestReader(RequestLimits limits) : limits_(limits) {}

  // Reads on, and returns how many of `bytes` were taken: all, up to the end of the request, or up
  // to where it was refused.
  size_t read(std::string_view bytes);

  // kNothing: no byte of a request has come yet; kHead, kBody: it is incomplete.
  Progress progress() const;
  // Complete if kBody or kDone; else what has been read of it.
  const RequestHead& head() const { return head_; }
  size_t body_bytes() const { return body_.size(); }
  // Of memory, for all that has been read.
  size_t held_bytes() const { return line_.size() + head_.held_bytes() + body_.size(); }
  // Refuses a body that is longer, or turns out to be; a higher limit than before has no effect.
  void limit_body(size_t max_bytes);
  // REQUIRES: kDone.
  std::string take_body() { return std::move(body_); }
  // REQUIRES: kRefused. Afterwards nothing on the connection can be trusted.
  const HttpError& error() const { return *error_; }

 private:
  enum State {
    kRequestLine,
    kFieldLines,
    kSizedBody,
    kChunkSize,
    kChunkData,
    kChunkEnd,
    kTrailers,
    kEnd
  };

  void take_line(std::string_view line);
  void take_request_line(std::string_view line);
  void take_target(std::string_view target);
  void take_version(std::string_view version);
  void take_field_line(std::string_view line, bool is_trailer);
  void take_chunk_size(std::string_view line);
  void end_head();
  void check_host();
  void choose_framing();
  void expect_body(uint64_t bytes, State state);
  void take_connection();
  size_t read_line(std::string_view bytes);
  size_t read_data(std::string_view bytes);
  size_t max_line_bytes() const;
  size_t max_framing_bytes() const { return 2 * limits_.max_body_bytes + limits_.max_header_bytes; }
  void refuse_long_line();
  void refuse(int status, std::string message);
  void refuse(HttpError error);

  RequestLimits limits_;
  State state_ = kRequestLine;
  std::string line_;            // the line that is incomplete
  size_t head_bytes_ = 0;       // of complete lines; again from 0 for trailers
  size_t extension_bytes_ = 0;  // of all chunk extensions
  size_t framing_bytes_ = 0;    // of all chunks, beside their data
  size_t data_left_ = 0;        // of the body, or of the chunk
  RequestHead head_;
  std::string body_;
  std::optional<HttpError> error_;
};

}  // namespace wideep::server
