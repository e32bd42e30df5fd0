// SPDX-License-Identifier: Apache-2.0
//
// For tests: a minimal HTTP client on plain sockets.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/sanitized.h"

namespace wideep::server {

class Socket {
 public:
  enum Unconnected { kUnconnected };

  explicit Socket(int port) : Socket(port, kUnconnected) { connect(); }
  Socket(int port, Unconnected) : fd_(::socket(AF_INET, SOCK_STREAM, 0)), port_(port) {
    set_patience(base::is_command_sanitized() ? 180 : 60);
  }
  ~Socket() { ::close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const { return fd_; }
  // How long receive() waits.
  void set_patience(int seconds) {
    const timeval timeout{seconds, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  }
  void connect() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  void send(const std::string& text) {
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // As much of it as the server takes before it closes the connection.
  void send_some(const std::string& text) {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t taken = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (taken < 0) return;
      sent += static_cast<size_t>(taken);
    }
  }
  // Waits for bytes and returns them, 4096 at most; "" when the connection has ended.
  std::string receive(size_t at_most = 4096) {
    char bytes[4096];
    ssize_t count = 0;
    // With a time limit the kernel does not go on by itself after an interruption.
    do {
      count = ::recv(fd_, bytes, std::min(at_most, sizeof(bytes)), 0);
    } while (count < 0 && errno == EINTR);
    return {bytes, static_cast<size_t>(std::max<ssize_t>(count, 0))};
  }
  std::string receive_all() {
    std::string all;
    for (std::string part = receive(); !part.empty(); part = receive()) all += part;
    return all;
  }

 private:
  int fd_, port_;
};

struct Reply {
  int status = 0;
  std::string head;
  std::string body;  // of a chunked reply: without the lengths of the chunks

  nlohmann::json body_json() const { return nlohmann::json::parse(body); }
  // The events of a stream, without the last one, [DONE].
  std::vector<nlohmann::json> events() const {
    std::vector<nlohmann::json> all;
    constexpr std::string_view kData = "data: ";
    size_t at = body.find(kData);
    for (; at != body.npos; at = body.find(kData, at + 1)) {
      const size_t end = body.find("\n\n", at);
      const std::string event = body.substr(at + kData.size(), end - at - kData.size());
      if (event != "[DONE]") all.push_back(nlohmann::json::parse(event));
    }
    EXPECT_TRUE(body.ends_with("data: [DONE]\n\n")) << body;
    return all;
  }
};

inline std::string without_chunk_lengths(const std::string& body) {
  std::string text;
  for (size_t at = 0; at < body.size();) {
    const size_t line = body.find("\r\n", at);
    const size_t length = std::stoul(body.substr(at, line - at), nullptr, 16);
    text += body.substr(line + 2, length);
    at = line + 2 + length + 2;
  }
  return text;
}

inline Reply ask(Socket& socket, const std::string& method, const std::string& path,
                 const std::string& body = "", const std::string& headers = {}) {
  socket.send(method + " " + path + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + headers +
              "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  const std::string all = socket.receive_all();
  const size_t end = all.find("\r\n\r\n");
  Reply reply;
  if (end == all.npos) return reply;
  reply.status = std::stoi(all.substr(9, 3));
  reply.head = all.substr(0, end);
  reply.body = all.substr(end + 4);
  if (reply.head.find("chunked") != all.npos) reply.body = without_chunk_lengths(reply.body);
  return reply;
}

inline Reply ask(int port, const std::string& method, const std::string& path,
                 const std::string& body = "", const std::string& headers = {}) {
  Socket socket(port);
  return ask(socket, method, path, body, headers);
}

}  // namespace wideep::server
