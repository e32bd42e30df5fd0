// SPDX-License-Identifier: Apache-2.0
//
// Requests reach the ranks through pipes (Feeds, RequestWriter → engine::RequestFeed). Events come
// back as messages (RankReporter → transport::RunningRanks), which merge() turns into events of the
// run. The ranks themselves execute run_rank (run/rank.cc).
#include "run/rank_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/cpu_time.h"
#include "base/try.h"
#include "group/keeper.h"
#include "group/rank_processes.h"
#include "group/seat.h"
#include "group/started_ranks.h"
#include "model/model_division.h"
#include "run/rank.h"

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
      feeds->writing_.emplace_back(static_cast<int>(rank), ends[1]);
    }
    return feeds;
  }
  Feeds() = default;
  Feeds(const Feeds&) = delete;
  Feeds& operator=(const Feeds&) = delete;
  ~Feeds() {
    close_reading();
    for (const auto& [rank, fd] : writing_) ::close(fd);
  }

  // Called once the ranks have their own copies of the reading ends, or have ended. Then a write to
  // a rank that has ended fails (EPIPE) instead of blocking when the pipe is full.
  void close_reading() {
    for (const int fd : std::exchange(reading_, {})) {
      if (fd != kNone) ::close(fd);
    }
  }
  int reading(int rank) const { return reading_[static_cast<size_t>(rank)]; }
  // Ranks with a pipe, and the ends to write, owned by the caller from now on.
  std::vector<std::pair<int, int>> take_writing() { return std::exchange(writing_, {}); }

 private:
  static constexpr int kNone = -1;
  std::vector<int> reading_;                  // [num_ranks], kNone for ranks without a pipe
  std::vector<std::pair<int, int>> writing_;  // rank, descriptor
};

