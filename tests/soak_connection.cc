// SPDX-License-Identifier: Apache-2.0
//
// A library for clients would refuse to do half of this: send a piece of a request, more than one
// before the first reply, or nothing more. Replies are taken off one by one by their own length or
// chunks, and what is behind one is kept, so that a reply with a byte too many spoils the next and
// is seen. Waiting for a byte is bounded: a server that forgets a connection fails the soak instead
// of stopping it.
#include "soak_connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "command.h"

namespace wideep::tests {

using server::Reply;

const std::chrono::seconds kMaxSilence{30 * (kSlowdown > 1 ? 4 : 1)};

SoakConnection::SoakConnection(int port) : socket_(port) {
  const timeval patience{kMaxSilence.count(), 0};
  ::setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ::setsockopt(socket_.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

bool SoakConnection::send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket_.fd(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      timed_out_ = timed_out_ || errno == EAGAIN;
      return false;
    }
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool SoakConnection::send_slowly(std::string_view text, size_t step,
                                 std::chrono::microseconds pause) {
  for (size_t at = 0; at < text.size(); at += step) {
    if (at > 0) std::this_thread::sleep_for(pause);
    if (!send(text.substr(at, step))) return false;
  }
  return true;
}

void SoakConnection::send_no_more() { ::shutdown(socket_.fd(), SHUT_WR); }

void SoakConnection::reset_on_close() {
  const linger at_once{1, 0};
  ::setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

bool SoakConnection::fill() {
  char bytes[16384];
  const size_t at_most = slowly_ ? 200 : sizeof(bytes);
  if (slowly_) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const ssize_t count = ::recv(socket_.fd(), bytes, at_most, 0);
  if (count < 0 && errno == EAGAIN) timed_out_ = true;
  if (count <= 0) return false;
  received_.append(bytes, static_cast<size_t>(count));
  return true;
}

bool SoakConnection::fill_to(size_t bytes) {
  while (received_.size() < bytes) {
    if (!fill()) return false;
  }
  return true;
}

std::optional<std::string> SoakConnection::take(size_t bytes) {
  if (!fill_to(bytes)) return std::nullopt;
  std::string taken = received_.substr(0, bytes);
  received_.erase(0, bytes);
  return taken;
}

// Without its CR LF.
std::optional<std::string> SoakConnection::take_line() {
  size_t end = received_.npos;
  while ((end = received_.find("\r\n")) == received_.npos) {
    if (!fill()) return std::nullopt;
  }
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 2);
  return line;
}

std::optional<std::string> SoakConnection::take_chunks() {
  std::string body;
  while (true) {
    const auto line = take_line();
    if (!line || line->empty()) return std::nullopt;
    const size_t size = std::stoul(*line, nullptr, 16);
    const auto data = take(size + 2);
    if (!data) return std::nullopt;
    if (size == 0) return body;
    body.append(*data, 0, size);
  }
}

Reply SoakConnection::receive_reply(std::string_view method) {
  Reply reply;
  std::optional<size_t> length;
  bool chunked = false;
  for (auto line = take_line(); true; line = take_line()) {
    if (!line) return {};
    if (line->empty()) break;
    constexpr std::string_view kLength = "Content-Length: ";
    if (line->starts_with(kLength)) length = std::stoul(line->substr(kLength.size()));
    chunked = chunked || *line == "Transfer-Encoding: chunked";
    reply.head += *line + "\r\n";
  }
  if (!reply.head.starts_with("HTTP/1.1 ")) return {};
  reply.status = std::stoi(reply.head.substr(9, 3));
  if (reply.status == 100) return receive_reply(method);
  if (method == "HEAD" || reply.status == 204) return reply;
  if (!chunked && !length) {
    reply.body = receive_rest();
    return timed_out_ ? Reply() : reply;
  }
  auto body = chunked ? take_chunks() : take(*length);
  if (!body) return {};
  reply.body = std::move(*body);
  return reply;
}

std::string SoakConnection::receive() {
  if (received_.empty()) fill();
  return std::exchange(received_, {});
}

bool SoakConnection::has_bytes() {
  char byte = 0;
  return ::recv(socket_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

std::string SoakConnection::receive_rest() {
  while (fill()) {
  }
  return std::exchange(received_, {});
}

std::string http_request(std::string_view method, std::string_view path, std::string_view body,
                         std::string_view headers) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: h\r\n{}Content-Length: {}\r\n\r\n{}", method, path,
                     headers, body.size(), body);
}

std::string chunked_request(std::string_view path, std::string_view body, size_t chunk) {
  std::string text =
      fmt::format("POST {} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", path);
  for (size_t at = 0; at < body.size(); at += chunk) {
    const std::string_view data = body.substr(at, chunk);
    text += fmt::format("{:x}\r\n{}\r\n", data.size(), data);
  }
  return text + "0\r\n\r\n";
}

}  // namespace wideep::tests
