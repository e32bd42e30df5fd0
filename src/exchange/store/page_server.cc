// SPDX-License-Identifier: Apache-2.0
//
// One thread polls all sockets. Commands are arrays of texts, as replies of Redis are, so what reads
// replies reads them. A client whose replies lie unsent is not read from.
#include "store/page_server.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <exception>
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
constexpr size_t kMaxBytesBeforeAuth = 4096;
constexpr size_t kMaxUnknownClients = 32;
// Who takes nothing of what is sent for so long is gone.
constexpr std::chrono::seconds kSendTime{30};
// Of one client, before others get their turn.
constexpr int kCommandsInTurn = 64;
constexpr uint64_t kBytesInTurn = uint64_t{4} << 20;
constexpr int kAcceptedInTurn = 16;
constexpr std::chrono::milliseconds kAcceptPause{100};  // where the process is at a limit

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
  bool is_full() const { return unsent() >= PageServer::kMaxUnsentBytes; }
  bool can_go_on() const { return has_more && !is_full() && !is_ending; }
  void error(std::string_view text) { out += fmt::format("-ERR {}\r\n", text); }
  void end(std::string_view text) {
    error(text);
    is_ending = true;
  }

  Socket socket;
  RedisReplyReader reader;
  size_t fed = 0;  // bytes behind the last whole command
  std::string out;
  size_t sent = 0;
  bool has_more = false;   // whole commands may lie in the reader
  bool is_known = false;   // has said AUTH
  bool is_ending = false;  // when all is sent
  bool is_gone = false;
  Clock::time_point came = Clock::now();
  Clock::time_point took = came;  // something that was sent, or had nothing to take
};

}  // namespace

class PageServer::Loop {
 public:
  Loop(PageServerOptions options, std::unique_ptr<HostTier> tier, int listener, int stop)
      : options_(std::move(options)), tier_(std::move(tier)), listener_(listener), stop_(stop) {}

  void run();
  void stop() {
    stops_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.fd(), &one, sizeof(one));
  }

 private:
  std::chrono::milliseconds longest_wait() const;
  void serve(Client& client, int events);
  void accept_some();
  void make_room_for_unknown();
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
  std::atomic<bool> stops_ = false;
  std::list<Client> clients_;  // the oldest first
  Clock::time_point accepts_from_ = {};
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kReadBytes);
};

// ---- sockets ----

// −1 ms: until something comes.
std::chrono::milliseconds PageServer::Loop::longest_wait() const {
  using std::chrono::milliseconds;
  const auto has_deadline = [](const Client& each) {
    return !each.is_known || each.is_ending || each.unsent() > 0;
  };
  if (std::ranges::any_of(clients_, &Client::can_go_on)) return milliseconds(0);
  if (Clock::now() < accepts_from_) return kAcceptPause;
  return std::ranges::any_of(clients_, has_deadline) ? milliseconds(1000) : milliseconds(-1);
}

void PageServer::Loop::run() {
  std::vector<pollfd> polled;
  while (!stops_) {
    const bool accepts = Clock::now() >= accepts_from_;
    polled = {{stop_.fd(), POLLIN, 0},
              {listener_.fd(), static_cast<int16_t>(accepts ? POLLIN : 0), 0}};
    for (const Client& each : clients_) {
      const bool reads = !each.is_full() && !each.is_ending && !each.has_more;
      const int events = (reads ? POLLIN : 0) | (each.unsent() > 0 ? POLLOUT : 0);
      polled.push_back({each.socket.fd(), static_cast<int16_t>(events), 0});
    }
    const auto timeout = static_cast<int>(longest_wait().count());
    if (::poll(polled.data(), polled.size(), timeout) < 0) {
      if (errno != EINTR) {
        log::warn("pages for other servers: poll: {}", std::strerror(errno));
        std::this_thread::sleep_for(kAcceptPause);
      }
      continue;
    }
    size_t at = 2;
    for (Client& each : clients_) serve(each, polled[at++].revents);
    clients_.remove_if([](const Client& each) { return each.is_gone; });
    if (accepts && polled[1].revents != 0) accept_some();
  }
}

// Memory that cannot be had ends the client, not the process.
void PageServer::Loop::serve(Client& client, int events) {
  try {
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(client);
    if ((events & POLLOUT) != 0) send_some(client);
    if (client.can_go_on() && !client.is_gone) do_commands(client);
  } catch (const std::exception& error) {
    log::warn("pages for other servers: {}", error.what());
    client.is_gone = true;
  }
  const auto now = Clock::now();
  if (client.unsent() == 0) client.took = now;
  if (!client.is_known && now - client.came > kAuthTime) client.is_gone = true;
  if (now - client.took > kSendTime) client.is_gone = true;
  if (client.is_ending && client.unsent() == 0) client.is_gone = true;
}

void PageServer::Loop::accept_some() {
  for (int i = 0; i < kAcceptedInTurn; ++i) {
    const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // Without a descriptor the listener would be ready all the time.
      const bool is_at_limit =
          errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
      if (is_at_limit) accepts_from_ = Clock::now() + kAcceptPause;
      return;
    }
    make_room_for_unknown();
    if (clients_.size() >= kMaxConnections) {
      ::close(fd);
      continue;
    }
    transport::set_options_between_nodes(fd);
    transport::set_keep_alive(fd);
    clients_.emplace_back(fd);
  }
}

