// SPDX-License-Identifier: Apache-2.0
#include "transport/node_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/try.h"

namespace wideep::transport {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Kind = NodeMessage::Kind;

constexpr milliseconds kConnectTimeout{1'000};
constexpr milliseconds kRetryPause{100};
constexpr std::chrono::seconds kLineInterval{10};
// How long after a signal the service may say that it stops too, as all nodes get Ctrl-C.
constexpr milliseconds kStopPatience{1'000};

// A connection that begins with this greeting.
Result<int> greet(const PeerAddress& service, const Greeting& greeting) {
  WIDEEP_TRY_ASSIGN(const int socket, connect_to(service, kConnectTimeout));
  if (::send(socket, &greeting, sizeof(greeting), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(sizeof(greeting))) {
    return socket;
  }
  ::close(socket);
  return failed("the connection has ended");
}

}  // namespace

NodeClient NodeClient::connect(const PeerAddress& service, int node,
                               const std::function<void(const std::string&)>& line) {
  auto next_line = Clock::now() + kLineInterval / 10;
  for (;;) {
    const Result<int> socket = greet(service, {.kind = Greeting::Kind::kNode, .node = node});
    if (socket.ok()) return {service, node, NodeStream(*socket)};
    if (Clock::now() >= next_line) {
      line(fmt::format("waiting for node 0: {}", socket.status().message()));
      next_line = Clock::now() + kLineInterval;
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

Result<std::vector<uint64_t>> NodeClient::agree_on(const std::vector<uint64_t>& own) {
  stream_.send({.kind = Kind::kNumbers, .numbers = own});
  for (;;) {
    while (auto message = stream_.next()) {
      if (message->kind == Kind::kRefused) return invalid_input(message->text);
      if (message->kind != Kind::kWelcome || message->numbers.empty()) continue;
      service_ = message->numbers.front();
      return std::vector<uint64_t>(message->numbers.begin() + 1, message->numbers.end());
    }
    if (stream_.is_broken()) return deadline_exceeded("the connection to node 0 has ended");
    pollfd ready{stream_.socket(), POLLIN, 0};
    if (stream_.has_unsent()) ready.events |= POLLOUT;
    ::poll(&ready, 1, static_cast<int>(kPulseInterval.count()));
    stream_.write();
  }
}

void NodeClient::present(const Settings& settings) {
  stream_.send({.kind = Kind::kSettings, .text = to_text(settings)});
}

PeerAddress NodeClient::here() const {
  PeerAddress address = local_address(stream_.socket());
  address.port = 0;
  return address;
}

// ---- with ranks ----

class NodeClient::Run {
 public:
  Run(NodeClient& client, const Options& options, const std::function<Status(Seat&)>& rank,
      const std::shared_ptr<SharedMemory>& memory)
      : client_(client),
        stream_(client.stream_),
        num_ranks_(static_cast<size_t>(options.group.num_ranks)),
        can_go_on_(options.can_go_on),
        host_({.group = options.group,
               .place = &options.place,
               .before_epoch = options.before_epoch,
               .after_death = options.after_death,
               .close_inherited = [this] { stream_ = NodeStream(); }},
              rank, memory, signals_) {}

  Result<Ended> run() {
    stream_.heard();
    stream_.send({.kind = Kind::kUp});
    while (!ended_ && failure_.ok()) {
      wait();
      handle_signals();
      while (auto event = host_.next_event()) pass_on(*event);
      stream_.write();
      while (auto message = stream_.next()) {
        is_heard_ = true;
        take(*message);
      }
      host_.kill_hanging();
      pulse();
      if (stop_at_ && Clock::now() >= *stop_at_) ended_ = Ended::kStopped;
      const auto silence = Clock::now() - stream_.heard_at();
      const bool is_silent = is_heard_ && silence > kNodePatience;
      const bool goes_on = !ended_ && failure_.ok();
      if (goes_on && (stream_.is_broken() || is_silent)) cut_off(silence);
    }
    WIDEEP_TRY(failure_);
    return *ended_;
  }

 private:
  void wait() const {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}, {stream_.socket(), POLLIN, 0}};
    if (stream_.has_unsent()) fds[1].events |= POLLOUT;
    host_.add_descriptors(&fds);
    auto until = next_pulse_;
    if (const auto at = host_.next_deadline()) until = std::min(until, *at);
    const auto patience = std::chrono::ceil<milliseconds>(until - Clock::now());
    ::poll(fds.data(), fds.size(),
           static_cast<int>(std::clamp(patience, milliseconds(0), kPulseInterval).count()));
  }
  void handle_signals() {
    while (const int signal = signals_.next()) {
      if (signal == SIGCHLD) {
        host_.reap();
      } else if (!std::exchange(had_stop_signal_, true)) {
        if (!service_stops_) stop_at_ = Clock::now() + kStopPatience;
      } else {
        ended_ = Ended::kStopped;
      }
    }
  }
  void pulse() {
    if (Clock::now() < next_pulse_) return;
    next_pulse_ = Clock::now() + kPulseInterval;
    stream_.send({.kind = Kind::kPulse});
  }
  void cut_off(Clock::duration silence) {
    ended_ = Ended::kCutOff;
    log::warn("node {}: {}; its ranks end", client_.node_,
              stream_.is_broken()
                  ? std::string("the connection to node 0 has ended")
                  : fmt::format("node 0 was silent for {} ms",
                                std::chrono::duration_cast<milliseconds>(silence).count()));
  }

  void pass_on(const RankHost::Event& event) {
    using From = RankHost::Event::Kind;
    const Kind kind = event.kind == From::kReady  ? Kind::kReady
                      : event.kind == From::kLeft ? Kind::kLeft
                                                  : Kind::kDied;
    std::string text = event.text;
    if (kind == Kind::kDied) text += fmt::format(" on node {}", client_.node_);
    stream_.send({.kind = kind,
                  .epoch = event.epoch,
                  .rank = event.rank,
                  .value = event.how,
                  .text = std::move(text)});
  }
  // The pipes of a rank are a connection to the service of their own.
  Result<std::pair<int, int>> open_pipes(const NodeMessage& message) {
    WIDEEP_TRY_ASSIGN(const int socket, greet(client_.service_address_,
                                              {.service = client_.service_,
                                               .kind = Greeting::Kind::kPipes,
                                               .node = client_.node_,
                                               .rank = message.rank,
                                               .serial = static_cast<uint32_t>(message.value)}));
    const int other = ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
    if (other >= 0) return std::pair(socket, other);
    ::close(socket);
    return failed("no descriptor is left");
  }
  void take(const NodeMessage& message) {
    const bool names_rank = message.rank >= 0 && static_cast<size_t>(message.rank) < num_ranks_;
    if (!names_rank) return;
    switch (message.kind) {
      case Kind::kStart:
        return can_go_on() ? take_pipes(message) : void();
      case Kind::kPipes:
        return take_pipes(message);
      case Kind::kKill:
        return host_.kill(message.rank);
      case Kind::kEndRank:
        return host_.ask_to_end(message.rank);
      case Kind::kClosing:
        return host_.announce_closing();
      case Kind::kBroken:
        return host_.announce_loss(message.epoch, failed(message.text));
      case Kind::kEpoch:
        return can_go_on() ? host_.begin_epoch(message.members(), message.addresses(num_ranks_))
                           : void();
      case Kind::kRefused:
        failure_ = invalid_input(message.text);
        return;
      case Kind::kStopping:
        service_stops_ = true;
        stop_at_.reset();
        return;
      case Kind::kFinished:
        ended_ = Ended::kFinished;
        return;
      default:
        return;
    }
  }
  bool can_go_on() {
    failure_ = can_go_on_ ? can_go_on_() : Status();
    return failure_.ok();
  }
  void take_pipes(const NodeMessage& message) {
    const auto pipes = open_pipes(message);
    Status status = pipes.status();
    if (status.ok() && message.kind == Kind::kStart) {
      status = host_.start(message.rank, pipes->first, pipes->second);
    } else if (status.ok()) {
      host_.set_new_pipes(message.rank, pipes->first, pipes->second);
    }
    if (status.ok()) return;
    if (host_.is_running(message.rank)) return host_.kill(message.rank);
    stream_.send({.kind = Kind::kDied,
                  .rank = message.rank,
                  .value = Note::kOwnFault,
                  .text = fmt::format("rank {} on node {}: {}", message.rank, client_.node_,
                                      status.message())});
  }

  NodeClient& client_;
  NodeStream& stream_;
  size_t num_ranks_;
  const std::function<Status()>& can_go_on_;
  SignalQueue signals_;
  RankHost host_;  // its destructor ends the ranks
  Clock::time_point next_pulse_ = Clock::now();
  bool is_heard_ = false;  // node 0 may still load its weights
  bool had_stop_signal_ = false, service_stops_ = false;
  std::optional<Clock::time_point> stop_at_;
  std::optional<Ended> ended_;
  Status failure_;
};

Result<NodeClient::Ended> NodeClient::run(const Options& options,
                                          const std::function<Status(Seat&)>& rank,
                                          const std::shared_ptr<SharedMemory>& memory) {
  WIDEEP_TRY(FaultDrill::prepare());
  memory->control().broken_epoch.store(0);
  memory->control().stop_requested.store(0);  // of a service that has ended
  return Run(*this, options, rank, memory).run();
}

}  // namespace wideep::transport
