// SPDX-License-Identifier: Apache-2.0
#include "bench/event_stream.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "base/try.h"

namespace wideep::bench {
namespace {

constexpr size_t kMostSaid = 300;  // of a refusal's body, in a message

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

Result<Socket> connect_to(const HttpAddress& address, std::chrono::seconds patience) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error =
          ::getaddrinfo(address.host.c_str(), address.port.c_str(), &wanted, &found)) {
    return failed(fmt::format("{}: {}", address.host, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  int error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Socket socket(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol));
    const timeval timeout{patience.count(), 0};
    const int at_once = 1;
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
    if (::connect(socket.fd(), each->ai_addr, each->ai_addrlen) == 0) return socket;
    error = errno;
  }
  return failed(fmt::format("{}:{}: {}", address.host, address.port, std::strerror(error)));
}

Status send_all(const Socket& socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket.fd(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0)
      return failed(fmt::format("the server takes no request: {}", std::strerror(errno)));
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return {};
}

// The parts of a reply, taken apart as bytes come.
class ReplyReader {
 public:
  explicit ReplyReader(const std::function<void(std::string_view)>& on_event)
      : on_event_(on_event) {}

  Status take(std::string_view bytes) {
    unread_ += bytes;
    if (status_ == 0) WIDEEP_TRY(take_head());
    if (status_ == 0) return {};
    take_body();
    return {};
  }

  // The server has closed the connection, or the last chunk has come.
  bool is_whole() const { return chunked_ ? last_chunk_ : status_ != 0; }
  bool ended() const { return chunked_ && last_chunk_; }
  int status() const { return status_; }
  std::string said() const { return text_.substr(0, kMostSaid); }

 private:
  Status take_head() {
    const size_t end = unread_.find("\r\n\r\n");
    if (end == unread_.npos) return {};
    std::string head = unread_.substr(0, end);
    unread_.erase(0, end + 4);
    std::transform(head.begin(), head.end(), head.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (!head.starts_with("http/1.") || head.size() < 12) return failed("the reply is not HTTP/1");
    status_ = std::atoi(head.c_str() + 9);
    chunked_ = head.find("\r\ntransfer-encoding: chunked") != head.npos;
    return {};
  }

  void take_body() {
    if (!chunked_) return add_text(std::exchange(unread_, ""));
    for (;;) {
      const size_t line = unread_.find("\r\n");
      size_t length = 0;
      if (line == unread_.npos) return;
      std::from_chars(unread_.data(), unread_.data() + line, length, 16);
      if (unread_.size() < line + 2 + length + 2) return;
      last_chunk_ = length == 0;
      add_text(unread_.substr(line + 2, length));
      unread_.erase(0, line + 2 + length + 2);
    }
  }

  void add_text(const std::string& text) {
    text_ += text;
    if (status_ != 200) return;
    constexpr std::string_view kData = "data: ";
    for (size_t end = text_.find("\n\n"); end != text_.npos; end = text_.find("\n\n")) {
      const std::string_view event = std::string_view(text_).substr(0, end);
      if (event.starts_with(kData)) on_event_(event.substr(kData.size()));
      text_.erase(0, end + 2);
    }
  }

  const std::function<void(std::string_view)>& on_event_;
  std::string unread_;
  std::string text_;  // of the body, that is no whole event yet
  int status_ = 0;
  bool chunked_ = false;
  bool last_chunk_ = false;
};

}  // namespace

Result<HttpAddress> parse_address(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const auto complain = [&](const char* why) {
    return invalid_input(fmt::format("{}: expected http://host[:port][/path]{}", url, why));
  };
  if (url.starts_with("https://")) return complain("; https is not built");
  if (!url.starts_with(kScheme)) return complain("");
  const std::string rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string host = rest.substr(0, slash);
  HttpAddress address{.path = rest.substr(slash)};
  while (address.path.ends_with('/')) address.path.pop_back();
  const size_t colon = host.rfind(':');
  if (colon != host.npos && host.find(']', colon) == host.npos) {
    address.port = host.substr(colon + 1);
    host.resize(colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const bool number =
      !address.port.empty() && address.port.find_first_not_of("0123456789") == address.port.npos;
  if (host.empty() || !number) return complain("");
  address.host = std::move(host);
  return address;
}

Status post_for_events(const HttpAddress& address, const std::string& path, const std::string& body,
                       std::chrono::seconds patience,
                       const std::function<void(std::string_view)>& on_event) {
  WIDEEP_TRY_ASSIGN(const Socket socket, connect_to(address, patience));
  const std::string key =
      address.api_key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", address.api_key);
  WIDEEP_TRY(
      send_all(socket, fmt::format("POST {}{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n"
                                   "Content-Type: application/json\r\n{}Content-Length: "
                                   "{}\r\n\r\n{}",
                                   address.path, path, address.host, key, body.size(), body)));
  ReplyReader reader(on_event);
  char buffer[16 * 1024];
  while (!reader.ended()) {
    const ssize_t bytes = ::recv(socket.fd(), buffer, sizeof(buffer), 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) {
      return failed(
          fmt::format("nothing has come for {} s: {}", patience.count(), std::strerror(errno)));
    }
    if (bytes == 0) break;
    WIDEEP_TRY(reader.take({buffer, static_cast<size_t>(bytes)}));
  }
  if (!reader.is_whole()) return failed("the reply breaks off");
  if (reader.status() == 200) return {};
  return failed(fmt::format("status {}: {}", reader.status(), reader.said()));
}

}  // namespace wideep::bench
