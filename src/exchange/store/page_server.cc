// SPDX-License-Identifier: Apache-2.0
//
// One thread polls all sockets. A client whose replies lie unsent is not read from.
#include "store/page_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "store/host_tier.h"
#include "store/page_commands.h"
#include "store/page_memory.h"

namespace wideep::store {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = size_t{256} << 10;
// Who has not said AUTH by then is nobody we know.
constexpr std::chrono::seconds kAuthTime{5};
constexpr size_t kMaxUnknownClients = 32;
// Who takes nothing of what is sent for so long is gone.
constexpr std::chrono::seconds kSendTime{30};
// Who sends one large command for so long keeps others from theirs.
constexpr std::chrono::seconds kLargeTime{10};
constexpr size_t kMaxKeptBytes = size_t{4} << 20;  // of what was sent
constexpr int kAcceptedInTurn = 16;
constexpr std::chrono::milliseconds kAcceptPause{100};  // where the process is at a limit
constexpr std::chrono::minutes kBetweenFullLines{1};

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

struct Client : PageCommands::Client {
  explicit Client(int fd) : socket(fd) {}

  Socket socket;
  bool is_gone = false;
  Clock::time_point came = Clock::now();
  Clock::time_point took = came;  // something that was sent, or had nothing to take
};

}  // namespace

class PageServer::Loop {
 public:
  struct Sockets {
    int listener, for_memory, stop;
  };
  Loop(PageCommands commands, const base::SharedBytes& memory, const Sockets& sockets)
      : commands_(std::move(commands)),
        memory_(memory),
        listener_(sockets.listener),
        for_memory_(sockets.for_memory),
        stop_(sockets.stop) {}

  void run();
  void stop() {
    stops_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.fd(), &one, sizeof(one));
  }

 private:
  std::chrono::milliseconds longest_wait() const;
  void serve(Client& client, int events);
  void accept_some(int listener);
  void make_room_for_unknown();
  bool is_full();
  void choose_large();
  bool is_read_from(const Client& client) const;
  void receive(Client& client);
  static void send_some(Client& client);

  PageCommands commands_;
  const base::SharedBytes& memory_;
  Socket listener_, for_memory_, stop_;
  std::atomic<bool> stops_ = false;
  std::list<Client> clients_;      // the oldest first
  const Client* large_ = nullptr;  // the one whose large command is read
  Clock::time_point large_since_ = {};
  Clock::time_point accepts_from_ = {};
  Clock::time_point next_full_line_ = {};
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
  const bool has_any = large_ != nullptr || std::ranges::any_of(clients_, has_deadline);
  return has_any ? milliseconds(1000) : milliseconds(-1);
}

// Of those whose commands are large, one at a time.
void PageServer::Loop::choose_large() {
  const auto is_large = [](const Client& each) { return each.fed > kMaxCommandBytes; };
  if (large_ != nullptr && is_large(*large_)) return;
  const auto found = std::ranges::find_if(clients_, is_large);
  large_ = found == clients_.end() ? nullptr : &*found;
  large_since_ = Clock::now();
}

bool PageServer::Loop::is_read_from(const Client& client) const {
  if (client.is_full() || client.is_ending || client.has_more) return false;
  return client.fed <= kMaxCommandBytes || &client == large_;
}

void PageServer::Loop::run() {
  std::vector<pollfd> polled;
  while (!stops_) {
    const bool accepts = Clock::now() >= accepts_from_;
    const auto accepting = static_cast<int16_t>(accepts ? POLLIN : 0);
    polled = {{stop_.fd(), POLLIN, 0},
              {listener_.fd(), accepting, 0},
              {for_memory_.fd(), accepting, 0}};  // one that is −1 is passed over
    choose_large();
    for (const Client& each : clients_) {
      const int events = (is_read_from(each) ? POLLIN : 0) | (each.unsent() > 0 ? POLLOUT : 0);
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
    size_t at = 3;
    for (Client& each : clients_) serve(each, polled[at++].revents);
    if (large_ != nullptr && large_->is_gone) large_ = nullptr;
    clients_.remove_if([](const Client& each) { return each.is_gone; });
    if (accepts && polled[1].revents != 0) accept_some(listener_.fd());
    if (accepts && polled[2].revents != 0) accept_some(for_memory_.fd());
  }
}

// Memory that cannot be had ends the client, not the process.
void PageServer::Loop::serve(Client& client, int events) {
  try {
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(client);
    if ((events & POLLOUT) != 0) send_some(client);
    if (client.can_go_on() && !client.is_gone) {
      commands_.do_some(client);
      if (client.takes_memory) send_memory(client.socket.fd(), memory_);
      send_some(client);
    }
  } catch (const std::exception& error) {
    log::warn("pages for other servers: {}", error.what());
    client.is_gone = true;
  }
  const auto now = Clock::now();
  if (client.unsent() == 0) client.took = now;
  if (!client.is_known && now - client.came > kAuthTime) client.is_gone = true;
  if (now - client.took > kSendTime) client.is_gone = true;
  if (&client == large_ && now - large_since_ > kLargeTime) client.is_gone = true;
  if (client.is_ending && client.unsent() == 0) client.is_gone = true;
}

void PageServer::Loop::accept_some(int listener) {
  const bool is_local = listener == for_memory_.fd();
  for (int i = 0; i < kAcceptedInTurn; ++i) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // Without a descriptor the listener would be ready all the time.
      const bool is_at_limit =
          errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
      if (is_at_limit) accepts_from_ = Clock::now() + kAcceptPause;
      return;
    }
    make_room_for_unknown();
    if (is_full() || (is_local && !is_of_this_user(fd))) {
      ::close(fd);
      continue;
    }
    if (!is_local) {
      transport::set_options_between_nodes(fd);
      transport::set_keep_alive(fd);
    }
    clients_.emplace_back(fd).is_local = is_local;
  }
}

// Whether nobody more is let in, and says so.
bool PageServer::Loop::is_full() {
  if (clients_.size() < kMaxConnections) return false;
  const auto now = Clock::now();
  if (now < next_full_line_) return true;
  next_full_line_ = now + kBetweenFullLines;
  log::warn(
      "pages for other servers: {} connections are open, the most that may be: others are "
      "closed, and who asks computes its prompts itself",
      clients_.size());
  return true;
}

// Connections of nobody in particular do not take the place of peers'.
void PageServer::Loop::make_room_for_unknown() {
  const auto is_unknown = [](const Client& each) { return !each.is_known; };
  if (std::ranges::count_if(clients_, is_unknown) < static_cast<int>(kMaxUnknownClients)) return;
  clients_.erase(std::ranges::find_if(clients_, is_unknown));
}

void PageServer::Loop::receive(Client& client) {
  const size_t most = client.is_known ? buffer_.size() : PageCommands::kMaxBytesBeforeAuth;
  const ssize_t count = ::recv(client.socket.fd(), buffer_.data(), most, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    client.is_gone = true;
    return;
  }
  PageCommands::feed(client, std::span(buffer_).first(static_cast<size_t>(count)));
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
    if (client.out.capacity() > kMaxKeptBytes) client.out = {};
  } else if (client.sent > client.unsent()) {
    client.out.erase(0, client.sent);
  } else {
    return;
  }
  client.sent = 0;
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
  std::string name;
  const int for_memory = listen_for_memory(name);
  PageCommands commands(std::move(options), std::move(tier), for_memory < 0 ? std::string() : name);
  auto loop = std::make_unique<Loop>(std::move(commands), memory,
                                     Loop::Sockets{listener, for_memory, stop});
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
