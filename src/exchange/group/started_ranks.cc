// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 collects the status and settings of all ranks and sends its verdict to each: one message
// there and one back, instead of every rank with every other. All messages are taken even after an
// error, or the next collective call would find them. Ranks wait for the verdict twice as long as
// rank 0 waits for them, so that what they report is the rank that was late, not rank 0.
//
// The body runs on a thread of its own, the only one that uses the data link; the calling thread
// takes messages and signals.
#include "group/started_ranks.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/check.h"
#include "base/try.h"
#include "group/message_inbox.h"
#include "group/node_watch.h"
#include "transport/bridge.h"

namespace wideep::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPollPause{100};
constexpr std::chrono::milliseconds kStartTimeout{60'000};
constexpr std::chrono::milliseconds kFailureFlushTime{
    300};  // to send a rank's error to other nodes

Bytes bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A message: the status as the first of the settings.
Bytes encode(const Status& status, const Settings& settings) {
  Settings all = {{std::to_string(static_cast<int>(status.code())), status.message()}};
  all.insert(all.end(), settings.begin(), settings.end());
  return bytes_of(to_text(all));
}

Status decode(const Bytes& bytes, Settings* settings) {
  Settings all = settings_from(text_of(bytes));
  WIDEEP_CHECK(!all.empty());
  const Status status(static_cast<StatusCode>(std::atoi(all.front().first.c_str())),
                      all.front().second);
  all.erase(all.begin());
  *settings = std::move(all);
  return status;
}

}  // namespace

StartedRanks::StartedRanks(std::unique_ptr<Link> control, std::unique_ptr<Link> data, NodeMap nodes,
                           int rank)
    : control_(std::move(control)),
      data_(std::move(data)),
      nodes_(std::move(nodes)),
      rank_(rank),
      early_(static_cast<size_t>(nodes_.num_ranks())) {}

Result<Bytes> StartedRanks::receive_from(int rank, std::chrono::milliseconds timeout,
                                         const char* what) {
  // A link returns messages of all ranks; those of other ranks are kept for their own call.
  std::deque<Bytes>& queue = early_[static_cast<size_t>(rank)];
  const Clock::time_point end = Clock::now() + timeout;
  while (queue.empty()) {
    if (auto received = control_->receive()) {
      early_[static_cast<size_t>(received->from)].push_back(std::move(received->message));
      continue;
    }
    WIDEEP_TRY(control_->failure());
    if (Clock::now() > end) {
      return deadline_exceeded(
          fmt::format("rank {} (node {}) waited {} ms for {} from rank {} (node {})", rank_, node(),
                      timeout.count(), what, rank, nodes_.node_of(rank)));
    }
    std::this_thread::sleep_for(kPollPause);
  }
  Bytes message = std::move(queue.front());
  queue.pop_front();
  return message;
}

Status StartedRanks::agree_on(const Status& mine, const Settings& settings,
                              std::chrono::milliseconds timeout) {
  if (rank_ == 0) {
    const Status all = collect_statuses(mine, settings, timeout);
    for (int rank = 1; rank < num_ranks(); ++rank) control_->send(rank, encode(all, {}));
    // Rank 0 may end the process after an error. The answers must have left by then, or the other
    // ranks would wait until their deadline.
    const Clock::time_point end = Clock::now() + timeout;
    while (!control_->has_sent_all() && Clock::now() < end) std::this_thread::sleep_for(kPollPause);
    return all;
  }
  control_->send(0, encode(mine, settings));
  // Twice the timeout: rank 0 may wait that long for another rank, and its answer names that rank.
  Result<Bytes> answer = receive_from(0, 2 * timeout, "the comparison of all ranks' settings");
  if (!answer.ok()) {
    set_broken();
    return answer.status();
  }
  Settings none;
  return decode(*answer, &none);
}

// On rank 0: collects the status and settings of all ranks.
Status StartedRanks::collect_statuses(const Status& mine, const Settings& settings,
                                      std::chrono::milliseconds timeout) {
  Status first = mine;
  for (int rank = 1; rank < num_ranks(); ++rank) {
    const Result<Bytes> received = receive_from(rank, timeout, "its status and settings");
    if (!received.ok()) {
      set_broken();
      return received.status();
    }
    Settings theirs;
    const Status status = decode(*received, &theirs);
    if (!first.ok()) continue;  // only the first error counts, but every message has to be taken
    first = status.ok() ? check_settings_match(settings, theirs, rank)
                        : status.at(fmt::format("rank {} (node {})", rank, nodes_.node_of(rank)));
  }
  return first;
}

Result<uint64_t> StartedRanks::all_reduce_min(uint64_t mine, std::chrono::milliseconds timeout) {
  const auto message_of = [](uint64_t value) { return bytes_of(std::to_string(value)); };
  const auto from = [&](int rank) -> Result<uint64_t> {
    WIDEEP_TRY_ASSIGN(const Bytes message, receive_from(rank, timeout, "its value of the minimum"));
    return std::stoull(text_of(message));
  };
  if (rank_ != 0) {
    control_->send(0, message_of(mine));
    return from(0);
  }
  for (int rank = 1; rank < num_ranks(); ++rank) {
    WIDEEP_TRY_ASSIGN(const uint64_t theirs, from(rank));
    mine = std::min(mine, theirs);
  }
  for (int rank = 1; rank < num_ranks(); ++rank) control_->send(rank, message_of(mine));
  return mine;
}

