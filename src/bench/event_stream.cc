// SPDX-License-Identifier: Apache-2.0
#include "bench/event_stream.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/try.h"

namespace wideep::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

constexpr size_t kMostSaid = 300;  // of a refusal's body, in a message

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// The parts of a reply, taken apart as bytes come.
class ReplyReader {
 public:
  explicit ReplyReader(EventStreams::OnEvent on_event) : on_event_(std::move(on_event)) {}

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
    size_t at = 0;
    while (at < unread_.size() && !last_chunk_) {
      const size_t taken = take_part(std::string_view(unread_).substr(at));
      if (taken == 0) break;
      at += taken;
    }
    unread_.erase(0, at);
  }

  // The bytes that it took: a whole chunk's, or, without chunks, all.
  size_t take_part(std::string_view bytes) {
    if (!chunked_) {
      add_text(bytes);
      return bytes.size();
    }
    const size_t line = bytes.find("\r\n");
    size_t length = 0;
    if (line == bytes.npos) return 0;
    std::from_chars(bytes.data(), bytes.data() + line, length, 16);
    if (bytes.size() < line + 2 + length + 2) return 0;
    last_chunk_ = length == 0;
    add_text(bytes.substr(line + 2, length));
    return line + 2 + length + 2;
  }

  void add_text(std::string_view text) {
    text_ += text;
    if (status_ != 200) return;
    constexpr std::string_view kData = "data: ";
    size_t at = 0;
    for (size_t end; (end = text_.find("\n\n", at)) != text_.npos; at = end + 2) {
      const std::string_view event = std::string_view(text_).substr(at, end - at);
      if (event.starts_with(kData)) on_event_(event.substr(kData.size()));
    }
    text_.erase(0, at);
  }

  EventStreams::OnEvent on_event_;
  std::string unread_;
  std::string text_;  // of the body, that is no whole event yet
  int status_ = 0;
  bool chunked_ = false;
  bool last_chunk_ = false;
};

// A request on its way there, or its reply on its way back.
struct Stream {
  Stream(EventStreams::OnEvent on_event, EventStreams::OnEnd tell_end)
      : reply(std::move(on_event)), on_end(std::move(tell_end)) {}

  Descriptor socket{-1};
  const addrinfo* address = nullptr;  // of the server: the one that is tried
  int error = 0;                      // of the one before
  std::string unsent;                 // of the request
  ReplyReader reply;
  EventStreams::OnEnd on_end;
  Clock::time_point heard = Clock::now();  // of it
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

class EventStreams::Loop {
 public:
  Loop(HttpAddress address, Addresses addresses, std::chrono::seconds patience)
      : address_(std::move(address)),
        addresses_(std::move(addresses)),
        patience_(patience),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

  void post(const std::string& path, const std::string& body, OnEvent on_event, OnEnd on_end);
  size_t under_way() const { return streams_.size(); }
  void wait(std::chrono::milliseconds at_most);

 private:
  void go_on(Stream& stream);
  void connect(Stream& stream);
  void send(Stream& stream);
  void receive(Stream& stream);
  bool watch(Stream& stream, uint32_t what, int how);
  void end(Stream& stream, const Status& status);
  void end_silent();

  HttpAddress address_;
  Addresses addresses_;
  std::chrono::seconds patience_;
  Descriptor epoll_;
  std::unordered_map<Stream*, std::unique_ptr<Stream>> streams_;
  Clock::time_point looked_ = Clock::now();  // for those of which nothing comes
};

void EventStreams::Loop::post(const std::string& path, const std::string& body, OnEvent on_event,
                              OnEnd on_end) {
  const std::string key =
      address_.api_key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", address_.api_key);
  auto owned = std::make_unique<Stream>(std::move(on_event), std::move(on_end));
  Stream& stream = *owned;
  stream.address = addresses_.get();
  stream.unsent = fmt::format(
      "POST {}{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n"
      "Content-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}",
      address_.path, path, address_.host, key, body.size(), body);
  streams_[&stream] = std::move(owned);
  connect(stream);
}

void EventStreams::Loop::wait(std::chrono::milliseconds at_most) {
  constexpr std::chrono::milliseconds kLookInterval{1000};
  const auto timeout = std::clamp(at_most, std::chrono::milliseconds(0), kLookInterval);
  std::array<epoll_event, 64> ready;
  const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()),
                                 static_cast<int>(timeout.count()));
  for (int i = 0; i < count; ++i) {
    go_on(*static_cast<Stream*>(ready[static_cast<size_t>(i)].data.ptr));
  }
  if (Clock::now() - looked_ >= kLookInterval) end_silent();
}

