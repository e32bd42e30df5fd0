// SPDX-License-Identifier: Apache-2.0
#include "engine/serve.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include "base/byte_size.h"
#include "base/machine.h"
#include "base/try.h"
#include "engine/iteration_log.h"
#include "engine/page_pool.h"
#include "engine/run_settings.h"
#include "engine/run_text.h"
#include "formats/chrome_trace.h"

namespace wideep::engine {
namespace {

// Pipes to the ranks, made before these are forked; of started ranks one to rank 0.
class Feeds {
 public:
  static Result<Feeds> make(const RunSetup& setup) {
    Feeds feeds;
    const transport::StartedRanks* started = setup.options.started;
    feeds.reading_.assign(static_cast<size_t>(setup.mapping.world_size()), kNone);
    for (size_t rank = 0; rank < feeds.reading_.size(); ++rank) {
      if (started != nullptr && (rank != 0 || started->rank() != 0)) continue;
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0) {
        return failed(fmt::format("pipe: {}", std::strerror(errno)));
      }
      feeds.reading_[rank] = ends[0];
      feeds.writing_.push_back(ends[1]);
    }
    return feeds;
  }
  Feeds() = default;
  Feeds(Feeds&&) = default;
  Feeds& operator=(Feeds&&) = delete;
  ~Feeds() {
    close_reading();
    for (const int fd : writing_) ::close(fd);
  }

  // Once forked ranks have them, or the started ones have ended: writing to a rank that is gone
  // fails then, and never waits.
  void close_reading() {
    for (const int fd : std::exchange(reading_, {})) {
      if (fd != kNone) ::close(fd);
    }
  }

  const std::vector<int>& reading() const { return reading_; }
  const std::vector<int>& writing() const { return writing_; }

 private:
  static constexpr int kNone = -1;
  std::vector<int> reading_;  // [num_ranks]
  std::vector<int> writing_;
};

int pages_of_longest(const RunOptions& options, const SchedulerLimits& limits, int tokens) {
  return most_pages_of_rank(pages_for(tokens), options.parallel.sizes.cp, limits.turn_pages);
}

int ranks_here(const RunOptions& options) {
  if (options.started == nullptr) return options.parallel.mapping().world_size();
  return static_cast<int>(options.started->nodes().ranks_of(options.started->node()).size());
}

// As the configuration says; else as many full sequences as run at once, or what memory allows.
Result<int> cache_pages(const RunOptions& options, const RunFiles& files,
                        const SchedulerLimits& limits) {
  const int longest = pages_of_longest(options, limits, files.max_sequence);
  const parallel::ParallelConfig& parallel = options.parallel;
  if (const auto max_tokens = parallel.kv_cache_config.max_tokens) {
    if (limits.max_pages > 0) return limits.max_pages;
    return invalid_input(
        fmt::format("{}: kv_cache_config.max_tokens: expected at least {}, a page, found {}",
                    parallel.name, kernels::kPageTokens, *max_tokens));
  }
  const model::KvLayout kv(files.config, options.cache_dtype(),
                           parallel.shares_batches() ? parallel.sizes.tp : 1);
  const uint64_t bytes = base::read_machine().usable_memory_bytes();
  const double share = static_cast<double>(bytes) * options.cache_share / ranks_here(options);
  const double most = share / static_cast<double>(kv.page_bytes());
  const double wanted = static_cast<double>(longest) * limits.max_batch_size * limits.micro_batches;
  const int pages = static_cast<int>(std::min(most, wanted));
  if (pages > 0) return pages;
  return failed(fmt::format("memory: {} free is too little for a page of the KV cache ({})",
                            base::byte_size(bytes), base::byte_size(kv.page_bytes())));
}

// What every rank reads and finds before anything large is allocated.
struct Prepared {
  RunFiles files;
  RunShapes shapes;
};

Result<Prepared> prepare(const RunOptions& options) {
  WIDEEP_TRY_ASSIGN(RunFiles files, read_run_files(options));
  SchedulerLimits limits = scheduler_limits(options);
  WIDEEP_TRY_ASSIGN(limits.max_pages, cache_pages(options, files, limits));
  WIDEEP_TRY_ASSIGN(RunShapes shapes, run_shapes(options, files, limits));
  return Prepared{std::move(files), std::move(shapes)};
}

// All ranks have as much room as the one that has least.
Status agree_on_pages(const RunOptions& options, SchedulerLimits* limits) {
  if (options.started == nullptr) return {};
  constexpr std::chrono::seconds kPatience{60};
  WIDEEP_TRY_ASSIGN(const uint64_t least,
                    options.started->least(static_cast<uint64_t>(limits->max_pages), kPatience));
  limits->max_pages = static_cast<int>(least);
  return {};
}

// What ranks tell of iterations, put together for whoever wants it.
class IterationWatch {
 public:
  IterationWatch(const RunSetup& setup, const ServeObserver& observer,
                 std::optional<IterationLog> log)
      : observer_(observer), log_(std::move(log)) {
    if (!log_ && !observer.on_summary) return;
    loads_.emplace(setup.mapping.stage_size(), moe_layers_of_stages(setup), false);
  }

