// SPDX-License-Identifier: Apache-2.0
//
// The keeper's loop: events (signals, notes, messages of nodes) change the Membership; then step()
// does what follows from it.
//
//   events ─▶ Membership ─▶ end surplus ─▶ start missing ─▶ change epoch ─▶ enforce deadlines
//
// What is to be done is read from the state and never kept as a plan: whatever happens meanwhile,
// to a rank, a node or the front, the next step begins with what there is. Nothing here waits for
// anybody. What others should do has a deadline in next_deadline(), after which they are killed or
// dropped.
#include "group/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/printable.h"
#include "base/try.h"
#include "group/client_keeper.h"
#include "group/fault_drill.h"
#include "group/node_cuts.h"
#include "group/rank_host.h"
#include "group/signal_queue.h"

namespace wideep::transport {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using ToNode = NodeMessage::Kind;

constexpr milliseconds kLongestSleep{1'000};
// A stopped front may be continued at once, for example by a debugger that attaches.
constexpr milliseconds kStoppedPatience{200};
// For what the service manager sees late: another front begins, ranks end.
constexpr milliseconds kManagersPatience{15'000};
constexpr milliseconds kPingInterval{1'000};  // the front is asked whether it works
constexpr milliseconds kLastGrace{200};       // between failing the ranks and killing them
// A rank that dies again and again before it joins is started ever more seldom.
constexpr milliseconds kFirstRestartPause{50};
constexpr milliseconds kLongestRestartPause{30'000};
// A front that dies of itself so often in a row, each time so soon, is not forked again.
constexpr int kMaxYoungFronts = 5;
constexpr milliseconds kYoungFront{3'000};
// A node that does not open the pipes of its rank by then is lost.
constexpr milliseconds kPipesPatience{2'000};
constexpr int kMaxNodeEvents = 1024;  // at once
constexpr size_t kMaxShown = 512;     // of a node's words in a line of the log
// A rank that fails of itself so soon after it has joined is started again later each time, and an
// epoch that is given up so soon is followed later by the next.
constexpr milliseconds kYoungEpoch{5'000};
constexpr milliseconds kLongestEpochPause{5'000};

struct RankState {
  bool is_there = false;  // its process is started, and was not seen to end
  bool has_joined = false;
  // In a row: before it has joined, or of itself soon after an epoch has begun.
  int early_deaths = 0;
  Clock::time_point not_before;
  PeerAddress address;       // where it listens, if there are several nodes
  Clock::time_point end_by;  // if it was told to end
  // The front has its pipes. Those of a rank on another node come later, with this serial number.
  bool has_pipes = false;
  uint32_t serial = 0;
  Clock::time_point asked_for_pipes;
};

class Keeper {
 public:
  Keeper(const KeeperOptions& options, const std::function<Status(Seat&)>& rank,
         const FrontBody& front, std::shared_ptr<SharedMemory> memory)
      : options_(options),
        front_body_(front),
        memory_(std::move(memory)),
        membership_(options.group.num_ranks, options.wanted, options.min),
        ranks_(static_cast<size_t>(options.group.num_ranks)),
        clients_(options.listener, options.companion, options.group.num_ranks, options.max_clients),
        host_({.group = options.group,
               .place = options.place,
               .before_epoch = options.before_epoch,
               .after_death = options.after_death,
               .close_inherited =
                   [this] {
                     forget_front();
                     clients_.forget();
                     if (options_.nodes != nullptr) options_.nodes->forget();
                   }},
              rank, memory_, signals_) {
    if (options.place != nullptr) cuts_.emplace(options.place->nodes);
  }
  ~Keeper();

  Status run();

 private:
  RankState& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  bool is_here(int rank) const {
    return options_.place == nullptr || options_.place->nodes.node_of(rank) == options_.place->node;
  }
  int node_of(int rank) const { return options_.place->nodes.node_of(rank); }

  // ---- the front ----
  Status fork_front();
  Status replace_front();
  void forget_front();
  void tell_manager();
  void check_watchdog() const;
  void front_ended(int how);
  void take_front_notes();
  void tell_front(const Note& note, std::array<int, 2> fds = {-1, -1});
  void give_pipes(int rank, const KeptRanks::Pipes& pipes);

  // ---- ranks ----
  Status start_rank(int rank);
  Status make_local_pipes(int rank, std::array<int, 2>* rank_ends);
  void ask_for_pipes(int rank, ToNode kind);
  void kill_rank(int rank, bool hangs = false);
  void ask_to_end(int rank);
  void rank_ended(int rank, const std::string& how, int64_t value);
  void rank_left(int rank, uint32_t epoch, const std::string& why, int cut_from);
  void note_given_up();
  void note_cut(int rank, int cut_from, const std::string& why);
  void leave_out_cut_off();
  void leave_out(int node, const std::string& why);
  void ask_for_mended();
  void nodes_reach_each_other(int a, int b);
  bool can_start_on(int node) const;
  void take(const RankHost::Event& event);
  void take(NodeServer::Event event);
  void tell_nodes(const NodeMessage& message);

  // ---- the loop ----
  bool is_over() const;
  void wait_for_events() const;
  std::optional<Clock::time_point> next_deadline() const;
  void handle_signals();
  void reap_front();
  void step();
  void start_missing();
  bool can_go_on();
  void end_surplus();
  void change_epoch();
  bool waits_for_pipes() const;
  void enforce_deadlines();
  void watch_front();
  void end_all(const Status& why);
  bool no_rank_is_left() const {
    return std::ranges::none_of(ranks_, [](const RankState& each) { return each.is_there; });
  }

  const KeeperOptions& options_;
  const FrontBody& front_body_;
  SignalQueue signals_{SignalQueue::HangUp::kTaken};
  std::shared_ptr<SharedMemory> memory_;
  Membership membership_;
  std::vector<RankState> ranks_;
  ClientKeeper clients_;
  RankHost host_;

  pid_t front_ = -1;
  NoteSocket front_notes_;
  NoteQueue notes_for_front_;
  std::map<int, KeptRanks::Pipes> pipes_for_front_;  // that is not forked yet
  std::optional<Status> front_status_;
  int num_fronts_ = 0, young_fronts_ = 0;
  bool died_of_itself_ = false;  // the last front
  Clock::time_point front_since_;
  std::optional<Clock::time_point> front_stopped_at_;
  bool front_hangs_ = false;                // and was killed for it
  int64_t pings_ = 0, answered_pings_ = 0;  // to the present front, one each kPingInterval
  Clock::time_point next_ping_;

  Membership::State announced_ = Membership::State::kNone;  // to the ranks
  std::optional<Clock::time_point> leave_by_;               // the roll call
  // Since when there is the present epoch; how many in a row were given up soon though nobody had
  // died, and so how long none is formed.
  Clock::time_point epoch_since_, form_after_;
  int given_up_ = 0;
  std::string given_up_because_;  // by its members, of which none has died
  std::optional<NodeCuts> cuts_;  // if there are several nodes
  // A cut that was found since the last epoch: the reason that a rank has given, one of ours where
  // none has. "": none.
  std::string new_cut_, new_cut_unsaid_;
  bool ending_ = false;  // nothing is left to do: no rank is started, no epoch begins any more
  bool told_end_ = false;
  std::string serving_;                       // what the front has said of itself; "": it loads
  bool told_ready_ = false;                   // the service manager
  bool drains_ = false;                       // no requests are taken
  int stop_signal_ = 0;                       // the first one; 0: none
  std::optional<Status> failure_;             // why everything ends
  std::optional<Clock::time_point> fail_at_;  // then fail the ranks
  std::optional<Clock::time_point> kill_at_;  // then kill them
};

void close_pipes(const KeptRanks::Pipes& pipes) {
  ::close(pipes.commands);
  ::close(pipes.messages);
}

Keeper::~Keeper() {
  if (front_ > 0) {
    ::kill(front_, SIGKILL);
    ::waitpid(front_, nullptr, 0);
  }
  for (const auto& [rank, pipes] : pipes_for_front_) close_pipes(pipes);
}

void Keeper::tell_nodes(const NodeMessage& message) {
  if (options_.nodes != nullptr) options_.nodes->send_all(message);
}

// ---- the front ----

// In a process that was just forked.
void Keeper::forget_front() {
  front_notes_ = NoteSocket();
  notes_for_front_.clear();
  for (const auto& [rank, pipes] : std::exchange(pipes_for_front_, {})) close_pipes(pipes);
}

Status Keeper::fork_front() {
  WIDEEP_TRY_ASSIGN(auto notes, NoteSocket::make_pair());
  WIDEEP_TRY_ASSIGN(auto connections, NoteSocket::make_pair());
  clients_.begin(std::move(connections.keeper));
  std::fflush(nullptr);
  const pid_t keeper = ::getpid();
  front_ = ::fork();
  if (front_ < 0) return failed(fmt::format("cannot start: fork: {}", std::strerror(errno)));
  if (front_ == 0) {
    signals_.become_child(keeper);
    ::prctl(PR_SET_NAME, "wideep-front");
    FaultDrill::begin(memory_->control().drill_steps);
    const auto pipes = std::exchange(pipes_for_front_, {});
    forget_front();
    host_.forget();
    if (options_.nodes != nullptr) options_.nodes->forget();
    clients_.forget_notes();
    notes.keeper = NoteSocket();
    const NoteSocket own(::dup(notes.child.fd()));
    Status status;
    try {
      status = front_body_(std::make_unique<KeptRanks>(
          memory_, std::move(notes.child), pipes,
          HeldConnections(std::move(connections.child), clients_.held(), died_of_itself_),
          KeptRanks::Past{
              .num_fronts = num_fronts_, .wanted = membership_.wanted(), .drains = drains_}));
    } catch (const std::exception& error) {
      // Out of memory, or threads: a death, after which another front may do better. What it
      // returns would end everything.
      log::error("the serving process: {}", error.what());
      std::fflush(nullptr);
      ::_exit(1);
    }
    Note last{.kind = Note::Kind::kFailed};
    last.set_status(status);
    own.send(last);
    std::fflush(nullptr);
    ::_exit(0);
  }
  front_notes_ = std::move(notes.keeper);
  front_since_ = Clock::now();
  answered_pings_ = pings_;
  // The one before may have died without having heard of it.
  if (stop_signal_ != 0) tell_front({.kind = Note::Kind::kStopSignal, .value = stop_signal_});
  // The front has its own copies now: a write to a rank that has ended fails there.
  for (const auto& [rank, pipes] : std::exchange(pipes_for_front_, {})) close_pipes(pipes);
  return {};
}

// All ranks get pipes to the new front, with their next members.
Status Keeper::replace_front() {
  ++num_fronts_;
  for (int rank = 0; rank < options_.group.num_ranks; ++rank) {
    if (!at(rank).is_there) continue;
    at(rank).has_pipes = false;
    if (!is_here(rank)) {
      ask_for_pipes(rank, ToNode::kPipes);
      continue;
    }
    std::array<int, 2> ends;
    WIDEEP_TRY(make_local_pipes(rank, &ends));
    host_.set_new_pipes(rank, ends[0], ends[1]);
  }
  membership_.break_up();
  return fork_front();
}

// A front that has ended is noticed when it is reaped. Takes over the descriptors.
void Keeper::tell_front(const Note& note, std::array<int, 2> fds) {
  notes_for_front_.send(front_notes_, note, fds);
}

// Takes them over.
void Keeper::give_pipes(int rank, const KeptRanks::Pipes& pipes) {
  at(rank).has_pipes = true;
  if (front_ > 0) {
    return tell_front({.kind = Note::Kind::kRankStarted, .rank = rank},
                      {pipes.commands, pipes.messages});
  }
  if (const auto before = pipes_for_front_.extract(rank); !before.empty()) {
    close_pipes(before.mapped());
  }
  pipes_for_front_[rank] = pipes;
}

void Keeper::front_ended(int how) {
  take_front_notes();  // its last ones
  clients_.take_notes();
  front_ = -1;
  notes_for_front_.clear();
  front_stopped_at_.reset();
  const std::string text =
      WIFSIGNALED(how)
          ? fmt::format("the serving process was ended by signal {} ({})", WTERMSIG(how),
                        strsignal(WTERMSIG(how)))
          : fmt::format("the serving process ended with exit code {}", WEXITSTATUS(how));
  if (!front_status_ && !ending_ && membership_.members().epoch > 0) {
    // Whoever kills it from outside may do so as often as they like.
    const bool hung = std::exchange(front_hangs_, false);
    const bool was_killed = WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL && !hung;
    const bool is_young = Clock::now() - front_since_ < kYoungFront;
    died_of_itself_ = !was_killed;
    if (!was_killed) young_fronts_ = is_young ? young_fronts_ + 1 : 0;
    if (young_fronts_ < kMaxYoungFronts) {
      log::warn("{}; another one goes on with its requests", text);
      const Status replaced = replace_front();
      if (replaced.ok()) return;
      log::warn("{}", replaced.message());
    }
  }
  // With nothing left to do it was only waiting for the ranks.
  if (!front_status_ && ending_ && !failure_ && stop_signal_ != 0) {
    log::warn("{}, when all requests were answered", text);
    front_status_ = Status();
  }
  ending_ = true;
  if (!front_status_ && !failure_) failure_ = failed(text);
  for (int rank = 0; rank < options_.group.num_ranks; ++rank) kill_rank(rank);
}

// That it is ready only once: a front that follows another one goes on with the same service.
void Keeper::tell_manager() {
  if (options_.manager == nullptr || serving_.empty() || stop_signal_ != 0) return;
  const std::string text = drains_ ? "draining: no requests are taken" : serving_;
  if (std::exchange(told_ready_, true)) return options_.manager->status(text);
  options_.manager->ready(text);
}

// A front that hangs is replaced. The manager, which would end all, has to wait for longer.
void Keeper::check_watchdog() const {
  if (options_.manager == nullptr || options_.manager->watchdog().count() == 0) return;
  const auto needed = std::max(options_.group.timeout, options_.front_patience) + kManagersPatience;
  if (options_.manager->watchdog() >= needed) return;
  log::warn(
      "the service manager waits {} s for a sign of life, and a serving process that hangs is "
      "replaced after {} s only (--timeout): raise WatchdogSec to at least {} s",
      std::chrono::duration_cast<std::chrono::seconds>(options_.manager->watchdog()).count(),
      std::chrono::duration_cast<std::chrono::seconds>(needed - kManagersPatience).count(),
      std::chrono::duration_cast<std::chrono::seconds>(needed).count());
}

void Keeper::take_front_notes() {
  Note note;
  while (front_notes_.fd() >= 0 && front_notes_.receive(&note, false) == NoteSocket::Got::kNote) {
    switch (note.kind) {
      case Note::Kind::kEndWithin: {
        // The earlier deadline counts: a second signal must not extend the grace period.
        const auto at = Clock::now() + milliseconds(note.value);
        fail_at_ = std::min(fail_at_.value_or(at), at);
        if (options_.manager != nullptr) {
          options_.manager->stopping("running requests may end",
                                     milliseconds(note.value) + kManagersPatience);
        }
        break;
      }
      case Note::Kind::kStop:
        ending_ = true;
        break;
      case Note::Kind::kAlive:
        if (note.value > answered_pings_ && options_.manager != nullptr) options_.manager->alive();
        answered_pings_ = std::max(answered_pings_, note.value);
        break;
      case Note::Kind::kWant:
        membership_.want(static_cast<int>(note.value));
        break;
      case Note::Kind::kReport:
        if (note.value != 0) {
          serving_ = note.text_view();
          tell_manager();
        } else if (options_.manager != nullptr && serving_.empty() && stop_signal_ == 0) {
          options_.manager->loading(note.text_view());
        }
        break;
      case Note::Kind::kDrains:
        drains_ = note.value != 0;
        tell_manager();
        break;
      case Note::Kind::kFailed:
        front_status_ = note.status();
        break;
      default:
        break;
    }
  }
}

// ---- ranks ----

// Of a rank on this node. The front gets its ends.
Status Keeper::make_local_pipes(int rank, std::array<int, 2>* rank_ends) {
  const auto cannot = [&] {
    return failed(fmt::format("cannot start rank {}: pipe: {}", rank, std::strerror(errno)));
  };
  int commands[2], messages[2];
  if (::pipe2(commands, O_CLOEXEC) != 0) return cannot();
  if (::pipe2(messages, O_CLOEXEC) != 0) {
    const Status status = cannot();
    for (const int fd : commands) ::close(fd);
    return status;
  }
  give_pipes(rank, {.commands = commands[1], .messages = messages[0]});
  *rank_ends = {commands[0], messages[1]};
  return {};
}

// Of a rank on another node, which opens them (NodeServer::Event::Kind::kPipes).
void Keeper::ask_for_pipes(int rank, ToNode kind) {
  RankState& state = at(rank);
  state.has_pipes = false;
  state.asked_for_pipes = Clock::now();
  options_.nodes->send(node_of(rank), {.kind = kind, .rank = rank, .value = ++state.serial});
}

Status Keeper::start_rank(int rank) {
  if (is_here(rank)) {
    // The front gets the pipes before the rank runs: it closes them if there is no rank.
    std::array<int, 2> ends;
    WIDEEP_TRY(make_local_pipes(rank, &ends));
    WIDEEP_TRY(host_.start(rank, ends[0], ends[1]));
  } else {
    ask_for_pipes(rank, ToNode::kStart);
  }
  RankState& state = at(rank);
  state.is_there = true;
  state.has_joined = false;
  membership_.started(rank);
  return {};
}

void Keeper::kill_rank(int rank, bool hangs) {
  if (is_here(rank)) return host_.kill(rank, hangs);
  if (!at(rank).is_there) return;
  options_.nodes->send(node_of(rank), {.kind = ToNode::kKill, .rank = rank, .value = hangs});
}

void Keeper::ask_to_end(int rank) {
  if (is_here(rank)) return host_.ask_to_end(rank);
  options_.nodes->send(node_of(rank), {.kind = ToNode::kEndRank, .rank = rank});
}

// how: for people; value: as Note::kRankDied.
void Keeper::rank_ended(int rank, const std::string& how, int64_t value) {
  RankState& state = at(rank);
  if (!state.is_there) return;
  // A rank that ends without an error was asked to stop, with all others.
  const bool has_stopped = value == Note::kDone && memory_->control().stop_requested.load() != 0;
  if (has_stopped) value = Note::kExpected, ending_ = true;
  const bool was_starting = membership_.place(rank) == Membership::Place::kStarting;
  if (was_starting && ending_ && membership_.members().epoch > 0) value = Note::kExpected;
  if (value == Note::kDone) value = Note::kOwnFault;
  const bool is_young = value == Note::kOwnFault && Clock::now() - epoch_since_ < kYoungEpoch;
  state.early_deaths = state.has_joined && !is_young ? 0 : state.early_deaths + 1;
  const int doublings = std::min(state.early_deaths, 10);
  state.not_before =
      Clock::now() + (state.early_deaths == 0
                          ? milliseconds(0)
                          : std::min(kFirstRestartPause * (1 << doublings), kLongestRestartPause));
  state.is_there = false;
  given_up_because_.clear();
  membership_.died(rank);
  Note died{.kind = Note::Kind::kRankDied, .rank = rank, .value = value};
  died.set_text(how);
  tell_front(died);
  if (membership_.members().epoch == 0 && !ending_ && can_go_on()) end_all(failed(how));
}

void Keeper::rank_left(int rank, uint32_t epoch, const std::string& why, int cut_from) {
  const bool is_first = membership_.state() == Membership::State::kIntact &&
                        membership_.place(rank) == Membership::Place::kMember &&
                        membership_.members().epoch == epoch;
  const bool knows = membership_.place(rank) == Membership::Place::kMember &&
                     membership_.members().epoch == epoch && !ending_;
  membership_.left(rank, epoch);
  if (knows && cut_from != Link::kNone) return note_cut(rank, cut_from, why);
  // One that gives no reason has lost the front, whose death is about to be noticed.
  if (is_first && !ending_) given_up_because_ = why;
}

// Nobody has died, also not while the others left: the next epoch may fail for the same reason.
void Keeper::note_given_up() {
  const std::string why = std::exchange(given_up_because_, "");
  if (why.empty()) return;
  const auto now = Clock::now();
  given_up_ = now - epoch_since_ < kYoungEpoch ? given_up_ + 1 : 1;
  const auto pause =
      std::min(kFirstRestartPause * (1 << std::min(given_up_, 10)), kLongestEpochPause);
  if (given_up_ > 1) form_after_ = now + pause;
  log::warn("the ranks leave their group, and join anew{}: {}",
            given_up_ > 1 ? fmt::format(" in {} ms", pause.count()) : "", why);
}

// ---- nodes that cannot reach each other ----

void Keeper::note_cut(int rank, int cut_from, const std::string& why) {
  const bool is_rank = cut_from >= 0 && cut_from < options_.group.num_ranks;
  if (!is_rank || options_.place == nullptr || node_of(rank) == node_of(cut_from)) return;
  // One that is lost altogether, or nearly so, is no reason to leave another one out.
  const auto is_there = [this](int node) { return node == 0 || options_.nodes->is_up(node); };
  if (!is_there(node_of(rank)) || !is_there(node_of(cut_from))) return;
  cuts_->cut(node_of(rank), node_of(cut_from), Clock::now());
  // Of a known one, too: a node that is out already stays as it is.
  if (!why.empty()) new_cut_ = why;
  // A rank that was about to leave when it found the cut gives no reason; another one may.
  if (new_cut_.empty())
    new_cut_unsaid_ = fmt::format("rank {} does not reach rank {}", rank, cut_from);
}

// When all have left, and so all have said whom they cannot reach.
void Keeper::leave_out_cut_off() {
  const std::string unsaid = std::exchange(new_cut_unsaid_, "");
  const std::string said = std::exchange(new_cut_, ""), why = said.empty() ? unsaid : said;
  if (why.empty()) return;
  for (const int node : cuts_->left_out()) leave_out(node, why);
}

// Its ranks end, so that the others go on without them, and start again when they can be reached.
void Keeper::leave_out(int node, const std::string& why) {
  const auto ranks = options_.place->nodes.ranks_of(node);
  if (std::ranges::none_of(ranks, [this](int rank) { return at(rank).is_there; })) return;
  const int others = membership_.wanted() - static_cast<int>(ranks.size());
  log::warn("node {} is left out until it reaches the others again: {}{}", node, why,
            others < membership_.min() ? "; requests wait, since all ranks are needed" : "");
  for (const int rank : ranks) {
    kill_rank(rank);
    rank_ended(rank, fmt::format("rank {} is left out with node {}", rank, node), Note::kKilled);
  }
}

// Each node that is left out tries to connect to a rank of the one that it could not reach.
void Keeper::ask_for_mended() {
  for (const NodeCuts::Ask& ask : cuts_->due(Clock::now())) {
    const auto ranks = options_.place->nodes.ranks_of(ask.to);
    const auto listens = std::ranges::find_if(
        ranks, [this](int rank) { return at(rank).is_there && at(rank).address.port != 0; });
    if (listens == ranks.end()) continue;
    options_.nodes->send(
        ask.from, {.kind = ToNode::kReach, .rank = *listens, .text = at(*listens).address.text()});
  }
}

void Keeper::nodes_reach_each_other(int a, int b) {
  if (std::ranges::none_of(cuts_->left_out(), [&](int out) { return out == a || out == b; }))
    return;
  cuts_->mend(a, b);
  log::warn("nodes {} and {} reach each other again", std::min(a, b), std::max(a, b));
}

bool Keeper::can_start_on(int node) const {
  return options_.nodes->is_up(node) && !std::ranges::binary_search(cuts_->left_out(), node);
}

void Keeper::take(const RankHost::Event& event) {
  switch (event.kind) {
    case RankHost::Event::Kind::kReady:
      if (const auto address = parse_address(event.text); address.ok()) {
        at(event.rank).address = *address;
      }
      return membership_.ready(event.rank);
    case RankHost::Event::Kind::kLeft:
      return rank_left(event.rank, event.epoch, event.text, event.cut_from);
    case RankHost::Event::Kind::kDied:
      return rank_ended(event.rank, event.text, event.how);
  }
}

void Keeper::take(NodeServer::Event event) {
  using Kind = NodeServer::Event::Kind;
  switch (event.kind) {
    case Kind::kUp:
      if (membership_.members().epoch > 0) log::warn("node {} has come", event.node);
      if (stop_signal_ != 0) options_.nodes->send(event.node, {.kind = ToNode::kStopping});
      return;
    case Kind::kDown:
      log::warn("node {} is lost: {}", event.node, event.why);
      cuts_->forget(event.node);
      for (const int rank : options_.place->nodes.ranks_of(event.node)) {
        rank_ended(rank, fmt::format("rank {} is lost with node {}", rank, event.node),
                   Note::kKilled);
      }
      return;
    case Kind::kPipes: {
      const int rank = event.message.rank;
      const bool is_asked_for = rank >= 0 && rank < options_.group.num_ranks && !is_here(rank) &&
                                node_of(rank) == event.node && at(rank).is_there &&
                                !at(rank).has_pipes && at(rank).serial == event.message.value;
      const int other = is_asked_for ? ::fcntl(event.socket, F_DUPFD_CLOEXEC, 0) : -1;
      if (other < 0) {
        ::close(event.socket);
        return;
      }
      return give_pipes(rank, {.commands = event.socket, .messages = other});
    }
    case Kind::kMessage:
      break;
  }
  const NodeMessage& message = event.message;
  if (message.kind == ToNode::kReached && message.rank >= 0 &&
      message.rank < options_.group.num_ranks && node_of(message.rank) != event.node) {
    return nodes_reach_each_other(event.node, node_of(message.rank));
  }
  const bool is_its_rank = message.rank >= 0 && message.rank < options_.group.num_ranks &&
                           node_of(message.rank) == event.node;
  if (!is_its_rank) return;
  switch (message.kind) {
    case ToNode::kReady:
      if (const auto address = parse_address(message.text); address.ok()) {
        at(message.rank).address = *address;
      }
      return membership_.ready(message.rank);
    case ToNode::kLeft:
      return rank_left(message.rank, message.epoch, base::printable(message.text, kMaxShown),
                       static_cast<int>(message.value));
    case ToNode::kDied:
      return rank_ended(message.rank, message.text, message.value);
    default:
      return;
  }
}

// ---- the loop ----

Status Keeper::run() {
  check_watchdog();
  for (const int rank : membership_.missing()) {
    if (is_here(rank)) WIDEEP_TRY(start_rank(rank));
  }
  WIDEEP_TRY(fork_front());
  while (!is_over()) {
    wait_for_events();
    handle_signals();
    while (const auto event = host_.next_event()) take(*event);
    if (options_.nodes != nullptr) {
      // Nodes that send without pause must not hold the keeper.
      for (int left = kMaxNodeEvents; left > 0; --left) {
        auto event = options_.nodes->next_event();
        if (!event) break;
        take(std::move(*event));
      }
    }
    take_front_notes();
    notes_for_front_.flush(front_notes_);
    clients_.take_notes();
    clients_.accept();
    step();
    enforce_deadlines();
  }
  if (options_.nodes != nullptr) options_.nodes->finish();
  if (front_status_ && !front_status_->ok()) return *front_status_;
  if (failure_) return *failure_;
  return front_status_.value_or(failed("the serving process has ended unexpectedly"));
}

bool Keeper::is_over() const { return front_ < 0 && no_rank_is_left(); }

std::optional<Clock::time_point> Keeper::next_deadline() const {
  std::optional<Clock::time_point> next;
  const auto consider = [&](std::optional<Clock::time_point> at) {
    if (at) next = std::min(next.value_or(*at), *at);
  };
  for (const auto& at : {leave_by_, fail_at_, kill_at_}) consider(at);
  for (const int rank : membership_.ending()) consider(ranks_[static_cast<size_t>(rank)].end_by);
  if (Clock::now() < form_after_) consider(form_after_);
  if (cuts_ && !cuts_->is_empty()) consider(cuts_->next_due());
  consider(clients_.next_deadline());
  consider(host_.next_deadline());
  if (options_.nodes != nullptr) consider(options_.nodes->next_deadline());
  if (front_ > 0) consider(next_ping_);
  if (front_stopped_at_) consider(*front_stopped_at_ + kStoppedPatience);
  if (!ending_) {
    for (const int rank : membership_.missing()) {
      const bool can_start = is_here(rank) || can_start_on(node_of(rank));
      if (can_start) consider(ranks_[static_cast<size_t>(rank)].not_before);
    }
  }
  return next;
}

void Keeper::wait_for_events() const {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  const short writes = notes_for_front_.is_empty() ? 0 : POLLOUT;
  if (front_ > 0) fds.push_back({front_notes_.fd(), static_cast<short>(POLLIN | writes), 0});
  if (front_ > 0) clients_.add_descriptors(&fds);
  host_.add_descriptors(&fds);
  if (options_.nodes != nullptr) options_.nodes->add_descriptors(&fds);
  milliseconds patience = kLongestSleep;
  if (const auto at = next_deadline()) {
    patience = std::clamp(std::chrono::ceil<milliseconds>(*at - Clock::now()), milliseconds(0),
                          kLongestSleep);
  }
  ::poll(fds.data(), fds.size(), static_cast<int>(patience.count()));
}

void Keeper::handle_signals() {
  while (const int signal = signals_.next()) {
    if (signal == SIGCHLD) {
      host_.reap();
      while (const auto event = host_.next_event()) take(*event);
      reap_front();
    } else if (signal == SIGHUP) {
      // Before the front has heard of it: one that dies meanwhile is followed by one that drains.
      drains_ = true;
      tell_front({.kind = Note::Kind::kDrain});
    } else if (stop_signal_ == 0) {
      stop_signal_ = signal;
      tell_nodes({.kind = ToNode::kStopping});
      tell_front({.kind = Note::Kind::kStopSignal, .value = signal});
    } else {
      end_all(interrupted("interrupted before the current iteration ended"));
    }
  }
}

void Keeper::reap_front() {
  int how = 0;
  if (front_ < 0 || ::waitpid(front_, &how, WNOHANG | WUNTRACED | WCONTINUED) != front_) return;
  if (WIFSTOPPED(how)) {
    front_stopped_at_ = Clock::now();
  } else if (WIFCONTINUED(how)) {
    front_stopped_at_.reset();
  } else {
    front_ended(how);
  }
}

void Keeper::step() {
  end_surplus();
  if (!ending_) start_missing();
  change_epoch();
  if (ending_ && no_rank_is_left() && !std::exchange(told_end_, true)) {
    if (failure_) {
      Note note{.kind = Note::Kind::kFailed};
      note.set_status(*failure_);
      tell_front(note);
    }
    tell_front({.kind = Note::Kind::kEnd});
  }
}

void Keeper::start_missing() {
  bool has_checked = false;  // it looks at files
  for (const int rank : membership_.missing()) {
    if (Clock::now() < at(rank).not_before) continue;
    if (!is_here(rank) && !can_start_on(node_of(rank))) continue;
    if (!std::exchange(has_checked, true) && !can_go_on()) return;
    if (options_.nodes != nullptr) options_.nodes->pulse();
    if (const Status status = start_rank(rank); !status.ok()) {
      log::warn("{}", status.message());
      at(rank).not_before = Clock::now() + kLongestRestartPause;
    }
  }
}

// What ranks read again must be what the others have read.
bool Keeper::can_go_on() {
  const Status status = options_.can_go_on ? options_.can_go_on() : Status();
  if (!status.ok() && !ending_) end_all(status);
  return status.ok();
}

// While everything ends, ranks that have left their group are not needed any more either, and
// those that another one has to be replaced by have nothing to finish.
void Keeper::end_surplus() {
  for (const int rank : ending_ ? membership_.waiting() : membership_.surplus()) {
    // One that still starts gets its answer when it is ready.
    if (membership_.place(rank) != Membership::Place::kWaiting) continue;
    ask_to_end(rank);
    membership_.retired(rank);
    at(rank).end_by = Clock::now() + options_.leave_timeout;
  }
  if (!ending_ || membership_.members().epoch == 0) return;
  for (const int rank : membership_.starting()) kill_rank(rank);
}

// Whether the front cannot hear every rank yet.
bool Keeper::waits_for_pipes() const {
  return std::ranges::any_of(
      ranks_, [](const RankState& each) { return each.is_there && !each.has_pipes; });
}

void Keeper::change_epoch() {
  using State = Membership::State;
  if (!ending_) membership_.close();
  if (membership_.state() == State::kClosing && announced_ == State::kIntact) {
    announced_ = State::kClosing;
    host_.announce_closing();
    tell_nodes({.kind = ToNode::kClosing});
    leave_by_ = Clock::now() + options_.group.timeout;
  }
  if (membership_.state() == State::kBroken && announced_ != State::kBroken) {
    announced_ = State::kBroken;
    const uint32_t epoch = membership_.members().epoch;
    const Status why = failed("a rank has ended");
    host_.announce_loss(epoch, why);
    tell_nodes({.kind = ToNode::kBroken, .epoch = epoch, .text = why.message()});
    leave_by_ = Clock::now() + options_.leave_timeout;
  }
  if (membership_.state() == State::kNone) {
    leave_by_.reset();
    announced_ = State::kNone;
    note_given_up();
    leave_out_cut_off();
  }
  if (ending_ || waits_for_pipes() || Clock::now() < form_after_) return;
  const auto members = membership_.form();
  if (!members || !can_go_on()) return;
  announced_ = State::kIntact;
  epoch_since_ = Clock::now();
  std::vector<PeerAddress> addresses;
  if (options_.nodes != nullptr) {
    for (const RankState& each : ranks_) addresses.push_back(each.address);
    NodeMessage message{.kind = ToNode::kEpoch};
    message.set_members(*members, addresses);
    tell_nodes(message);
  }
  for (const int rank : members->ranks) at(rank).has_joined = true;
  host_.begin_epoch(*members, addresses);
}

// A front that hangs, also in one of its threads only, is as one that has died.
void Keeper::watch_front() {
  const auto now = Clock::now();
  if (front_ < 0 || now < next_ping_) return;
  next_ping_ = now + kPingInterval;
  const int64_t max = std::max(options_.group.timeout, options_.front_patience) / kPingInterval;
  if (pings_ - answered_pings_ > max) {
    log::warn("the serving process ({}) has not answered for {} s; it is ended", front_, max);
    pings_ = answered_pings_;
    front_hangs_ = true;
    ::kill(front_, SIGKILL);
    return;
  }
  ++pings_;
  if (notes_for_front_.is_empty()) tell_front({.kind = Note::Kind::kPing, .value = pings_});
}

void Keeper::enforce_deadlines() {
  const auto now = Clock::now();
  host_.kill_hanging();
  watch_front();
  if (cuts_) ask_for_mended();
  if (front_stopped_at_ && now >= *front_stopped_at_ + kStoppedPatience) {
    front_stopped_at_.reset();
    ::kill(front_, SIGKILL);
  }
  if (leave_by_ && now >= *leave_by_) {
    leave_by_.reset();
    for (const int rank : membership_.inside()) kill_rank(rank, !given_up_because_.empty());
  }
  for (const int rank : membership_.ending()) {
    if (now < at(rank).end_by) continue;
    kill_rank(rank);
    at(rank).end_by = now + options_.leave_timeout;
  }
  for (int rank = 0; rank < options_.group.num_ranks; ++rank) {
    const RankState& state = at(rank);
    const bool waits = state.is_there && !state.has_pipes && !is_here(rank);
    if (waits && now >= state.asked_for_pipes + kPipesPatience) {
      options_.nodes->drop(node_of(rank), "it does not open the pipes of its ranks");
    }
  }
  if (fail_at_ && now >= *fail_at_) {
    fail_at_.reset();
    end_all(interrupted("interrupted before the current iteration ended"));
  }
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    for (int rank = 0; rank < options_.group.num_ranks; ++rank) kill_rank(rank);
  }
}

// Ranks get a moment to end by themselves.
void Keeper::end_all(const Status& why) {
  ending_ = true;
  if (!failure_) failure_ = why;
  const uint32_t epoch = membership_.members().epoch;
  host_.announce_loss(epoch, why);
  tell_nodes({.kind = ToNode::kBroken, .epoch = epoch, .text = why.message()});
  kill_at_ = Clock::now() + kLastGrace;
}

}  // namespace

Status keep_ranks(const KeeperOptions& options, const std::function<Status(Seat&)>& rank,
                  const FrontBody& front) {
  WIDEEP_TRY(FaultDrill::prepare());
  WIDEEP_TRY(check_max_ranks(options.group.num_ranks));
  WIDEEP_TRY_ASSIGN(auto memory,
                    SharedMemory::create(options.group.num_ranks, options.group.segment_bytes));
  return Keeper(options, rank, front, std::move(memory)).run();
}

}  // namespace wideep::transport