// Its socket has something, or takes something, or has failed.
void EventStreams::Loop::go_on(Stream& stream) {
  stream.heard = Clock::now();
  if (stream.unsent.empty()) return receive(stream);
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(stream.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0) return send(stream);
  stream.error = error;
  stream.address = stream.address->ai_next;
  connect(stream);
}

// Begins to, with the first address left that can be tried.
void EventStreams::Loop::connect(Stream& stream) {
  for (; stream.address != nullptr; stream.address = stream.address->ai_next) {
    const addrinfo& to = *stream.address;
    stream.socket = Descriptor(
        ::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol));
    const int fd = stream.socket.get(), at_once = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
    const bool begun = ::connect(fd, to.ai_addr, to.ai_addrlen) == 0 || errno == EINPROGRESS;
    if (begun && watch(stream, EPOLLOUT, EPOLL_CTL_ADD)) return;
    stream.error = errno;
  }
  end(stream,
      failed(fmt::format("{}:{}: {}", address_.host, address_.port, std::strerror(stream.error))));
}

void EventStreams::Loop::send(Stream& stream) {
  const ssize_t sent =
      ::send(stream.socket.get(), stream.unsent.data(), stream.unsent.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EINTR && errno != EAGAIN) {
    return end(stream,
               failed(fmt::format("the server takes no request: {}", std::strerror(errno))));
  }
  stream.unsent.erase(0, static_cast<size_t>(std::max<ssize_t>(sent, 0)));
  if (stream.unsent.empty()) watch(stream, EPOLLIN, EPOLL_CTL_MOD);
}

void EventStreams::Loop::receive(Stream& stream) {
  char buffer[16 * 1024];
  const ssize_t bytes = ::recv(stream.socket.get(), buffer, sizeof(buffer), 0);
  if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (bytes < 0) {
    return end(stream, failed(fmt::format("the reply breaks off: {}", std::strerror(errno))));
  }
  ReplyReader& reply = stream.reply;
  if (bytes > 0) {
    const Status taken = reply.take({buffer, static_cast<size_t>(bytes)});
    if (!taken.ok()) return end(stream, taken);
    if (!reply.ended()) return;
  }
  if (!reply.is_whole()) return end(stream, failed("the reply breaks off"));
  if (reply.status() == 200) return end(stream, {});
  end(stream, failed(fmt::format("status {}: {}", reply.status(), reply.said())));
}

bool EventStreams::Loop::watch(Stream& stream, uint32_t what, int how) {
  epoll_event event = {};
  event.events = what;
  event.data.ptr = &stream;
  return ::epoll_ctl(epoll_.get(), how, stream.socket.get(), &event) == 0;
}

void EventStreams::Loop::end(Stream& stream, const Status& status) {
  const std::unique_ptr<Stream> ended = std::move(streams_.extract(&stream).mapped());
  ended->on_end(status);
}

void EventStreams::Loop::end_silent() {
  looked_ = Clock::now();
  std::vector<Stream*> silent;
  for (const auto& [stream, owned] : streams_) {
    if (looked_ - stream->heard > patience_) silent.push_back(stream);
  }
  for (Stream* stream : silent) {
    end(*stream, failed(fmt::format("nothing has come for {} s", patience_.count())));
  }
}

Result<EventStreams> EventStreams::open(const HttpAddress& address, std::chrono::seconds patience) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error =
          ::getaddrinfo(address.host.c_str(), address.port.c_str(), &wanted, &found)) {
    return failed(fmt::format("{}: {}", address.host, ::gai_strerror(error)));
  }
  return EventStreams(std::make_unique<Loop>(address, Addresses(found, ::freeaddrinfo), patience));
}

EventStreams::EventStreams(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
EventStreams::EventStreams(EventStreams&&) noexcept = default;
EventStreams::~EventStreams() = default;

void EventStreams::post(const std::string& path, const std::string& body, OnEvent on_event,
                        OnEnd on_end) {
  loop_->post(path, body, std::move(on_event), std::move(on_end));
}
size_t EventStreams::under_way() const { return loop_->under_way(); }
void EventStreams::wait(std::chrono::milliseconds at_most) { loop_->wait(at_most); }

}  // namespace wideep::bench