// Connections of nobody in particular do not take the place of peers'.
void PageServer::Loop::make_room_for_unknown() {
  const auto is_unknown = [](const Client& each) { return !each.is_known; };
  if (std::ranges::count_if(clients_, is_unknown) < static_cast<int>(kMaxUnknownClients)) return;
  clients_.erase(std::ranges::find_if(clients_, is_unknown));
}

void PageServer::Loop::receive(Client& client) {
  const size_t most = client.is_known ? buffer_.size() : kMaxBytesBeforeAuth;
  const ssize_t count = ::recv(client.socket.fd(), buffer_.data(), most, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    client.is_gone = true;
    return;
  }
  client.reader.feed(std::span(buffer_).first(static_cast<size_t>(count)));
  client.fed += static_cast<size_t>(count);
  client.has_more = true;
}

void PageServer::Loop::send_some(Client& client) {
  while (client.unsent() > 0) {
    const ssize_t count =
        ::send(client.socket.fd(), client.out.data() + client.sent, client.unsent(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) client.is_gone = true;
      break;
    }
    client.sent += static_cast<size_t>(count);
    client.took = Clock::now();
  }
  if (client.unsent() == 0) {
    client.out.clear();
    if (client.out.capacity() > kBytesInTurn) client.out = {};
  } else if (client.sent > client.unsent()) {
    client.out.erase(0, client.sent);
  } else {
    return;
  }
  client.sent = 0;
}

// ---- commands ----

void PageServer::Loop::do_commands(Client& client) {
  uint64_t made = 0;  // bytes
  for (int done = 0; done < kCommandsInTurn && made < kBytesInTurn && !stops_; ++done) {
    if (client.is_ending || client.is_full()) break;
    const auto command = client.reader.next();
    if (!command.ok()) {
      client.end(command.status().message());
    } else if (*command) {
      client.fed = client.reader.num_pending_bytes();
      const size_t before = client.out.size();
      do_command(client, **command);
      made += client.out.size() - before;
    } else {
      client.has_more = false;
      const size_t most = client.is_known ? kMaxCommandBytes : kMaxBytesBeforeAuth;
      if (client.fed > most) client.end(fmt::format("a command of more than {} bytes", most));
      break;
    }
  }
  send_some(client);
}

void PageServer::Loop::do_command(Client& client, const RedisReply& command) {
  const std::vector<RedisReply>& words = command.elements;
  const auto is_text = [](const RedisReply& each) { return each.type == RedisReply::Type::kText; };
  if (words.empty() || !std::ranges::all_of(words, is_text)) {
    client.end("expected a command: an array of texts");
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
  const std::string& token = options_.token;
  const bool is_holder = words.size() == 3 && words[2].text.size() == token.size() &&
                         ::CRYPTO_memcmp(words[2].text.data(), token.data(), token.size()) == 0;
  if (!is_holder) {
    client.out += "-WRONGPASS the token is not this server's\r\n";
    client.is_ending = true;
  } else if (words[1].text != options_.record_class) {
    client.end(fmt::format("pages of another class: expected {}, found {}",
                           base::printable(options_.record_class, 200),
                           base::printable(words[1].text, 200)));
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
  if (words.size() - 2 > kMaxHeads) {
    return client.error(
        fmt::format("PAGES.HAS: expected at most {} heads, found {}", kMaxHeads, words.size() - 2));
  }
  std::vector<Head> heads;
  for (size_t i = 2; i < words.size(); ++i) {
    const auto head = parse_redis_value_head(words[i].text);
    if (!head) return client.error(fmt::format("PAGES.HAS: head {}: it is none", i - 2));
    heads.push_back(*head);
  }
  const double seconds = std::min(static_cast<double>(milliseconds) * 1e-3, kMaxLeaseSeconds);
  const uint64_t failures = tier_->counts().failures;
  const std::vector<bool> found = tier_->lease(heads, seconds);
  if (tier_->counts().failures != failures) return client.end("the memory cannot be read now");
  client.out += fmt::format("*{}\r\n", found.size());
  for (const bool each : found) client.out += each ? ":1\r\n" : ":0\r\n";
}

// The value is made where it is sent from.
void PageServer::Loop::get(Client& client, const std::vector<RedisReply>& words) {
  const auto head = words.size() == 2 ? parse_redis_value_head(words[1].text) : std::nullopt;
  if (!head) return client.error("PAGES.GET: expected one head");
  const uint64_t failures = tier_->counts().failures;
  const bool is_there = tier_->find(std::span(&*head, 1)).front();
  if (tier_->counts().failures != failures) return client.end("the memory cannot be read now");
  if (!is_there) {
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
  if (options.token.empty()) return invalid_input("pages for other servers: expected a token");
  WIDEEP_TRY_ASSIGN(std::unique_ptr<HostTier> tier, HostTier::open(memory));
  tier->counts_no_hits();
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