Result<std::unique_ptr<RankGroup>> RankGroup::start(const Run& run, GroupOptions options) {
  ::signal(SIGPIPE, SIG_IGN);  // a rank that has ended is reported by RunningRanks, not by a signal
  WIDEEP_TRY_ASSIGN(std::unique_ptr<Feeds> feeds, Feeds::make(run));
  const transport::GroupOptions group{.num_ranks = run.plan().mapping.world_size(),
                                      .segment_bytes = run.plan().segment.bytes(),
                                      .timeout = run.options().timeout,
                                      .reports_stop_signals = options.reports_stop_signals,
                                      .reports_hang_up = options.reports_hang_up};
  const auto body = [&run, reading = feeds.get()](transport::Endpoint& world,
                                                  const transport::Messenger& messenger) {
    transport::FixedSeat seat(world, messenger, reading->reading(world.rank()));
    return run_rank(run, seat);
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

namespace {

void clear_boards(const Run& run) {
  for (const OnlineParts& stage : run.online()) {
    if (stage.balances()) stage.board->clear();
  }
}

// What a rank has not read into the host pool, others read.
void take_back(const Run& run, int rank) {
  for (const OnlineParts& stage : run.online()) {
    if (stage.balances()) stage.pool->release(rank);
  }
}

// Experts that a lost rank had are read again, unless the host pool has all. Where the checkpoint
// is not what it was, they would be other experts.
Status check_what_is_read_again(const Run& run) {
  const auto& stages = run.online();
  const bool all_in_pools = !stages.empty() && std::ranges::all_of(stages, [](const auto& stage) {
    return stage.balances() && stage.pool->is_filled();
  });
  return all_in_pools ? Status() : run.inputs().tensors().check_unchanged();
}

const transport::NodePlace* place_of(const Run& run) {
  return run.options().kept_nodes ? &run.options().kept_nodes->place : nullptr;
}

}  // namespace

Result<transport::NodeClient::Ended> RankGroup::keep_node(
    const Run& run, transport::NodeClient& client,
    const std::shared_ptr<transport::SharedMemory>& memory) {
  ::signal(SIGPIPE, SIG_IGN);
  return client.run(
      {.group = {.num_ranks = run.plan().mapping.world_size(),
                 .segment_bytes = run.plan().segment.bytes(),
                 .timeout = run.options().timeout},
       .place = *place_of(run),
       .can_go_on = [&run] { return check_what_is_read_again(run); },
       .before_epoch = [&run] { clear_boards(run); },
       .after_death = [&run](int rank) { take_back(run, rank); }},
      [&](transport::Seat& seat) { return run_rank(run, seat); }, memory);
}

Status RankGroup::keep(const Run& run, const Clients& clients,
                       const std::function<Status(std::unique_ptr<RankGroup>)>& use) {
  ::signal(SIGPIPE, SIG_IGN);
  const RunPlan& plan = run.plan();
  const int num_ranks = plan.mapping.world_size();
  const transport::KeeperOptions options{
      .group = {.num_ranks = num_ranks,
                .segment_bytes = plan.segment.bytes(),
                .timeout = run.options().timeout},
      .wanted = plan.start_ranks,
      .min = plan.is_elastic() ? 1 : num_ranks,
      .listener = clients.listener,
      .max_clients = clients.max,
      .companion = clients.companion,
      .can_go_on = [&run] { return check_what_is_read_again(run); },
      .before_epoch = [&run] { clear_boards(run); },
      .after_death = [&run](int rank) { take_back(run, rank); },
      .manager = clients.manager,
      .nodes = clients.nodes,
      .place = place_of(run)};
  return transport::keep_ranks(
      options, [&](transport::Seat& seat) { return run_rank(run, seat); },
      [&](std::unique_ptr<transport::KeptRanks> ranks) {
        transport::KeptRanks* kept = ranks.get();
        std::unique_ptr<RankGroup> group(
            new RankGroup(run, std::make_unique<Feeds>(), std::move(ranks)));
        group->kept_ = kept;
        return use(std::move(group));
      });
}

namespace {

RequestWriter::OnLoss on_loss(const Run& run) {
  if (!run.options().keeps_ranks) return RequestWriter::OnLoss::kEnd;
  return run.plan().is_elastic() ? RequestWriter::OnLoss::kMove : RequestWriter::OnLoss::kReplay;
}

// An owner is computed by the ranks with its number among the ranks of a stage: by all stages of the
// pipeline, and all ranks that share its sequences.
RequestWriter::Prompts prompts(const Run& run) {
  const RunPlan& plan = run.plan();
  const int owners = plan.num_request_owners();
  RequestWriter::Prompts prompts = {.are_kept = run.options().keeps_prompts(),
                                    .may_come_from_peers = run.looks_for_prompts(),
                                    .record_class = owners > 1 ? run.record_class() : ""};
  prompts.ranks_of_owner.resize(static_cast<size_t>(owners));
  for (int rank = 0; rank < plan.mapping.world_size(); ++rank) {
    prompts.ranks_of_owner[static_cast<size_t>(rank % owners)].push_back(rank);
  }
  return prompts;
}

int num_routed_layers(const model::ModelConfig& config) {
  return static_cast<int>(std::ranges::count_if(
      model::moe_layers(config), [&](int each) { return each < config.num_layers; }));
}

}  // namespace

RankGroup::RankGroup(const Run& run, std::unique_ptr<Feeds> feeds,
                     std::unique_ptr<transport::RunningRanks> ranks)
    : run_(run),
      feeds_(std::move(feeds)),
      ranks_(std::move(ranks)),
      requests_(std::min(run.plan().num_request_owners(), run.plan().start_ranks), on_loss(run),
                prompts(run)),
      members_(static_cast<size_t>(run.plan().start_ranks)),
      iterations_(run.plan().mapping.world_size(), run.plan().start_ranks,
                  ranks_->memory().control().next_iteration),
      background_(run.online(), std::chrono::nanoseconds(run.options().background_limit).count()),
      routed_(run.plan().mapping.world_size() / run.plan().num_request_owners(),
              num_routed_layers(run.plan().model.config), run.plan().model.config.routing.top_k) {
  std::iota(members_.begin(), members_.end(), 0);
  for (const auto& [rank, fd] : feeds_->take_writing()) requests_.add_rank(rank, fd);
  const RunOptions& options = run.options();
  if ((options.statistics || options.routing_log) && receives_events(options)) {
    recorder_.emplace(run, ranks_->memory().control().next_iteration);
  }
}

// When the ranks have ended, closing the reading ends makes blocked writes fail. Only then can
// requests_ be destroyed, which may still have commands to write.
RankGroup::~RankGroup() {
  ranks_.reset();
  feeds_->close_reading();
}

std::optional<Event> RankGroup::next() {
  std::optional<Event> event = next_unrecorded();
  if (!recorder_) return event;
  if (event) {
    const bool wrote = recorder_->status().ok();
    recorder_->add(*event);
    // A run whose recording is lost is not worth its time; a server goes on.
    if (wrote && !recorder_->status().ok() && !run_.options().keeps_ranks) stop();
  } else {
    recorder_->finish(ranks_->result());
  }
  return event;
}

std::optional<Event> RankGroup::next_unrecorded() {
  if (!due_.empty()) return take_due();
  if (const auto silence = watch()) return *silence;
  while (auto each = ranks_->next()) {
    auto event =
        std::visit([this](auto&& what) { return take(std::move(what)); }, std::move(*each));
    note_transfers();
    if (event) due_.push_back(std::move(*event));
    if (!due_.empty()) return take_due();
  }
  feeds_->close_reading();
  return std::nullopt;
}

Event RankGroup::take_due() {
  Event event = std::move(due_.front());
  due_.pop_front();
  return event;
}

// Before the event that follows: it may be the first token of one of these requests.
void RankGroup::note_transfers() {
  if (!run_.looks_for_prompts()) return;
  for (PromptTransfer& each : requests_.take_transfers()) due_.emplace_back(std::move(each));
}

std::optional<BackgroundSilence> RankGroup::watch() {
  if (!std::exchange(iteration_ended_, false)) return std::nullopt;
  const bool is_elastic = run_.plan().is_elastic();
  return background_.look(base::wall_ns(), is_elastic ? static_cast<int>(members_.size())
                                                      : run_.plan().mapping.stage_size());
}

std::optional<Event> RankGroup::take(transport::RankMessage message) {
  return merge(message.rank, decode(message.bytes));
}

std::optional<Event> RankGroup::take(transport::StopSignal stop) {
  return StopRequested{stop.signal};
}

std::optional<Event> RankGroup::take(transport::RankStarted rank) {
  requests_.add_rank(rank.rank, rank.commands, has_begun_);
  return has_begun_ ? std::optional<Event>(RankStarted{rank.rank}) : std::nullopt;
}

std::optional<Event> RankGroup::take(transport::RankDied rank) {
  RequestWriter::Loss loss = requests_.lose_rank(rank.rank, rank.is_own_fault);
  return RankDied{.rank = rank.rank,
                  .how = std::move(rank.how),
                  .was_expected = rank.was_expected,
                  .moved = loss.moved,
                  .failed = std::move(loss.failed)};
}

// An interruption may only be that of next().
Status RankGroup::result() {
  const Status ended = ranks_->result();
  const bool is_own = ended.ok() || ended.code() == StatusCode::kInterrupted;
  return is_own && recorder_ && !recorder_->status().ok() ? recorder_->status() : ended;
}

Status RankGroup::want(int num_ranks) {
  const RunPlan& plan = run_.plan();
  const int max = plan.mapping.world_size();
  if (!run_.options().keeps_ranks || !plan.is_elastic()) {
    return invalid_input(
        "the number of ranks is fixed: it needs attention data parallelism with expert parallelism "
        "alone, no launcher, and --on-rank-loss recover");
  }
  if (num_ranks < 1 || num_ranks > max) {
    return invalid_input(
        fmt::format("expected 1 to {} ranks, found {}: buffers and threads are planned for "
                    "tensor_parallel_size",
                    max, num_ranks));
  }
  WIDEEP_TRY(check_what_is_read_again(run_));
  WIDEEP_TRY(ranks_->want(num_ranks));
  requests_.want(num_ranks);
  return {};
}

// The flag in shared memory stops ranks that compute; the command wakes ranks that sleep and
// reaches other nodes.
void RankGroup::stop() {
  ranks_->memory().control().stop_requested = 1;
  requests_.stop();
  if (kept_ != nullptr) kept_->stop();
}

// ---- from events of one rank to events of the run ----

// True if it was the last of the members to send a certain event.
bool RankGroup::is_last(int rank, Senders* senders) const {
  senders->insert(rank);
  const bool all =
      std::ranges::all_of(members_, [&](int member) { return senders->contains(member); });
  if (all) senders->clear();
  return all;
}

namespace {

void renumber(const IterationAssembler& iterations, Rebalance* each) {
  each->iteration = iterations.number(each->iteration);
  each->decided = iterations.number(each->decided);
  for (online::LayerSwitch& layer : each->switches) {
    layer.iteration = iterations.number(layer.iteration);
  }
}

}  // namespace

// Events about all ranks are passed on when the last rank has sent its part; other events at once.
std::optional<Event> RankGroup::merge(int rank, RankEvent event) {
  const auto when_last = [&](const auto& each, Senders* senders) {
    return is_last(rank, senders) ? std::optional<Event>(each) : std::nullopt;
  };
  if (const auto* each = std::get_if<RanksReady>(&event)) {
    auto ready = when_last(*each, &ready_);
    has_begun_ = has_begun_ || ready.has_value();
    if (ready) requests_.ranks_ready();
    return ready;
  }
  if (auto* each = std::get_if<MembersChanged>(&event)) return merge_change(rank, std::move(*each));
  if (const auto* each = std::get_if<RanksIdle>(&event)) return when_last(*each, &idle_);
  if (const auto* each = std::get_if<ExpertRecording>(&event)) {
    return have_all_answered(rank, each->number, recording_) ? std::optional<Event>(*each)
                                                             : std::nullopt;
  }
  if (const auto* each = std::get_if<RoleSeen>(&event)) {
    return have_all_answered(rank, each->number, role_) ? std::optional<Event>(*each)
                                                        : std::nullopt;
  }
  if (auto* each = std::get_if<RankIteration>(&event)) {
    auto iteration = iterations_.add(rank, std::move(each->record));
    iteration_ended_ = iteration_ended_ || iteration.has_value();
    if (iteration) requests_.iteration_ended(*iteration);
    ranks_->memory().control().next_iteration = iterations_.next();
    return iteration;
  }
  if (const auto* each = std::get_if<RoutedPart>(&event)) {
    auto whole = routed_.add(*each);
    return whole && requests_.routed(whole->request_index) ? std::optional<Event>(std::move(*whole))
                                                           : std::nullopt;
  }
  if (auto* each = std::get_if<Rebalance>(&event)) renumber(iterations_, each);
  if (auto* each = std::get_if<TrustChange>(&event)) {
    each->iteration = iterations_.number(each->iteration);
  }
  if (const auto* each = std::get_if<Token>(&event)) {
    requests_.answered(each->request_index, each->sampled.token,
                       each->finish_reason != engine::FinishReason::kNotFinished);
  }
  note_pages(rank, event);
  return std::visit(
      [](auto&& each) -> std::optional<Event> {
        using T = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<T, RankIteration> || std::is_same_v<T, RoutedPart> ||
                      std::is_same_v<T, PagesFound> || std::is_same_v<T, PagesFetched> ||
                      std::is_same_v<T, PagesArriving>) {
          return std::nullopt;  // handled above; Event does not have them
        } else {
          return Event(std::forward<decltype(each)>(each));
        }
      },
      std::move(event));
}

// What a rank says of pages is of the rank that has sent it.
void RankGroup::note_pages(int rank, RankEvent& event) {
  if (auto* found = std::get_if<PagesFound>(&event)) {
    found->rank = rank;
    requests_.found(*found);
  } else if (auto* arriving = std::get_if<PagesArriving>(&event)) {
    arriving->rank = rank;
    requests_.arriving(*arriving);
  } else if (auto* fetched = std::get_if<PagesFetched>(&event)) {
    fetched->rank = rank;
    requests_.fetched(*fetched);
  } else if (auto* changed = std::get_if<PagesChanged>(&event)) {
    changed->rank = rank;
    requests_.pages_changed(*changed);
  }
}

// Ranks that stay members answer again when the call is repeated to those that join.
bool RankGroup::have_all_answered(int rank, int number, NumberedCall& call) const {
  call.answers[rank] = number;
  const bool all = std::ranges::all_of(members_, [&](int member) {
    const auto answer = call.answers.find(member);
    return answer != call.answers.end() && answer->second == number;
  });
  if (!all || number <= call.last) return false;
  call.last = number;
  return true;
}

// When the last member has said so, nothing of an earlier epoch is on its way any more.
std::optional<Event> RankGroup::merge_change(int rank, MembersChanged change) {
  reloaded_ += change.reloaded;
  if (!iterations_.change(rank, change)) return std::nullopt;
  has_begun_ = true;  // a front that goes on where another one has died
  members_ = change.ranks;
  background_.restart();
  change.reloaded = std::exchange(reloaded_, 0);
  if (!run_.plan().is_elastic()) routed_.clear();
  change.replayed = requests_.change_members(change.epoch, change.ranks);
  return change;
}

}  // namespace wideep::run
