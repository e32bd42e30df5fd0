// SPDX-License-Identifier: Apache-2.0
#include "engine/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>

#include "base/cpu_time.h"
#include "base/machine.h"
#include "base/try.h"
#include "engine/memory_plan.h"
#include "engine/rank_run.h"
#include "ep/strategy.h"
#include "formats/chrome_trace.h"
#include "parallel/initial_placement.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/utf8.h"

namespace wideep::engine {
namespace {

constexpr int kLabelCharacters = 60;  // of a prompt, in the routing log

// Every request of a batch needs room for at least its next token.
Status check_batch_size(const parallel::ParallelConfig& config) {
  const int64_t tokens = config.max_num_tokens.value_or(kDefaultMaxNumTokens);
  if (!config.max_batch_size || *config.max_batch_size <= tokens) return {};
  return invalid_input(fmt::format(
      "{}: max_batch_size: expected at most max_num_tokens ({}), found {}; lower one or raise the "
      "other",
      config.name, tokens, *config.max_batch_size));
}

Result<std::vector<Request>> make_requests(const GenerateOptions& options,
                                           const model::ModelConfig& config,
                                           const tokenizer::Tokenizer& tokenizer) {
  if (options.prompts.empty()) return invalid_input("no prompt: give --prompt or --prompts");
  const int64_t limit = options.parallel.max_seq_len.value_or(config.max_position_embeddings);
  if (limit > config.max_position_embeddings) {
    return invalid_input(fmt::format(
        "{}: max_seq_len: expected at most the model's max_position_embeddings {}, found {}",
        options.parallel.name, config.max_position_embeddings, limit));
  }
  std::vector<Request> requests;
  for (const std::string& prompt : options.prompts) {
    const int index = static_cast<int>(requests.size());
    Request request{.index = index,
                    .prompt = tokenizer.encode(prompt),
                    .max_tokens = options.max_tokens,
                    .sampling = options.sampling};
    const int length = static_cast<int>(request.prompt.size());
    if (length == 0) return invalid_input(fmt::format("prompt {}: has no tokens", index));
    if (length + options.max_tokens > limit) {
      return invalid_input(fmt::format(
          "prompt {}: {} tokens and {} to generate exceed the context of {} tokens; shorten it or "
          "lower --max-tokens",
          index, length, options.max_tokens, limit));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// A rank's scheduler would refuse it too, but after all ranks have loaded their weights.
Status check_cache_size(const GenerateOptions& options, const std::vector<Request>& requests) {
  const auto max_tokens = options.parallel.kv_cache_config.max_tokens;
  if (!max_tokens) return {};
  for (const Request& request : requests) {
    const int length = static_cast<int>(request.prompt.size());
    const int needed = pages_for(length + request.max_tokens) * kernels::kPageTokens;
    if (needed <= *max_tokens) continue;
    return invalid_input(fmt::format(
        "prompt {}: {} tokens and {} to generate: expected kv_cache_config.max_tokens of at least "
        "{} (whole pages of {} tokens), found {}",
        request.index, length, request.max_tokens, needed, kernels::kPageTokens, *max_tokens));
  }
  return {};
}

SchedulerLimits scheduler_limits(const GenerateOptions& options,
                                 const std::vector<Request>& requests) {
  SchedulerLimits limits;
  limits.max_num_tokens =
      static_cast<int>(options.parallel.max_num_tokens.value_or(kDefaultMaxNumTokens));
  limits.max_batch_size = static_cast<int>(options.parallel.max_batch_size.value_or(
      std::min(kDefaultMaxBatchSize, limits.max_num_tokens)));
  limits.prefill_chunk = options.prefill_chunk;
  if (const auto max_tokens = options.parallel.kv_cache_config.max_tokens) {
    limits.max_pages = static_cast<int>(*max_tokens / kernels::kPageTokens);
    return limits;
  }
  // As much as all requests of the fullest rank need at once.
  const int ranks = options.parallel.shares_batches() ? 1 : options.parallel.sizes.moe_ep;
  std::vector<int> pages(ranks);
  for (const Request& request : requests) {
    pages[request.index % ranks] +=
        pages_for(static_cast<int>(request.prompt.size()) + request.max_tokens);
  }
  limits.max_pages = *std::max_element(pages.begin(), pages.end());
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

double mebibytes(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// What online balancing does and costs beside the slots: a line, or nothing.
std::string online_text(const RunSetup& setup) {
  if (setup.online == nullptr) return "";
  const OnlineParts& parts = *setup.online;
  return fmt::format(
      "\nonline  balancing of up to {} layer{} at once; host pool {:.1f} MiB{}, spares per rank {} "
      "({:.1f} MiB)",
      parts.balancer.layers_in_flight, parts.balancer.layers_in_flight == 1 ? "" : "s",
      mebibytes(parts.pool->total_bytes()),
      parts.pool->in_huge_pages() ? " in reserved huge pages" : "", parts.balancer.num_spares,
      mebibytes(parts.spare_bytes_per_rank()));
}

// How rows travel between ranks.
std::string rows_text(const RunSetup& setup) {
  const auto in = [&](kernels::RowFormat format) {
    return fmt::format("{} ({} bytes each)", kernels::row_format_name(format),
                       kernels::row_bytes(format, setup.config.hidden_size));
  };
  const bool reduced = setup.dispatch.combine == ep::Combine::kReduced;
  return fmt::format(
      "\nrows    dispatched in {}, returned in {}, {}", in(setup.moe.dispatch_format()),
      in(setup.moe.combine_format()),
      reduced ? "a sum for each token and rank: bits depend on EP size and placement"
              : "one for each token and expert: the same bits for every EP size and placement");
}

// What runs and what it costs, before anything large is allocated.
std::string plan_text(const RunSetup& setup) {
  const model::ModelConfig& config = setup.config;
  const int ranks = setup.dispatch.ep_size;
  const MemoryPlan plan =
      plan_memory(config, setup.dispatch, setup.forms, setup.options.cache_dtype(), setup.joint);
  return fmt::format(
             "model   {}: {} layers, {} of them MoE with {} experts, top {}; {} weights, kernels "
             "{}\n"
             "ranks   {} × {} thread{}; {} slots per rank ({} in all, {} redundant)\n"
             "memory  per rank: slots {:.1f} MiB, symmetric memory {:.1f} MiB, KV cache ({}) up to "
             "{:.1f} "
             "MiB\n"
             "experts {}",
             std::filesystem::path(setup.options.model_dir).lexically_normal().string(),
             config.num_layers, config.num_moe_layers(), config.routing.num_experts,
             config.routing.top_k, setup.forms.format_names(), setup.kernels.isa, ranks,
             setup.threads.threads_per_rank, setup.threads.threads_per_rank == 1 ? "" : "s",
             setup.dispatch.slots_per_rank, setup.placement.num_slots,
             setup.placement.num_slots - config.routing.num_experts, mebibytes(plan.slots_per_rank),
             mebibytes(plan.symmetric_memory_per_rank), dtype_name(setup.options.cache_dtype()),
             mebibytes(plan.kv_page_bytes * static_cast<uint64_t>(setup.limits.max_pages)),
             ep::choose_strategy(setup.dispatch).reason()) +
         rows_text(setup) + online_text(setup) +
         (setup.moe.perfect_router
              ? "\nrouter  perfect: tokens go to all ranks evenly; the texts mean nothing"
              : "");
}

// Checkpoint bytes that loading will read: dense once; each slot's expert, or with a host pool each
// expert once.
uint64_t bytes_to_load(const RunSetup& setup) {
  constexpr std::string_view kExperts = ".mlp.experts.";
  const std::string mtp = fmt::format("model.layers.{}.", setup.config.num_layers);
  uint64_t bytes = 0;
  std::map<std::string, uint64_t, std::less<>> of_expert;  // by "model.layers.0.mlp.experts.0"
  for (const std::string& name : setup.checkpoint.names()) {
    const size_t at = name.find(kExperts);
    if (at != name.npos) {
      const size_t end = std::min(name.find('.', at + kExperts.size()), name.size());
      of_expert[name.substr(0, end)] += setup.checkpoint.tensor_bytes(name);
    } else if (!name.starts_with(mtp)) {
      bytes += setup.checkpoint.tensor_bytes(name);
    }
  }
  for (const auto& [layer, placement] : setup.placement.layers) {
    std::vector<int32_t> experts = placement.slot_to_expert;
    if (setup.online != nullptr) {
      std::sort(experts.begin(), experts.end());
      experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    }
    for (const int32_t expert : experts) {
      bytes += of_expert[fmt::format("model.layers.{}.mlp.experts.{}", layer, expert)];
    }
  }
  return bytes;
}

// The parent's side of a run: turns the ranks' messages into a report.
class Collector {
 public:
  Collector(const RunSetup& setup, const tokenizer::Tokenizer& tokenizer,
            const GenerateObserver& observer)
      : setup_(setup),
        observer_(observer),
        loads_(setup.dispatch.ep_size, moe_layers(setup.config), setup.options.routing_log),
        decoders_(setup.requests.size(), tokenizer::StreamDecoder(tokenizer)),
        all_bytes_(bytes_to_load(setup)) {
    report_.results.resize(setup.requests.size());
    for (size_t i = 0; i < setup.requests.size(); ++i) {
      report_.results[i].num_prompt_tokens = static_cast<int>(setup.requests[i].prompt.size());
    }
    request_counts_.resize(setup.requests.size());
  }

  void loaded(uint64_t bytes) {
    loaded_bytes_ += bytes;
    if (observer_.on_loading) observer_.on_loading(loaded_bytes_, all_bytes_);
  }

  void message(int rank, std::string_view bytes) {
    read_message(bytes, {.on_loaded = [this](uint64_t count) { loaded(count); },
                         .on_token = [this](const TokenMessage& m) { token(m); },
                         .on_iteration = [&](IterationRecord r) { iteration(rank, std::move(r)); },
                         .on_request_counts =
                             [this](const RequestCountsMessage& m) { add_request_counts(m); },
                         .on_rebalance = [this](const online::Rebalance& r) { rebalance(r); }});
  }

  GenerateReport take(Status ended) {
    report_.ended = std::move(ended);
    report_.isa = setup_.kernels.isa;
    report_.load = loads_.totals();
    if (setup_.online != nullptr) report_.online = read_totals(*setup_.online->board);
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
    loads_.add(rank, std::move(record));
  }

  void rebalance(const online::Rebalance& each) {
    report_.rebalances.push_back(each);
    if (observer_.on_rebalance) observer_.on_rebalance(each);
  }

  balance::RoutingLog routing_log() const {
    const model::RoutingConfig& routing = setup_.config.routing;
    balance::RoutingLog log;
    log.model = std::filesystem::path(setup_.options.model_dir).lexically_normal().filename();
    log.ep_size = setup_.dispatch.ep_size;
    log.num_experts = routing.num_experts;
    log.num_slots = setup_.placement.num_slots;
    log.top_k = routing.top_k;
    log.layers = moe_layers(setup_.config);
    log.tokens_per_second = report_.tokens_per_second();
    log.critical_path_ms = report_.load.critical_path_experts_ms;
    log.wall_ms = report_.wall_seconds * 1e3;
    log.iterations = loads_.log();
    for (size_t i = 0; i < setup_.requests.size(); ++i) {
      log.requests.push_back(first_characters(setup_.options.prompts[i], kLabelCharacters));
      auto& layers = log.request_counts.emplace_back(log.layers.size(),
                                                     std::vector<int64_t>(routing.num_experts));
      for (size_t j = 0; j < request_counts_[i].size(); ++j) {
        layers[j / routing.num_experts][j % routing.num_experts] = request_counts_[i][j];
      }
    }
    return log;
  }

  const RunSetup& setup_;
  const GenerateObserver& observer_;
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

// What all ranks share, before there are any: on all the threads they will have, which end here.
Result<model::ModelWeights> load_weights(const RunSetup& setup, Collector& collector) {
  const int threads = setup.dispatch.ep_size * setup.threads.threads_per_rank;
  base::ThreadPool pool(std::min(threads, base::read_machine().usable_cores()));
  const weights::WeightLoader loader(
      setup.checkpoint, setup.options.format, [&](uint64_t bytes) { collector.loaded(bytes); },
      &pool);
  return model::ModelWeights::load(setup.config, loader);
}

// weights: where setup.weights points to.
Result<GenerateReport> run(const RunSetup& setup, model::ModelWeights* weights,
                           const tokenizer::Tokenizer& tokenizer,
                           const GenerateObserver& observer) {
  if (observer.on_plan) observer.on_plan(plan_text(setup));
  if (setup.online != nullptr) {
    const MemoryPlan plan = plan_memory(setup.config, setup.dispatch, setup.forms,
                                        setup.options.cache_dtype(), setup.joint);
    WIDEEP_TRY(
        check_online_memory(*setup.online, plan, base::read_machine().usable_memory_bytes()));
  }
  Collector collector(setup, tokenizer, observer);
  WIDEEP_TRY_ASSIGN(*weights, load_weights(setup, collector));
  const Status ended = transport::run_rank_processes(
      {.num_ranks = setup.dispatch.ep_size,
       .segment_bytes = ep::BufferLayout(setup.dispatch).segment_bytes() +
                        (setup.joint ? setup.joint->bytes() : 0),
       .timeout = setup.options.timeout},
      [&](transport::Endpoint& endpoint, const transport::MessagePipe& pipe) {
        return run_rank(setup, endpoint, pipe);
      },
      [&](int rank, std::string_view message) { collector.message(rank, message); });
  GenerateReport report = collector.take(ended);
  if (setup.trace != nullptr) {
    const Status written = formats::write_chrome_trace(setup.options.profile->path, *setup.trace);
    if (report.ended.ok()) report.ended = written;
  }
  if (!ended.ok() && report.load.num_iterations == 0) return ended;
  return report;
}

}  // namespace

Result<GenerateReport> generate(const GenerateOptions& options, const GenerateObserver& observer) {
  WIDEEP_TRY_ASSIGN(const kernels::Kernels* kernels,
                    kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  WIDEEP_TRY(check_batch_size(options.parallel));
  WIDEEP_TRY_ASSIGN(const model::ModelConfig config, model::read_model_config(options.model_dir));
  if (options.perfect_router) {
    WIDEEP_TRY(model::PerfectRouter::check(config.routing, options.parallel.sizes.moe_ep));
  }
  WIDEEP_TRY_ASSIGN(const balance::ModelPlacement placement,
                    parallel::initial_placement(options.parallel,
                                                {moe_layers(config), config.routing.num_experts}));
  WIDEEP_TRY_ASSIGN(const tokenizer::Tokenizer tokenizer,
                    tokenizer::Tokenizer::read(options.model_dir));
  if (tokenizer.id_limit() > config.vocab_size) {
    return invalid_input(
        fmt::format("{}/tokenizer.json: has token ids up to {}, but config.json: vocab_size is {}",
                    options.model_dir, tokenizer.id_limit() - 1, config.vocab_size));
  }
  WIDEEP_TRY_ASSIGN(std::vector<Request> requests, make_requests(options, config, tokenizer));
  WIDEEP_TRY(check_cache_size(options, requests));
  WIDEEP_TRY_ASSIGN(const weights::Checkpoint checkpoint,
                    weights::Checkpoint::open(options.model_dir));
  if (options.statistics) {
    WIDEEP_TRY(balance::prepare_statistics_directory(options.statistics->directory));
  }

  model::ModelWeights weights;
  const SchedulerLimits limits = scheduler_limits(options, requests);
  const weights::WeightLoader looking(checkpoint, options.format);
  const model::ModelForms forms = model::model_forms(config, looking);
  WIDEEP_TRY_ASSIGN(model::MoeOptions moe,
                    moe_options(options.parallel, config, forms.experts.format));
  moe.perfect_router = options.perfect_router;
  WIDEEP_TRY_ASSIGN(
      const std::optional<model::JointLayout> joint,
      joint_layout(options.parallel, config, limits.max_num_tokens, limits.max_batch_size));
  std::optional<OnlineParts> online;
  if (placement.layer_updates_per_iter > 0) {
    Result<OnlineParts> parts = make_online_parts(model::experts_shape(config, looking), placement);
    if (!parts.ok()) return parts.status().at(parallel::balancer_name(options.parallel));
    online = std::move(*parts);
    if (options.adjust_online) options.adjust_online(*online);
  }
  std::optional<base::TraceBuffer> trace;
  if (options.profile) {
    WIDEEP_TRY_ASSIGN(trace, base::TraceBuffer::create(options.parallel.sizes.moe_ep));
  }
  const RunSetup setup{
      .options = options,
      .config = config,
      .checkpoint = checkpoint,
      .forms = forms,
      .placement = placement,
      .kernels = *kernels,
      .weights = weights,
      .requests = std::move(requests),
      .dispatch =
          dispatch_shape(config, options.parallel.sizes.moe_ep, placement.num_slots,
                         dispatched_tokens(options.parallel, limits.max_num_tokens), moe,
                         options.parallel.moe_config.max_num_tokens, combine_of(options.parallel)),
      .moe = moe,
      .limits = limits,
      .joint = joint,
      .threads = plan_threads(base::read_machine(), options.parallel.sizes.moe_ep,
                              options.threads_per_rank),
      .online = online ? &*online : nullptr,
      .trace = trace ? &*trace : nullptr};
  return run(setup, &weights, tokenizer, observer);
}

}  // namespace wideep::engine