  void add(int rank, IterationRecord record) {
    if (observer_.on_iteration) observer_.on_iteration(rank, record);
    if (!loads_) return;
    const auto summary = loads_->add(rank, std::move(record));
    if (!summary) return;
    if (log_) log_->add(*summary);
    if (observer_.on_summary) observer_.on_summary(*summary);
  }
  void add(const online::Rebalance& each) {
    if (log_) log_->add(each);
    if (observer_.on_rebalance) observer_.on_rebalance(each);
  }
  Status status() const { return log_ ? log_->status() : Status(); }

 private:
  const ServeObserver& observer_;
  std::optional<IterationLog> log_;
  std::optional<LoadCollector> loads_;
};

// Whom the parent tells of what ranks say.
MessageHandler handler_for(IterationWatch& watch, int rank,
                           const std::function<void(uint64_t)>& on_loaded,
                           const std::function<void(const TokenMessage&)>& on_token,
                           const std::function<void()>& on_ready,
                           const std::function<void(bool)>& on_record_experts) {
  return {.on_loaded = on_loaded,
          .on_token = on_token,
          .on_iteration = [&watch, rank](IterationRecord r) { watch.add(rank, std::move(r)); },
          .on_request_counts = [](const RequestCountsMessage&) {},
          .on_rebalance = [&watch](const online::Rebalance& each) { watch.add(each); },
          .on_times = [](const RunTimes&, const NodeTraffic&) {},
          .on_ready = on_ready,
          .on_record_experts = on_record_experts};
}

}  // namespace

RequestWriter::RequestWriter(const std::vector<int>& fds, int num_owners,
                             std::shared_ptr<transport::SharedMemory> memory)
    : memory_(std::move(memory)), tokens_of_owner_(static_cast<size_t>(num_owners)) {
  for (const int fd : fds) pipes_.push_back(std::make_unique<transport::MessagePipe>(fd));
}

void RequestWriter::submit(Request request) {
  const std::lock_guard lock(mutex_);
  const auto least = std::min_element(tokens_of_owner_.begin(), tokens_of_owner_.end());
  const int owner = static_cast<int>(least - tokens_of_owner_.begin());
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  running_[request.index] = {owner, tokens};
  *least += tokens;
  tell({.kind = Command::Kind::kSubmit, .owner = owner, .request = std::move(request)});
}

void RequestWriter::cancel(int index) {
  const std::lock_guard lock(mutex_);
  take_off(index);
  tell({.kind = Command::Kind::kCancel, .request = {.index = index}});
}

void RequestWriter::record_experts(bool records) {
  const std::lock_guard lock(mutex_);
  tell(
      {.kind = records ? Command::Kind::kRecordExperts : Command::Kind::kEndRecord, .request = {}});
}

void RequestWriter::finished(int index) {
  const std::lock_guard lock(mutex_);
  take_off(index);
}

void RequestWriter::stop() {
  memory_->control().stop_requested = 1;
  const std::lock_guard lock(mutex_);
  tell({.kind = Command::Kind::kStop, .request = {}});
}

// A rank that no longer reads has failed, which the run's end says.
void RequestWriter::tell(const Command& command) {
  const std::string message = encode(command);
  for (const auto& pipe : pipes_) {
    [[maybe_unused]] const Status sent = pipe->send(message);
  }
}

void RequestWriter::take_off(int index) {
  const auto found = running_.find(index);
  if (found == running_.end()) return;
  tokens_of_owner_[static_cast<size_t>(found->second.owner)] -= found->second.tokens;
  running_.erase(found);
}

Result<std::unique_ptr<Run>> prepare_to_serve(const RunOptions& options) {
  Result<Prepared> prepared = prepare(options);
  const bool compares = prepared.ok() && options.started != nullptr;
  WIDEEP_TRY(
      agree_on(options, prepared.status(),
               compares ? run_settings(options, *prepared->files.kernels) : transport::Settings()));
  WIDEEP_TRY(agree_on_pages(options, &prepared->shapes.limits));
  return Run::make(options, std::move(prepared->files), std::move(prepared->shapes), {});
}

int max_sequence(const Run& run) {
  const RunSetup& setup = run.setup();
  // The first of ranks that share sequences may have a turn more than the others.
  int tokens = run.max_sequence();
  while (tokens > 1 &&
         pages_of_longest(setup.options, setup.limits, tokens) > setup.limits.max_pages) {
    tokens = (pages_for(tokens) - 1) * kernels::kPageTokens;
  }
  return tokens;
}

