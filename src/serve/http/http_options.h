// SPDX-License-Identifier: Apache-2.0
//
// Where an HTTP server listens, and its limits (docs/serve.md has them in one table).
//
// Thread safety: a plain value.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "http/http_error.h"
#include "http/http_request_reader.h"

namespace wideep::server {

// The body of an error, as JSON, for the request with this head, of which parts may be missing.
// What clients can read depends on the API they speak, which the HTTP server does not know.
using ErrorForm = std::string (*)(const RequestHead& head, const HttpError& error);

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any that is free
  size_t max_body_bytes = size_t{8} << 20;
  size_t max_header_bytes = 16 << 10;
  size_t max_header_fields = 128;
  // A connection without a request for this time is closed; so is a client that reads nothing of
  // its reply for this time.
  int idle_seconds = 50;
  // For a request's head, and for its body beside the time that a slow line needs
  // (http_connection.h).
  int head_seconds = 20;
  int body_seconds = 30;
  // A client with more unread bytes of a stream is disconnected.
  size_t max_unread_bytes = size_t{4} << 20;
  // Of all connections together. Beyond, those that have been idle longest are closed, or if none
  // is, new ones wait in the system's queue; a request is refused that is longer than
  // kSmallRequestBytes; and the client with the most unread bytes is disconnected.
  size_t max_connections = 4096;
  size_t max_request_bytes_of_all = size_t{256} << 20;  // read or answered now, and their journals
  size_t max_unread_bytes_of_all = size_t{256} << 20;
  static constexpr size_t kSmallRequestBytes = size_t{64} << 10;
  // Web pages of these origins ("https://example.org"; "*": all) may use the server from a browser
  // (CORS); pages of others may not read its replies.
  std::vector<std::string> cors_origins;
  // Whom to refuse before a body is read (request_guard.h).
  bool guards_hosts = false;
  bool guards_origins = false;
  bool has_key = false;                    // clients need one
  std::vector<std::string> allowed_hosts;  // beside the server's own

  ErrorForm error_form = nullptr;  // null: HttpError::json()

  std::string error_body(const RequestHead& head, const HttpError& error) const {
    return error_form != nullptr ? error_form(head, error) : error.json();
  }
  RequestLimits limits() const {
    return {.max_body_bytes = max_body_bytes,
            .max_header_bytes = max_header_bytes,
            .max_fields = max_header_fields};
  }
};

}  // namespace wideep::server
