// SPDX-License-Identifier: Apache-2.0
//
// One thread polls all sockets. Commands are arrays of texts, as replies of Redis are, so what reads
// replies reads them. A client whose replies lie unsent is not read from.
#include "store/page_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "base/content_hash.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/try.h"
#include "store/host_tier.h"
#include "store/redis_record.h"
#include "store/redis_reply.h"

namespace wideep::store {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = size_t{256} << 10;
// Who has not said AUTH by then is nobody we know.
constexpr std::chrono::seconds kAuthTime{5};

// Takes as long wherever they differ.
bool is_equal_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^
                  static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return difference == 0;
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

struct Client {
  explicit Client(int fd) : socket(fd) {}

  size_t unsent() const { return out.size() - sent; }
  void error(std::string_view text) { out += fmt::format("-ERR {}\r\n", text); }

  Socket socket;
  RedisReplyReader reader;
  std::string out;
  size_t sent = 0;
  bool is_known = false;   // has said AUTH
  bool is_ending = false;  // when all is sent
  bool is_gone = false;
  Clock::time_point came = Clock::now();
};

}  // namespace

class PageServer::Loop {
 public:
  Loop(PageServerOptions options, std::unique_ptr<HostTier> tier, int listener, int stop)
      : options_(std::move(options)), tier_(std::move(tier)), listener_(listener), stop_(stop) {}

  void run();
  void stop() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.fd(), &one, sizeof(one));
  }

 private:
  void accept_all();
  void receive(Client& client);
  void do_commands(Client& client);
  void do_command(Client& client, const RedisReply& command);
  void enter(Client& client, const std::vector<RedisReply>& words);
  void has(Client& client, const std::vector<RedisReply>& words);
  void get(Client& client, const std::vector<RedisReply>& words);
  void state(Client& client, const std::vector<RedisReply>& words);
  static void send_some(Client& client);

  PageServerOptions options_;
  std::unique_ptr<HostTier> tier_;
  Socket listener_, stop_;
  std::list<Client> clients_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kReadBytes);
};

// ---- sockets ----