base::MakeSharedBytes StartedRanks::make_shared() {
  // Sockets are connected at the first allocation, which all ranks of the node make.
  return [this](const char* purpose, size_t num_bytes,
                base::SharedPages pages) -> Result<base::SharedBytes> {
    WIDEEP_TRY(join_node(kStartTimeout));
    return sockets_.share(purpose, num_bytes, pages);
  };
}

// The first rank of the node listens on a random name and sends it to the others over the link.
Status StartedRanks::join_node(std::chrono::milliseconds timeout) {
  if (has_joined_node_) return {};
  const std::span<const int> ranks = nodes_.ranks_of(node());
  if (rank_ == ranks[0]) {
    WIDEEP_TRY_ASSIGN(const std::string name, sockets_.listen());
    for (const int other : ranks.subspan(1)) control_->send(other, bytes_of(name));
    WIDEEP_TRY(sockets_.accept(ranks.subspan(1), timeout));
  } else {
    WIDEEP_TRY_ASSIGN(const Bytes name,
                      receive_from(ranks[0], timeout, "the socket for shared memory"));
    WIDEEP_TRY(sockets_.connect(text_of(name), ranks[0], rank_));
  }
  has_joined_node_ = true;
  return {};
}

namespace {

class BridgeMessenger : public Messenger {
 public:
  explicit BridgeMessenger(Bridge& bridge) : bridge_(bridge) {}
  Status send(std::string_view message) const override {
    bridge_.report(std::string(message));
    return {};
  }

 private:
  Bridge& bridge_;
};

// This rank while it runs. Its inbox has the stop signals of this rank and, on rank 0, the messages
// of all ranks.
class StartedRun : public RunningRanks {
 public:
  StartedRun(StartedRanks& ranks, const GroupOptions& options, std::shared_ptr<SharedMemory> memory,
             std::function<Status(Endpoint&, const Messenger&)> body)
      : ranks_(ranks),
        options_(options),
        memory_(std::move(memory)),
        body_(std::move(body)),
        watch_(memory_, ranks.sockets(), options.reports_stop_signals ? &inbox_ : nullptr),
        thread_([this] {
          ended_ = run();
          inbox_.close();
        }) {}
  ~StartedRun() override { join(); }

  std::optional<RankEvent> next() override {
    auto event = inbox_.next();
    if (!event) join();
    return event;
  }

  // Collective if no rank has failed. Peers are told of this rank's end before it, because then the
  // process may end at any time, and NodeWatch of the peers would take that for a crash.
  Status result() override {
    if (!ended_.ok()) return ended_;
    ranks_.sockets().announce_end();
    const Status mine = watch_.was_interrupted() ? interrupted("interrupted") : Status();
    return ranks_.agree_on(mine, {}, options_.timeout);
  }

  SharedMemory& memory() override { return *memory_; }
  void end_within(std::chrono::milliseconds grace) override { watch_.end_within(grace); }

 private:
  // On thread_, the only one that uses the data link.
  Status run() {
    Bridge bridge(memory_, ranks_.data(), ranks_.nodes(), ranks_.rank());
    bridge.set_on_report([this](int from, std::string_view text) {
      inbox_.put(RankMessage{from, std::string(text)});
    });
    const auto endpoint = make_endpoint(memory_, ranks_.rank(), options_.timeout, options_.faults);
    endpoint->set_bridge(&bridge);
    Status status = body_(*endpoint, BridgeMessenger(bridge));
    // Twice the timeout: a wait of another rank reaches its deadline first, and its error names
    // what was awaited.
    if (status.ok()) status = bridge.finish(2 * options_.timeout);
    if (status.ok()) return status;
    memory_->fail(status);
    // The group's first error counts, which may be another rank's. It can be missing still: that
    // rank has claimed the place (SharedMemory::fail) but not yet written its text.
    if (Status first = memory_->failure(); !first.ok()) status = std::move(first);
    bridge.send_failure(status);
    bridge.flush(kFailureFlushTime);
    ranks_.set_broken();
    return status;
  }

  void join() {
    if (thread_.joinable()) thread_.join();
  }

  StartedRanks& ranks_;
  const GroupOptions options_;
  std::shared_ptr<SharedMemory> memory_;
  std::function<Status(Endpoint&, const Messenger&)> body_;
  MessageInbox inbox_;
  Status ended_;  // written by thread_, read once it has ended
  NodeWatch watch_;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace

Result<std::unique_ptr<RunningRanks>> start_started_ranks(
    StartedRanks& ranks, const GroupOptions& options,
    std::function<Status(Endpoint&, const Messenger&)> body) {
  // All ranks compare their results, so that none starts if another has no memory.
  auto shared = SharedMemory::create(ranks.num_ranks(), options.segment_bytes, ranks.make_shared());
  WIDEEP_TRY(ranks.agree_on(shared.status(), {}, kStartTimeout));
  return std::unique_ptr<RunningRanks>(
      std::make_unique<StartedRun>(ranks, options, std::move(*shared), std::move(body)));
}

Status run_started_ranks(StartedRanks& ranks, const GroupOptions& options,
                         std::function<Status(Endpoint&, const Messenger&)> body,
                         const std::function<void(int, std::string_view)>& on_message) {
  WIDEEP_TRY_ASSIGN(const auto running, start_started_ranks(ranks, options, std::move(body)));
  return run_to_end(*running, on_message);
}

}  // namespace wideep::transport
