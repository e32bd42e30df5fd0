// SPDX-License-Identifier: Apache-2.0
//
// For tests of clients: a listener that never accepts, and a server that answers one request with
// bytes that a test chooses, also wrong ones.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace wideep::client {

class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { ::close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int fd() const { return fd_; }
  std::string port() const { return std::to_string(port_); }

 private:
  int fd_;
  int port_ = 0;
};

// Answers one request with the given bytes, a fixed number of bytes at a time.
class OneReply {
 public:
  OneReply(std::string reply, size_t step) {
    thread_ = std::thread([this, reply = std::move(reply), step] {
      const int client = ::accept(listener_.fd(), nullptr, nullptr);
      char request[4096];
      const ssize_t length = ::recv(client, request, sizeof(request), 0);
      EXPECT_GT(length, 0);
      request_.assign(request, static_cast<size_t>(std::max<ssize_t>(length, 0)));
      for (size_t at = 0; at < reply.size(); at += step) {
        const std::string part = reply.substr(at, step);
        if (::send(client, part.data(), part.size(), MSG_NOSIGNAL) < 0) break;  // it has gone
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      ::close(client);
    });
  }
  ~OneReply() { end(); }
  OneReply(const OneReply&) = delete;
  OneReply& operator=(const OneReply&) = delete;
  std::string port() const { return listener_.port(); }
  // The beginning of the request. Waits until it is answered.
  const std::string& request() {
    end();
    return request_;
  }

 private:
  void end() {
    if (thread_.joinable()) thread_.join();
  }

  Listener listener_;
  std::string request_;
  std::thread thread_;
};

}  // namespace wideep::client
