// SPDX-License-Identifier: Apache-2.0
#include "engine/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>

#include "base/cpu_time.h"
#include "base/try.h"
#include "engine/iteration_log.h"
#include "engine/rank_run.h"
#include "engine/run_settings.h"
#include "engine/run_text.h"
#include "formats/chrome_trace.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/utf8.h"
#include "transport/rank_processes.h"

namespace wideep::engine {
namespace {

constexpr int kLabelCharacters = 60;  // of a prompt, in the routing log

Result<std::vector<Request>> make_requests(const GenerateOptions& options, const RunFiles& files) {
  if (options.prompts.empty()) return invalid_input("no prompt: give --prompt or --prompts");
  std::vector<Request> requests;
  for (const std::string& prompt : options.prompts) {
    const int index = static_cast<int>(requests.size());
    Request request{.index = index,
                    .prompt = files.tokenizer->encode(prompt),
                    .max_tokens = options.max_tokens,
                    .sampling = options.sampling,
                    .draw = index};
    const int length = static_cast<int>(request.prompt.size());
    if (length == 0) return invalid_input(fmt::format("prompt {}: has no tokens", index));
    if (length + options.max_tokens > files.max_sequence) {
      return invalid_input(fmt::format(
          "prompt {}: {} tokens and {} to generate exceed the context of {} tokens; shorten it or "
          "lower --max-tokens",
          index, length, options.max_tokens, files.max_sequence));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// A rank's scheduler would refuse it too, but after all ranks have loaded their weights.
Status check_cache_size(const GenerateOptions& options, const std::vector<Request>& requests) {
  const auto max_tokens = options.parallel.kv_cache_config.max_tokens;
  if (!max_tokens) return {};
  const auto batch =
      static_cast<int>(options.parallel.max_num_tokens.value_or(kDefaultMaxNumTokens));
  const int turn = context_turn(options.parallel, batch);
  for (const Request& request : requests) {
    const int length = static_cast<int>(request.prompt.size());
    const int needed = most_pages_of_rank(pages_for(length + request.max_tokens),
                                          options.parallel.sizes.cp, turn / kernels::kPageTokens) *
                       kernels::kPageTokens;
    if (needed <= *max_tokens) continue;
    return invalid_input(fmt::format(
        "prompt {}: {} tokens and {} to generate: expected kv_cache_config.max_tokens of at least "
        "{} (whole pages of {} tokens), found {}",
        request.index, length, request.max_tokens, needed, kernels::kPageTokens, *max_tokens));
  }
  return {};
}

// Without a word of the configuration as much as the requests that can run at once on a rank need
// at most; of ranks that share sequences the first of each may have a page more.
SchedulerLimits limits_for(const GenerateOptions& options, const std::vector<Request>& requests) {
  SchedulerLimits limits = scheduler_limits(options);
  if (limits.max_pages > 0) return limits;
  const parallel::ParallelSizes& sizes = options.parallel.sizes;
  const int ranks = options.parallel.shares_batches() ? 1 : sizes.tp;
  std::vector<std::vector<int>> pages(ranks);  // of each rank's requests
  for (const Request& request : requests) {
    const int all = pages_for(static_cast<int>(request.prompt.size()) + request.max_tokens);
    pages[request.index % ranks].push_back(most_pages_of_rank(all, sizes.cp, limits.turn_pages));
  }
  const size_t running = static_cast<size_t>(limits.max_batch_size) * limits.micro_batches;
  for (std::vector<int>& each : pages) {
    std::sort(each.begin(), each.end(), std::greater<>());
    each.resize(std::min(each.size(), running));
    limits.max_pages = std::max(limits.max_pages, std::accumulate(each.begin(), each.end(), 0));
  }
  return limits;
}

// The first `count` characters, none of them cut.
std::string first_characters(std::string_view text, int count) {
  size_t bytes = 0;
  for (; count > 0 && bytes < text.size(); --count) {
    bytes += tokenizer::first_unit(text.substr(bytes)).bytes;
  }
  return std::string(text.substr(0, bytes));
}

// The parent's side of a run: turns the ranks' messages into a report.
class Collector {
 public:
  // log: null: none.
  Collector(const Run& run, const GenerateOptions& options, const GenerateObserver& observer,
            IterationLog* log)
      : setup_(run.setup()),
        options_(options),
        observer_(observer),
        log_(log),
        loads_(setup_.mapping.stage_size(), moe_layers_of_stages(setup_),
               setup_.options.routing_log),
        decoders_(setup_.requests.size(), tokenizer::StreamDecoder(run.tokenizer())),
        all_bytes_(bytes_to_load(setup_)) {
    report_.results.resize(setup_.requests.size());
    for (size_t i = 0; i < setup_.requests.size(); ++i) {
      report_.results[i].num_prompt_tokens = static_cast<int>(setup_.requests[i].prompt.size());
    }
    request_counts_.resize(setup_.requests.size());
    const transport::StartedRanks* started = setup_.options.started;
    if (started == nullptr || started->nodes().num_nodes() == 1) return;
    report_.nodes = {.num_nodes = started->nodes().num_nodes(),
                     .row_bytes = setup_.dispatch.row_bytes,
                     .result_bytes = setup_.dispatch.result_bytes,
                     .traffic = {}};
  }

  void loaded(uint64_t bytes) {
    loaded_bytes_ += bytes;
    if (all_bytes_ > 0 && observer_.on_loading) observer_.on_loading(loaded_bytes_, all_bytes_);
  }

  void message(int rank, std::string_view bytes) {
    read_message(bytes, {.on_loaded = [this](uint64_t count) { loaded(count); },
                         .on_token = [this](const TokenMessage& m) { token(m); },
                         .on_iteration = [&](IterationRecord r) { iteration(rank, std::move(r)); },
                         .on_request_counts =
                             [this](const RequestCountsMessage& m) { add_request_counts(m); },
                         .on_rebalance = [this](const online::Rebalance& r) { rebalance(r); },
                         .on_times =
                             [&](const RunTimes& times, const NodeTraffic& traffic) {
                               add_times(rank, times);
                               if (report_.nodes) report_.nodes->traffic.add(traffic);
                             }});
  }

  GenerateReport take(Status ended) {
    report_.ended = std::move(ended);
    report_.isa = setup_.kernels.isa;
    report_.load = loads_.totals();
    if (!setup_.online.empty()) report_.online = read_totals(setup_.online);
    if (first_ns_ > 0) report_.wall_seconds = static_cast<double>(last_ns_ - first_ns_) * 1e-9;
    if (setup_.options.routing_log && !loads_.log().empty()) report_.routing_log = routing_log();
    return std::move(report_);
  }

 private:
  // Of ranks that compute batches together each tells its part.
  void add_request_counts(const RequestCountsMessage& message) {
    std::vector<int64_t>& sums = request_counts_[message.request_index];
    sums.resize(message.counts.size());
    std::transform(sums.begin(), sums.end(), message.counts.begin(), sums.begin(), std::plus<>());
  }

  void token(const TokenMessage& message) {
    PromptResult& result = report_.results[message.request_index];
    const bool last = message.finish_reason != FinishReason::kNotFinished;
    result.tokens.push_back(message.sampled.token);
    result.log_probabilities.push_back(message.sampled.log_probability);
    result.finish_reason = message.finish_reason;
    result.digest = message.digest;
    std::string text = decoders_[message.request_index].push(message.sampled.token);
    if (last) text += decoders_[message.request_index].flush();
    result.text += text;
    if (observer_.on_text) observer_.on_text(message.request_index, text, last);
  }

  void iteration(int rank, IterationRecord record) {
    const int64_t now = base::wall_ns();
    if (first_ns_ == 0) {
      first_ns_ = now - record.wall_ns;
      report_.load_seconds = static_cast<double>(first_ns_ - created_ns_) * 1e-9;
    }
    last_ns_ = now;
    if (observer_.on_iteration) observer_.on_iteration(rank, record);
    const auto summary = loads_.add(rank, std::move(record));
    if (summary && log_ != nullptr) log_->add(*summary);
  }

  // A stage waits as long as its ranks do, on average.
  void add_times(int rank, const RunTimes& times) {
    if (setup_.mapping.sizes().pp == 1 || times.wall_ns == 0) return;
    const int stage = setup_.mapping.coordinates(rank).pp_rank;
    report_.stages.resize(static_cast<size_t>(setup_.mapping.sizes().pp));
    StageReport& report = report_.stages[static_cast<size_t>(stage)];
    report.layers = setup_.mapping.pp_layers(stage, setup_.config.num_layers);
    report.idle_share += static_cast<double>(times.stage_wait_ns) /
                         static_cast<double>(times.wall_ns) / setup_.mapping.stage_size();
  }

  void rebalance(const online::Rebalance& each) {
    report_.rebalances.push_back(each);
    if (log_ != nullptr) log_->add(each);
    if (observer_.on_rebalance) observer_.on_rebalance(each);
  }

  recordings::RoutingLog routing_log() const {
    const model::RoutingConfig& routing = setup_.config.routing;
    recordings::RoutingLog log;
    log.model = std::filesystem::path(setup_.options.model_dir).lexically_normal().filename();
    log.ep_size = setup_.mapping.stage_size();
    log.num_experts = routing.num_experts;
    log.num_slots = setup_.placement.num_slots;
    log.top_k = routing.top_k;
    log.layers = moe_layers(setup_.config);
    log.tokens_per_second = report_.tokens_per_second();
    log.critical_path_ms = report_.load.critical_path_experts_ms;
    log.wall_ms = report_.wall_seconds * 1e3;
    log.iterations = loads_.log();
    for (size_t i = 0; i < setup_.requests.size(); ++i) {
      log.requests.push_back(first_characters(options_.prompts[i], kLabelCharacters));
      auto& layers = log.request_counts.emplace_back(log.layers.size(),
                                                     std::vector<int64_t>(routing.num_experts));
      for (size_t j = 0; j < request_counts_[i].size(); ++j) {
        layers[j / routing.num_experts][j % routing.num_experts] = request_counts_[i][j];
      }
    }
    return log;
  }

  const RunSetup& setup_;
  const GenerateOptions& options_;
  const GenerateObserver& observer_;
  IterationLog* log_;
  GenerateReport report_;
  LoadCollector loads_;
  std::vector<tokenizer::StreamDecoder> decoders_;
  std::vector<std::vector<int64_t>> request_counts_;
  uint64_t all_bytes_;
  uint64_t loaded_bytes_ = 0;
  int64_t created_ns_ = base::wall_ns();
  int64_t first_ns_ = 0;
  int64_t last_ns_ = 0;
};

Status run_ranks(const RunSetup& setup, Collector& collector) {
  const transport::GroupOptions group{.num_ranks = setup.mapping.world_size(),
                                      .segment_bytes = segment_bytes(rank_setup(setup)),
                                      .timeout = setup.options.timeout};
  const auto body = [&](transport::Endpoint& endpoint, const transport::Messenger& parent) {
    return run_rank(setup, endpoint, parent);
  };
  const auto on_message = [&](int rank, std::string_view message) {
    collector.message(rank, message);
  };
  return setup.options.started != nullptr
             ? transport::run_started_ranks(*setup.options.started, group, body, on_message)
             : transport::run_rank_processes(group, body, on_message);
}

Result<GenerateReport> run(Run& run, const GenerateOptions& options,
                           const GenerateObserver& observer, IterationLog* log) {
  const RunSetup& setup = run.setup();
  if (observer.on_plan) observer.on_plan(plan_text(setup));
  Collector collector(run, options, observer, log);
  WIDEEP_TRY(agree_on(options, run.load([&](uint64_t bytes) { collector.loaded(bytes); })));
  const Status ended = run_ranks(setup, collector);
  GenerateReport report = collector.take(ended);
  if (setup.trace != nullptr) {
    const Status written = formats::write_chrome_trace(options.profile->path, *setup.trace);
    if (report.ended.ok()) report.ended = written;
  }
  if (log != nullptr && report.ended.ok()) report.ended = log->status();
  if (!ended.ok() && report.load.num_iterations == 0) return ended;
  return report;
}

// What every rank reads and finds before anything large is allocated.
struct Prepared {
  RunFiles files;
  RunShapes shapes;
  std::vector<Request> requests;
  std::optional<IterationLog> log;
};

Result<Prepared> prepare(const GenerateOptions& options) {
  WIDEEP_TRY_ASSIGN(RunFiles files, read_run_files(options));
  WIDEEP_TRY_ASSIGN(std::vector<Request> requests, make_requests(options, files));
  WIDEEP_TRY(check_cache_size(options, requests));
  WIDEEP_TRY_ASSIGN(RunShapes shapes, run_shapes(options, files, limits_for(options, requests)));
  WIDEEP_TRY_ASSIGN(std::optional<IterationLog> log, create_iteration_log(options));
  return Prepared{std::move(files), std::move(shapes), std::move(requests), std::move(log)};
}

}  // namespace

Result<GenerateReport> generate(const GenerateOptions& options, const GenerateObserver& observer) {
  Result<Prepared> prepared = prepare(options);
  const bool compares = prepared.ok() && options.started != nullptr;
  WIDEEP_TRY(agree_on(options, prepared.status(),
                      compares
                          ? generate_settings(options, *prepared->files.kernels, prepared->requests)
                          : transport::Settings()));
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<Run> prepared_run,
                    Run::make(options, std::move(prepared->files), std::move(prepared->shapes),
                              std::move(prepared->requests)));
  return run(*prepared_run, options, observer, prepared->log ? &*prepared->log : nullptr);
}

}  // namespace wideep::engine