ExpertRanks expert_ranks(const Run& run) {
  const RunSetup& setup = run.setup();
  const parallel::Mapping& mapping = setup.mapping;
  ExpertRanks all{.stage_size = mapping.stage_size(),
                  .ranks = {},
                  .statistics = {.num_experts = setup.config.routing.num_experts,
                                 .top_k = setup.config.routing.top_k,
                                 .ep_size = mapping.stage_size()}};
  for (int rank = 0; rank < mapping.world_size(); ++rank) {
    const StatisticsPart part = statistics_part(setup, rank);
    all.statistics.num_stages = part.num_stages;
    const parallel::LayerRange layers =
        mapping.pp_layers(mapping.coordinates(rank).pp_rank, setup.config.num_layers);
    ExpertRanks::Rank& each = all.ranks.emplace_back();
    each.file = part.file;
    for (const auto& [layer, placement] : setup.placement.layers) {
      if (layers.contains(layer)) each.moe_layers.push_back(layer);
    }
  }
  return all;
}

Status serve(Run& run, const ServeObserver& observer) {
  const RunSetup& setup = run.setup();
  Result<std::optional<IterationLog>> log = create_iteration_log(setup.options);
  WIDEEP_TRY(agree_on(setup.options, log.status()));  // only rank 0 has one
  IterationWatch watch(setup, observer, std::move(*log));
  if (observer.on_plan) observer.on_plan(plan_text(setup));
  uint64_t loaded = 0;
  const uint64_t all = bytes_to_load(setup);
  const auto on_loaded = [&](uint64_t bytes) {
    loaded += bytes;
    if (all > 0 && observer.on_loading) observer.on_loading(loaded, all);
  };
  WIDEEP_TRY(agree_on(setup.options, run.load(on_loaded)));
  const int num_ranks = setup.mapping.world_size();
  WIDEEP_TRY_ASSIGN(Feeds feeds, Feeds::make(setup));
  run.set_feeds(feeds.reading());
  ::signal(SIGPIPE, SIG_IGN);  // ranks that are gone are told of otherwise
  std::shared_ptr<transport::SharedMemory> memory;
  std::mutex mutex;  // on_stop of started ranks is called on another thread
  std::optional<RequestWriter> writer;
  int num_ready = 0;
  const auto on_ready = [&] {
    if (++num_ready < num_ranks) return;
    const std::lock_guard lock(mutex);
    writer.emplace(feeds.writing(), setup.joint ? 1 : setup.mapping.sizes().tp, memory);
    if (observer.on_ready) observer.on_ready(*writer);
  };
  int num_told = 0;
  const auto on_record_experts = [&](bool records) {
    if (++num_told % num_ranks != 0) return;
    if (observer.on_record_experts) observer.on_record_experts(records);
  };
  const auto on_token = [&](const TokenMessage& message) {
    if (message.finish_reason != FinishReason::kNotFinished)
      writer->finished(message.request_index);
    if (observer.on_token) observer.on_token(message);
  };
  const transport::StartedRanks* started = setup.options.started;
  const bool decides = started == nullptr || started->rank() == 0;
  std::vector<MessageHandler> handlers;
  for (int rank = 0; rank < num_ranks; ++rank) {
    handlers.push_back(handler_for(watch, rank, on_loaded, on_token, on_ready, on_record_experts));
  }
  const auto on_stop = [&](int signal) {
    const std::lock_guard lock(mutex);
    if ((writer || !decides) && observer.on_stop) return observer.on_stop(signal);
    memory->control().stop_requested = 1;  // nobody is served yet
    return std::chrono::milliseconds(700);
  };
  const auto on_started = [&](const std::shared_ptr<transport::SharedMemory>& made) {
    memory = made;
    if (started == nullptr) feeds.close_reading();
  };
  const transport::GroupOptions group{.num_ranks = num_ranks,
                                      .segment_bytes = segment_bytes(rank_setup(setup)),
                                      .timeout = setup.options.timeout,
                                      .on_started = on_started,
                                      .on_stop = on_stop};
  const auto body = [&](transport::Endpoint& endpoint, const transport::Messenger& parent) {
    return run_rank(setup, endpoint, parent);
  };
  const auto on_message = [&](int rank, std::string_view message) {
    read_message(message, handlers[static_cast<size_t>(rank)]);
  };
  const Status ended = started != nullptr ? transport::run_started_ranks(*setup.options.started,
                                                                         group, body, on_message)
                                          : transport::run_rank_processes(group, body, on_message);
  feeds.close_reading();
  if (writer && observer.on_ended) observer.on_ended();
  Status written;
  if (setup.trace != nullptr) {
    written = formats::write_chrome_trace(setup.options.profile->path, *setup.trace);
  }
  WIDEEP_TRY(ended);
  WIDEEP_TRY(written);
  return watch.status();
}

}  // namespace wideep::engine
