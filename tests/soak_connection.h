// SPDX-License-Identifier: Apache-2.0
//
// For the soak of the server: a connection whose client may do anything, and that reads the replies
// one by one.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "http/http_client_testing.h"

namespace wideep::tests {

// How long a reply may take at most, or the end of a connection.
extern const std::chrono::seconds kMaxSilence;

class SoakConnection {
 public:
  explicit SoakConnection(int port);

  // False: the server has closed.
  bool send(std::string_view text);
  // In pieces of `step` bytes, with pauses between.
  bool send_slowly(std::string_view text, size_t step, std::chrono::microseconds pause);
  void send_no_more();  // the other direction stays open
  void reset_on_close();
  void receive_slowly() { slowly_ = true; }

  // The next reply to a request of `method`. Status 0: the connection ended before it was complete.
  server::Reply receive_reply(std::string_view method);
  // Some bytes; "" at the end.
  std::string receive();
  bool has_bytes();  // or the end, at once
  // What else comes until the server closes.
  std::string receive_rest();
  bool timed_out() const { return timed_out_; }  // kMaxSilence passed without a byte

 private:
  bool fill();  // false: nothing more comes
  bool fill_to(size_t bytes);
  std::optional<std::string> take_line();
  std::optional<std::string> take(size_t bytes);
  std::optional<std::string> take_chunks();

  server::Socket socket_;
  std::string received_;  // and not taken
  bool timed_out_ = false;
  bool slowly_ = false;
};

// A whole request. headers: lines that end with CR LF.
std::string http_request(std::string_view method, std::string_view path, std::string_view body = "",
                         std::string_view headers = "");
std::string chunked_request(std::string_view path, std::string_view body, size_t chunk);

}  // namespace wideep::tests
