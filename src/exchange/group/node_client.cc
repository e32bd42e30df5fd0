// SPDX-License-Identifier: Apache-2.0
//
// One loop as the keeper's: signals, ranks' events, messages of node 0, pulses. It decides nothing
// about members. After each message a pulse is sent if it is time, because starting several ranks
// may take longer than node 0 waits for a word. When the connection ends, or node 0 is silent, the
// loop ends, and with it the host, whose destructor kills the ranks: so they are gone before this
// node connects again.
#include "group/node_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "base/try.h"
#include "group/fault_drill.h"
#include "group/node_handshake.h"

namespace wideep::transport {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Kind = NodeMessage::Kind;

constexpr milliseconds kRetryPause{100};
constexpr std::chrono::seconds kLineInterval{10};
// How long after a signal the service may say that it stops too, as all nodes get Ctrl-C.
constexpr milliseconds kStopPatience{1'000};
// Of the service, before this node does other things again.
constexpr int kMaxMessagesAtOnce = 64;
constexpr size_t kMaxShown = 512;  // of the service's words

// Tells now and then what a node waits for.
class WaitingLine {
 public:
  explicit WaitingLine(const std::function<void(const std::string&)>& line) : line_(line) {}
  void say(const std::string& why) {
    if (Clock::now() < next_) return;
    line_("waiting for node 0: " + why);
    next_ = Clock::now() + kLineInterval;
  }

 private:
  const std::function<void(const std::string&)>& line_;
  Clock::time_point next_ = Clock::now() + kLineInterval / 10;
};

// The next message that is no pulse. nullopt: the connection has ended.
std::optional<NodeMessage> wait_for_message(NodeStream& stream,
                                            const std::function<void()>& is_late) {
  for (;;) {
    while (auto message = stream.next()) {
      if (message->kind != Kind::kPulse) return message;
    }
    if (stream.is_broken()) return std::nullopt;
    pollfd ready{stream.socket(), POLLIN, 0};
    if (stream.has_unsent()) ready.events |= POLLOUT;
    if (::poll(&ready, 1, static_cast<int>(kPulseInterval.count())) == 0) is_late();
    stream.write();
  }
}

Status refused(const NodeMessage& message) {
  return invalid_input(base::printable(message.text, kMaxShown));
}

}  // namespace

Result<NodeClient> NodeClient::connect(const std::function<Result<PeerAddress>()>& where,
                                       const ClusterKey& key, int node,
                                       const std::function<void(const std::string&)>& line) {
  WaitingLine waiting(line);
  const auto is_late = [&] { waiting.say("it is busy, perhaps loading"); };
  for (;; std::this_thread::sleep_for(kRetryPause)) {
    const Result<PeerAddress> service = where();
    if (!service.ok()) {
      waiting.say(service.status().message());
      continue;
    }
    const Result<int> socket = connect_as_node(*service, key, node, is_late);
    if (!socket.ok()) {
      waiting.say(socket.status().message());
      continue;
    }
    NodeStream stream(*socket);
    const auto first = wait_for_message(stream, is_late);
    if (first && first->kind == Kind::kGreeted) {
      return NodeClient(*service, key, node, std::move(stream));
    }
    if (first && first->kind == Kind::kRefused) return refused(*first);
    if (first && first->kind == Kind::kBusy) {
      waiting.say(base::printable(first->text, kMaxShown));
    }
  }
}

Result<std::vector<uint64_t>> NodeClient::agree_on(const std::vector<uint64_t>& own) {
  stream_.send({.kind = Kind::kNumbers, .text = {}, .numbers = own});
  while (auto message = wait_for_message(stream_, alive_)) {
    if (message->kind == Kind::kRefused) return refused(*message);
    if (message->kind != Kind::kWelcome || message->numbers.empty()) continue;
    if (message->numbers.size() != own.size() + 1) {
      return invalid_input(
          "node 0 counts other things than this node; start all nodes with the "
          "same settings");
    }
    service_ = message->numbers.front();
    return std::vector<uint64_t>(message->numbers.begin() + 1, message->numbers.end());
  }
  return deadline_exceeded("the connection to node 0 has ended");
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
        place_(options.place),
        can_go_on_(options.can_go_on),
        host_({.group = options.group,
               .place = &options.place,
               .before_epoch = options.before_epoch,
               .after_death = options.after_death,
               .close_inherited =
                   [this] {
                     stream_ = NodeStream();
                     end_all_reach();
                   }},
              rank, memory, signals_) {}
  ~Run() { end_all_reach(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Result<Ended> run() {
    stream_.heard();
    stream_.send({.kind = Kind::kUp});
    while (!ended_ && failure_.ok()) {
      wait();
      handle_signals();
      while (auto event = host_.next_event()) pass_on(*event);
      stream_.write();
      take_messages();
      look_at_reach();
      host_.kill_hanging();
      pulse();
      client_.alive_();
      if (stop_at_ && Clock::now() >= *stop_at_) ended_ = Ended::kStopped;
      const auto silence = Clock::now() - stream_.heard_at();
      const bool is_silent = is_heard_ && silence > kNodePatience;
      const bool goes_on = !ended_ && failure_.ok();
      if (goes_on && (stream_.is_broken() || is_silent)) cut_off(silence);
    }
    WIDEEP_TRY(failure_);
    // The service may die while it ends: the signal still counts, and there is nobody to come back to.
    if (had_stop_signal_ && ended_ == Ended::kCutOff) ended_ = Ended::kStopped;
    if (ended_ != Ended::kCutOff) SignalQueue::ignore_stop_signals();
    return *ended_;
  }

 private:
  // A service that sends without pause must not hold this node.
  void take_messages() {
    has_more_ = has_checked_ = false;
    for (int i = 0; i < kMaxMessagesAtOnce; ++i) {
      const auto message = stream_.next();
      if (!message) return;
      is_heard_ = true;
      take(*message);
      pulse();  // to start several ranks may take longer than node 0 waits for a word
    }
    has_more_ = stream_.has_unread();
  }
  void wait() const {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}, {stream_.socket(), POLLIN, 0}};
    if (stream_.has_unsent()) fds[1].events |= POLLOUT;
    for (const auto& [rank, socket] : reach_) fds.push_back({socket, POLLOUT, 0});
    host_.add_descriptors(&fds);
    auto until = has_more_ ? Clock::now() : next_pulse_;
    if (const auto at = host_.next_deadline()) until = std::min(until, *at);
    const auto patience = std::chrono::ceil<milliseconds>(until - Clock::now());
    ::poll(fds.data(), fds.size(),
           static_cast<int>(std::clamp(patience, milliseconds(0), kPulseInterval).count()));
  }
  void handle_signals() {
    while (const int signal = signals_.next()) {
      if (signal == SIGCHLD) {
        host_.reap();
      } else if (signal == SIGHUP) {
        log::warn("node {}: SIGHUP has no effect here: node 0 drains, by SIGHUP or POST /drain",
                  client_.node_);
      } else if (!std::exchange(had_stop_signal_, true)) {
        client_.stops_(signal);
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
                  .value = kind == Kind::kLeft ? event.cut_from : event.how,
                  .text = std::move(text)});
  }
  // The pipes of a rank are a connection to the service of their own.
  Result<std::pair<int, int>> open_pipes(const NodeMessage& message) {
    WIDEEP_TRY_ASSIGN(const int socket,
                      connect_for_pipes(client_.service_address_, client_.key_,
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
  bool is_mine(int rank) const {
    return rank >= 0 && rank < place_.nodes.num_ranks() &&
           place_.nodes.node_of(rank) == place_.node;
  }
  void take(const NodeMessage& message) {
    switch (message.kind) {
      case Kind::kStart:
        if (is_mine(message.rank) && can_go_on()) take_pipes(message);
        return;
      case Kind::kPipes:
        if (is_mine(message.rank)) take_pipes(message);
        return;
      case Kind::kKill:
        if (is_mine(message.rank)) host_.kill(message.rank, message.value != 0);
        return;
      case Kind::kEndRank:
        if (is_mine(message.rank)) host_.ask_to_end(message.rank);
        return;
      case Kind::kClosing:
        return host_.announce_closing();
      case Kind::kBroken:
        return host_.announce_loss(message.epoch, failed(base::printable(message.text, kMaxShown)));
      case Kind::kEpoch:
        if (can_go_on()) take_epoch(message);
        return;
      case Kind::kReach:
        return begin_to_reach(message);
      case Kind::kRefused:
        failure_ = refused(message);
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
  // Whether the network leads to a rank again. Its kernel answers; the rank sees a connection that
  // says nothing and ends.
  void begin_to_reach(const NodeMessage& message) {
    if (message.rank < 0 || message.rank >= place_.nodes.num_ranks()) return;
    end_reach(message.rank);
    const auto address = parse_address(message.text);
    const auto socket = address.ok() ? begin_to_connect(*address) : Result<int>(address.status());
    if (socket.ok()) reach_[message.rank] = *socket;
  }
  void look_at_reach() {
    for (const auto& [rank, socket] : std::map<int, int>(reach_)) {
      pollfd ready{socket, POLLOUT, 0};
      if (::poll(&ready, 1, 0) <= 0) continue;
      int error = 0;
      socklen_t length = sizeof(error);
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0) stream_.send({.kind = Kind::kReached, .rank = rank});
      end_reach(rank);
    }
  }
  void end_reach(int rank) {
    if (const auto socket = reach_.extract(rank); !socket.empty()) ::close(socket.mapped());
  }
  void end_all_reach() {
    for (const auto& [rank, socket] : std::exchange(reach_, {})) ::close(socket);
  }
  // Looks at files, so once for all messages that came together.
  bool can_go_on() {
    if (!std::exchange(has_checked_, true)) failure_ = can_go_on_ ? can_go_on_() : Status();
    return failure_.ok();
  }
  void take_epoch(const NodeMessage& message) {
    const auto num_ranks = static_cast<size_t>(place_.nodes.num_ranks());
    const auto members = message.members(num_ranks);
    if (members) return host_.begin_epoch(*members, message.addresses(num_ranks));
    log::warn("node {}: node 0 names members that there are not; its ranks end", client_.node_);
    ended_ = Ended::kCutOff;
  }
  void take_pipes(const NodeMessage& message) {
    // One that was to have ended: its death will be told.
    if (message.kind == Kind::kStart && host_.is_running(message.rank)) {
      return host_.kill(message.rank);
    }
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
  const NodePlace& place_;
  const std::function<Status()>& can_go_on_;
  SignalQueue signals_{SignalQueue::HangUp::kTaken};
  RankHost host_;             // its destructor ends the ranks
  std::map<int, int> reach_;  // sockets on their way to ranks
  Clock::time_point next_pulse_ = Clock::now();
  bool has_more_ = false;     // messages that have come and were not taken yet
  bool has_checked_ = false;  // can_go_on_, for the present messages
  bool is_heard_ = false;     // node 0 may still load its weights
  bool had_stop_signal_ = false, service_stops_ = false;
  std::optional<Clock::time_point> stop_at_;
  std::optional<Ended> ended_;
  Status failure_;
};

Result<NodeClient::Ended> NodeClient::run(const Options& options,
                                          const std::function<Status(Seat&)>& rank,
                                          const std::shared_ptr<SharedMemory>& memory) {
  WIDEEP_TRY(FaultDrill::prepare());
  WIDEEP_TRY(check_max_ranks(options.group.num_ranks));
  memory->control().broken_epoch.store(0);
  memory->control().stop_requested.store(0);  // of a service that has ended
  return Run(*this, options, rank, memory).run();
}

}  // namespace wideep::transport
