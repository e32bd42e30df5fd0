// SPDX-License-Identifier: Apache-2.0
//
// Requests reach the ranks through pipes (Feeds, RequestWriter → engine::RequestFeed). Events come
// back as messages (RankReporter → transport::RunningRanks), which merge() turns into events of the
// run. The ranks themselves execute run_rank (run/rank.cc).
#include "run/rank_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "run/rank.h"
#include "transport/rank_processes.h"
#include "transport/started_ranks.h"

namespace wideep::run {

// The command pipes, created before the ranks are forked, so that the ranks inherit their ends. If
// a launcher has started the ranks, there is one pipe, to rank 0 in its own process.
class RankGroup::Feeds {
 public:
  static Result<std::unique_ptr<Feeds>> make(const Run& run) {
    auto feeds = std::make_unique<Feeds>();
    const transport::StartedRanks* started = run.options().started;
    feeds->reading_.assign(static_cast<size_t>(run.plan().mapping.world_size()), kNone);
    for (size_t rank = 0; rank < feeds->reading_.size(); ++rank) {
      if (started != nullptr && (rank != 0 || started->rank() != 0)) continue;
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0) {
        return failed(fmt::format("pipe: {}", std::strerror(errno)));
      }
      feeds->reading_[rank] = ends[0];
      feeds->writing_.push_back(ends[1]);
    }
    return feeds;
  }
  Feeds() = default;
  Feeds(const Feeds&) = delete;
  Feeds& operator=(const Feeds&) = delete;
  ~Feeds() {
    close_reading();
    for (const int fd : writing_) ::close(fd);
  }

  // Called once the ranks have their own copies of the reading ends, or have ended. Then a write to
  // a rank that has ended fails (EPIPE) instead of blocking when the pipe is full.
  void close_reading() {
    for (const int fd : std::exchange(reading_, {})) {
      if (fd != kNone) ::close(fd);
    }
  }
  int reading(int rank) const { return reading_[static_cast<size_t>(rank)]; }
  const std::vector<int>& writing() const { return writing_; }

 private:
  static constexpr int kNone = -1;
  std::vector<int> reading_;  // [num_ranks], kNone for ranks without a pipe
  std::vector<int> writing_;  // of the ranks with a pipe
};

Result<std::unique_ptr<RankGroup>> RankGroup::start(const Run& run, GroupOptions options) {
  ::signal(SIGPIPE, SIG_IGN);  // a rank that has ended is reported by RunningRanks, not by a signal
  WIDEEP_TRY_ASSIGN(std::unique_ptr<Feeds> feeds, Feeds::make(run));
  const transport::GroupOptions group{.num_ranks = run.plan().mapping.world_size(),
                                      .segment_bytes = run.plan().segment.bytes(),
                                      .timeout = run.options().timeout,
                                      .reports_stop_signals = options.reports_stop_signals};
  const auto body = [&run, reading = feeds.get()](transport::Endpoint& world,
                                                  const transport::Messenger& messenger) {
    return run_rank(run, reading->reading(world.rank()), world, messenger);
  };
  std::unique_ptr<transport::RunningRanks> ranks;
  if (run.options().started != nullptr) {
    WIDEEP_TRY_ASSIGN(ranks, transport::start_started_ranks(*run.options().started, group, body));
  } else {
    WIDEEP_TRY_ASSIGN(ranks, transport::start_rank_processes(group, body));
    feeds->close_reading();  // each rank has its own copy now
  }
  return std::unique_ptr<RankGroup>(new RankGroup(run, std::move(feeds), std::move(ranks)));
}

RankGroup::RankGroup(const Run& run, std::unique_ptr<Feeds> feeds,
                     std::unique_ptr<transport::RunningRanks> ranks)
    : run_(run),
      feeds_(std::move(feeds)),
      ranks_(std::move(ranks)),
      requests_(feeds_->writing(), run.plan().num_request_owners()),
      iterations_(run.plan().mapping.world_size()) {}

// When the ranks have ended, closing the reading ends makes blocked writes fail. Only then can
// requests_ be destroyed, which may still have commands to write.
RankGroup::~RankGroup() {
  ranks_.reset();
  feeds_->close_reading();
}

std::optional<Event> RankGroup::next() {
  while (auto each = ranks_->next()) {
    if (const auto* stop = std::get_if<transport::StopSignal>(&*each)) {
      return StopRequested{stop->signal};
    }
    const auto& [rank, bytes] = std::get<transport::RankMessage>(*each);
    if (auto event = merge(rank, decode(bytes))) return event;
  }
  feeds_->close_reading();
  return std::nullopt;
}

Status RankGroup::result() { return ranks_->result(); }

// The flag in shared memory stops ranks that compute; the command wakes ranks that sleep and
// reaches other nodes.
void RankGroup::stop() {
  ranks_->memory().control().stop_requested = 1;
  requests_.stop();
}

// ---- from events of one rank to events of the run ----

// Counts a rank that has sent a certain event; true if it was the last of all ranks.
bool RankGroup::is_last_rank(int* count) const {
  if (++*count < run_.plan().mapping.world_size()) return false;
  *count = 0;
  return true;
}

// Events about all ranks are passed on when the last rank has sent its part; other events at once.
std::optional<Event> RankGroup::merge(int rank, RankEvent event) {
  const auto when_last = [this](const auto& each, int* count) {
    return is_last_rank(count) ? std::optional<Event>(each) : std::nullopt;
  };
  if (const auto* each = std::get_if<RanksReady>(&event)) return when_last(*each, &num_ready_);
  if (const auto* each = std::get_if<RanksIdle>(&event)) return when_last(*each, &num_idle_);
  if (const auto* each = std::get_if<ExpertRecording>(&event)) {
    return when_last(*each, &num_recording_);
  }
  if (auto* each = std::get_if<RankIteration>(&event)) {
    return iterations_.add(rank, std::move(each->record));
  }
  // The writer gives new requests to the owner with the least work, so it must know what has ended.
  if (const auto* each = std::get_if<Token>(&event)) {
    if (each->finish_reason != engine::FinishReason::kNotFinished) {
      requests_.finished(each->request_index);
    }
  }
  return std::visit(
      [](auto&& each) -> std::optional<Event> {
        using T = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<T, RankIteration>) {
          return std::nullopt;  // handled above; the only alternative that Event does not have
        } else {
          return Event(std::forward<decltype(each)>(each));
        }
      },
      std::move(event));
}

}  // namespace wideep::run