void PageServer::Loop::run() {
  std::vector<pollfd> polled;
  for (;;) {
    polled = {{stop_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
    const auto now = Clock::now();
    bool awaits_auth = false;
    for (Client& each : clients_) {
      const bool is_full = each.unsent() >= kMaxUnsentBytes || each.is_ending;
      const int events = (is_full ? 0 : POLLIN) | (each.unsent() > 0 ? POLLOUT : 0);
      polled.push_back({each.socket.fd(), static_cast<int16_t>(events), 0});
      awaits_auth = awaits_auth || !each.is_known;
    }
    const int timeout = awaits_auth ? 1000 : -1;  // milliseconds
    if (::poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR) {
      log::warn("pages for other servers: poll: {}", std::strerror(errno));
      return;
    }
    if (polled[0].revents != 0) return;
    size_t at = 2;
    for (Client& each : clients_) {
      const int events = polled[at++].revents;
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(each);
      if ((events & POLLOUT) != 0) {
        send_some(each);
        do_commands(each);  // that have come, while there was no room for what they ask for
      }
      if (!each.is_known && now - each.came > kAuthTime) each.is_gone = true;
      if (each.is_ending && each.unsent() == 0) each.is_gone = true;
    }
    clients_.remove_if([](const Client& each) { return each.is_gone; });
    if (polled[1].revents != 0) accept_all();
  }
}

void PageServer::Loop::accept_all() {
  for (;;) {
    const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (clients_.size() >= kMaxConnections) {
      ::close(fd);
      continue;
    }
    transport::set_options_between_nodes(fd);
    transport::set_keep_alive(fd);
    clients_.emplace_back(fd);
  }
}

void PageServer::Loop::receive(Client& client) {
  const ssize_t count = ::recv(client.socket.fd(), buffer_.data(), buffer_.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    client.is_gone = true;
    return;
  }
  client.reader.feed(std::span(buffer_).first(static_cast<size_t>(count)));
  do_commands(client);
}

void PageServer::Loop::send_some(Client& client) {
  while (client.unsent() > 0) {
    const ssize_t count =
        ::send(client.socket.fd(), client.out.data() + client.sent, client.unsent(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      client.is_gone = errno != EAGAIN && errno != EWOULDBLOCK;
      return;
    }
    client.sent += static_cast<size_t>(count);
  }
  client.out.clear();
  client.sent = 0;
}

// ---- commands ----

void PageServer::Loop::do_commands(Client& client) {
  while (!client.is_ending && !client.is_gone && client.unsent() < kMaxUnsentBytes) {
    const auto command = client.reader.next();
    if (!command.ok()) {
      client.error(command.status().message());
      client.is_ending = true;
    } else if (*command) {
      do_command(client, **command);
    } else {
      if (client.reader.num_pending_bytes() > kMaxCommandBytes) {
        client.error(fmt::format("a command of more than {} bytes", kMaxCommandBytes));
        client.is_ending = true;
      }
      break;
    }
    send_some(client);
  }
  send_some(client);
}

void PageServer::Loop::do_command(Client& client, const RedisReply& command) {
  const std::vector<RedisReply>& words = command.elements;
  const auto is_text = [](const RedisReply& each) { return each.type == RedisReply::Type::kText; };
  if (words.empty() || !std::ranges::all_of(words, is_text)) {
    client.error("expected a command: an array of texts");
    client.is_ending = true;
  } else if (words[0].text == "AUTH") {
    enter(client, words);
  } else if (!client.is_known) {
    client.out += "-NOAUTH expected AUTH\r\n";
    client.is_ending = true;
  } else if (words[0].text == "PAGES.HAS") {
    has(client, words);
  } else if (words[0].text == "PAGES.GET") {
    get(client, words);
  } else if (words[0].text == "PAGES.STATE") {
    state(client, words);
  } else {
    client.error(fmt::format("'{}' is no command here: expected AUTH or PAGES.HAS, GET, STATE",
                             base::printable(words[0].text, 60)));
  }
}

void PageServer::Loop::enter(Client& client, const std::vector<RedisReply>& words) {
  client.is_known = false;
  if (words.size() != 3 || !is_equal_secret(words[2].text, options_.token)) {
    client.out += "-WRONGPASS the token is not this server's\r\n";
    client.is_ending = true;
  } else if (words[1].text != options_.record_class) {
    client.error(fmt::format("pages of another class: expected {}, found {}",
                             base::printable(options_.record_class, 200),
                             base::printable(words[1].text, 200)));
    client.is_ending = true;
  } else {
    client.is_known = true;
    client.out += "+OK\r\n";
  }
}

void PageServer::Loop::has(Client& client, const std::vector<RedisReply>& words) {
  int64_t milliseconds = -1;
  if (words.size() > 1) {
    const std::string& text = words[1].text;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), milliseconds);
    if (error != std::errc() || end != text.data() + text.size()) milliseconds = -1;
  }
  if (milliseconds < 0) return client.error("PAGES.HAS: expected a number of milliseconds");
  std::vector<Head> heads;
  for (size_t i = 2; i < words.size(); ++i) {
    const auto head = parse_redis_value_head(words[i].text);
    if (!head) return client.error(fmt::format("PAGES.HAS: head {}: it is none", i - 2));
    heads.push_back(*head);
  }
  const double seconds = std::min(static_cast<double>(milliseconds) * 1e-3, kMaxLeaseSeconds);
  const std::vector<bool> found = tier_->lease(heads, seconds);
  client.out += fmt::format("*{}\r\n", found.size());
  for (const bool each : found) client.out += each ? ":1\r\n" : ":0\r\n";
}

// The value is made where it is sent from.
void PageServer::Loop::get(Client& client, const std::vector<RedisReply>& words) {
  const auto head = words.size() == 2 ? parse_redis_value_head(words[1].text) : std::nullopt;
  if (!head) return client.error("PAGES.GET: expected one head");
  if (!tier_->find(std::span(&*head, 1)).front()) {
    client.out += "$-1\r\n";
    return;
  }
  const size_t before = client.out.size();
  client.out += fmt::format("${}\r\n", kRedisHeadBytes + head->part.bytes());
  const size_t head_at = client.out.size();
  client.out.resize(head_at + kRedisHeadBytes + head->part.bytes());
  auto* payload = reinterpret_cast<std::byte*>(client.out.data() + head_at + kRedisHeadBytes);
  const FetchOrder order = {.head = *head, .into = {payload, head->part.bytes()}};
  bool is_whole = false;
  const Status status = tier_->fetch(std::span(&order, 1), [&](size_t, FetchResult result) {
    is_whole = result == FetchResult::kWhole;
    return true;
  });
  if (!status.ok() || !is_whole) {
    client.out.resize(before);
    client.out += "$-1\r\n";
    return;
  }
  const auto value_head = redis_value_head(*head, base::content_hash(payload, order.into.size()));
  std::memcpy(client.out.data() + head_at, value_head.data(), value_head.size());
  client.out += "\r\n";
}

void PageServer::Loop::state(Client& client, const std::vector<RedisReply>& words) {
  client.out += fmt::format("*{}\r\n", words.size() - 1);
  for (size_t i = 1; i < words.size(); ++i) {
    const RequestState found =
        options_.state_of ? options_.state_of(words[i].text) : RequestState::kUnknown;
    client.out += fmt::format(":{}\r\n", static_cast<int>(found));
  }
}

// ---- the server ----

Result<std::unique_ptr<PageServer>> PageServer::start(PageServerOptions options,
                                                      const base::SharedBytes& memory) {
  WIDEEP_TRY_ASSIGN(std::unique_ptr<HostTier> tier, HostTier::open(memory));
  WIDEEP_TRY_ASSIGN(const int listener, transport::listen_on(options.address));
  const transport::PeerAddress address = transport::local_address(listener);
  const int stop = ::eventfd(0, EFD_CLOEXEC);
  if (stop < 0) {
    ::close(listener);
    return failed(fmt::format("pages for other servers: eventfd: {}", std::strerror(errno)));
  }
  auto loop = std::make_unique<Loop>(std::move(options), std::move(tier), listener, stop);
  return std::unique_ptr<PageServer>(new PageServer(std::move(loop), address));
}

PageServer::PageServer(std::unique_ptr<Loop> loop, const transport::PeerAddress& address)
    : address_(address), loop_(std::move(loop)), thread_([this] {
        ::pthread_setname_np(::pthread_self(), "pages");
        loop_->run();
      }) {}

PageServer::~PageServer() {
  loop_->stop();
  thread_.join();
}

}  // namespace wideep::store
