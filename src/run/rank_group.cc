// SPDX-License-Identifier: Apache-2.0
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

// Pipes to the ranks, made before these are forked; of started ranks there is one, to rank 0.
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

  // Once the ranks have them, or have ended: writing to a rank that is gone fails then, and never
  // waits.
  void close_reading() {
    for (const int fd : std::exchange(reading_, {})) {
      if (fd != kNone) ::close(fd);
    }
  }
  int reading(int rank) const { return reading_[static_cast<size_t>(rank)]; }
  const std::vector<int>& writing() const { return writing_; }

 private:
  static constexpr int kNone = -1;
  std::vector<int> reading_;  // [num_ranks]
  std::vector<int> writing_;
};

Result<std::unique_ptr<RankGroup>> RankGroup::start(const Run& run, GroupOptions options) {
  ::signal(SIGPIPE, SIG_IGN);  // a rank that is gone shows otherwise
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
    feeds->close_reading();  // each rank has its own now
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

// Nobody reads what the writer may still want to write.
RankGroup::~RankGroup() {
  ranks_.reset();
  feeds_->close_reading();
}

std::optional<Event> RankGroup::next() {
  while (auto each = ranks_->next()) {
    if (const auto* stop = std::get_if<transport::StopSignal>(&*each)) {
      return StopAsked{stop->signal};
    }
    const auto& [rank, bytes] = std::get<transport::RankMessage>(*each);
    if (auto event = event_of(rank, decode(bytes))) return event;
  }
  feeds_->close_reading();
  return std::nullopt;
}

Status RankGroup::result() { return ranks_->result(); }

// The memory stops ranks that compute, the command those that sleep or are on other nodes.
void RankGroup::stop() {
  ranks_->memory().control().stop_requested = 1;
  requests_.stop();
}

// ---- from what ranks say to events of the run ----

// What every rank says once is an event when the last has said it.
bool RankGroup::is_last_of(int* count) const {
  if (++*count < run_.plan().mapping.world_size()) return false;
  *count = 0;
  return true;
}

std::optional<Event> RankGroup::event_of(int rank, RankSaying saying) {
  const auto once = [this](const auto& event, int* count) {
    return is_last_of(count) ? std::optional<Event>(event) : std::nullopt;
  };
  if (const auto* each = std::get_if<RanksReady>(&saying)) return once(*each, &num_ready_);
  if (const auto* each = std::get_if<RanksIdle>(&saying)) return once(*each, &num_idle_);
  if (const auto* each = std::get_if<ExpertRecording>(&saying)) {
    return once(*each, &num_recording_);
  }
  if (auto* each = std::get_if<RankRecord>(&saying)) {
    return iterations_.add(rank, std::move(each->record));
  }
  if (const auto* each = std::get_if<Token>(&saying)) {
    if (each->finish_reason != engine::FinishReason::kNotFinished) {
      requests_.finished(each->request_index);
    }
  }
  return std::visit(
      [](auto&& each) -> std::optional<Event> {
        using Saying = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<Saying, RankRecord>) {
          return std::nullopt;  // taken above
        } else {
          return Event(std::forward<decltype(each)>(each));
        }
      },
      std::move(saying));
}

}  // namespace wideep::run
