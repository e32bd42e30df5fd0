// SPDX-License-Identifier: Apache-2.0
//
// prepare() reads everything that can be wrong and plans; start() loads and forks; next() hands
// events through, and takes from each what the report needs (a take() for each kind of event).
//
// The cache is as large as the prompts need, since all of them are known: the largest requests of a
// rank, as many as run at once. Errors of inputs go through Run::prepare(), because ranks that a
// launcher has started must all learn of them.
#include "run/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/byte_size.h"
#include "base/content_hash.h"
#include "base/cpu_time.h"
#include "base/try.h"
#include "model/model_division.h"
#include "run/cache_memory.h"
#include "schedule/page_pool.h"
#include "tokenizer/utf8.h"

namespace wideep::run {
namespace {

using engine::Request;
using engine::SchedulerLimits;

constexpr int kLabelCharacters = 60;  // of a prompt, in the routing log

Result<std::vector<Request>> make_requests(const GenerateOptions& options, const RunInputs& inputs,
                                           int max_sequence) {
  if (options.prompts.empty()) return invalid_input("no prompt: give --prompt or --prompts");
  std::vector<Request> requests;
  for (const std::string& prompt : options.prompts) {
    const int index = static_cast<int>(requests.size());
    Request request{.index = index,
                    .prompt = inputs.tokenizer->encode(prompt, options.adds_special_tokens),
                    .max_tokens = options.max_tokens,
                    .sampling = options.sampling,
                    .grammar = options.grammar,
                    .draw = index};
    const int length = static_cast<int>(request.prompt.size());
    if (length == 0) return invalid_input(fmt::format("prompt {}: has no tokens", index));
    if (options.shortens_to_context && length < max_sequence) {
      request.max_tokens = std::min(request.max_tokens, max_sequence - length);
    }
    if (length + request.max_tokens > max_sequence) {
      return invalid_input(fmt::format(
          "prompt {}: {} tokens and {} to generate exceed the context of {} tokens; shorten it or "
          "lower --max-tokens",
          index, length, request.max_tokens, max_sequence));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// The KV cache pages of a request on one rank; with context parallelism, on the rank with the most.
int pages_of_rank(const GenerateOptions& options, const SchedulerLimits& limits,
                  const Request& request) {
  const int tokens = static_cast<int>(request.prompt.size()) + request.max_tokens;
  return engine::max_pages_of_rank(engine::pages_for(tokens), options.parallel.sizes.cp,
                                   limits.turn_pages);
}

// The same as below of --kv-cache-memory.
Status check_cache_memory(const GenerateOptions& options, const ModelFacts& model,
                          const std::vector<Request>& requests) {
  const uint64_t page_bytes = page_bytes_of_rank(model, options.parallel);
  const SchedulerLimits limits = scheduler_limits(options);
  for (const Request& request : requests) {
    const uint64_t needed =
        page_bytes * static_cast<uint64_t>(pages_of_rank(options, limits, request));
    if (needed <= *options.cache_bytes) continue;
    return invalid_input(fmt::format(
        "prompt {}: {} tokens and {} to generate: expected --kv-cache-memory of at least {}, found "
        "{}",
        request.index, request.prompt.size(), request.max_tokens, memory_to_give(needed),
        base::byte_size(*options.cache_bytes)));
  }
  return {};
}

// A rank's scheduler would refuse it too, but after all ranks have loaded their weights.
Status check_cache_size(const GenerateOptions& options, const ModelFacts& model,
                        const std::vector<Request>& requests) {
  if (options.cache_bytes) return check_cache_memory(options, model, requests);
  const auto max_tokens = options.parallel.kv_cache_config.max_tokens;
  if (!max_tokens) return {};
  const SchedulerLimits limits = scheduler_limits(options);
  for (const Request& request : requests) {
    const int needed = pages_of_rank(options, limits, request) * kernels::kPageTokens;
    if (needed <= *max_tokens) continue;
    return invalid_input(fmt::format(
        "prompt {}: {} tokens and {} to generate: expected kv_cache_config.max_tokens of at least "
        "{} (whole pages of {} tokens), found {}",
        request.index, request.prompt.size(), request.max_tokens, needed, kernels::kPageTokens,
        *max_tokens));
  }
  return {};
}

// The pages that a rank needs at most: those of its largest requests, as many as run at once. The
// requests are dealt to owners round-robin, as RequestWriter::submit_together does.
int pages_needed(const GenerateOptions& options, const std::vector<Request>& requests) {
  const SchedulerLimits limits = scheduler_limits(options);
  const int owners = options.parallel.shares_batches() ? 1 : options.parallel.sizes.tp;
  std::vector<std::vector<int>> pages(static_cast<size_t>(owners));  // [owner][its requests]
  for (const Request& request : requests) {
    pages[static_cast<size_t>(request.index % owners)].push_back(
        pages_of_rank(options, limits, request));
  }
  const size_t running = static_cast<size_t>(limits.max_batch_size) * limits.micro_batches;
  int max = 0;
  for (std::vector<int>& each : pages) {
    std::sort(each.begin(), each.end(), std::greater<>());
    each.resize(std::min(each.size(), running));
    max = std::max(max, std::accumulate(each.begin(), each.end(), 0));
  }
  return max;
}

// The first `count` characters; UTF-8 sequences are not cut.
std::string first_characters(std::string_view text, int count) {
  size_t bytes = 0;
  for (; count > 0 && bytes < text.size(); --count) {
    bytes += tokenizer::first_unit(text.substr(bytes)).bytes;
  }
  return std::string(text.substr(0, bytes));
}

// Settings of this command that all ranks started by a launcher must have in common, in addition to
// those that every run compares.
transport::Settings settings_of(const GenerateOptions& options,
                                const std::vector<Request>& requests) {
  std::string prompts;
  for (const Request& request : requests) {
    prompts += fmt::format("{}:{}:", request.index, request.prompt.size());
    prompts.append(reinterpret_cast<const char*>(request.prompt.ids().data()),
                   request.prompt.size() * sizeof(int32_t));
  }
  const engine::SamplingParams& sampling = options.sampling;
  return {{"the prompts", base::content_hash_hex(prompts)},
          {"--max-tokens", fmt::format("{}", options.max_tokens)},
          {"--temperature", fmt::format("{}", sampling.temperature)},
          {"--top-k", fmt::format("{}", sampling.top_k)},
          {"--top-p", fmt::format("{}", sampling.top_p)},
          {"--generation-config", fmt::format("min_p {}, repetition_penalty {}", sampling.min_p,
                                              sampling.repetition_penalty)},
          {"--seed", fmt::format("{}", sampling.seed)}};
}

// Reads and checks everything that needs no other rank. Sets options->cache_pages, the requests
// (prompts as token ids) and the log.
Result<RunInputs> read_inputs(GenerateOptions* options, std::vector<Request>* requests,
                              std::optional<IterationLog>* log) {
  WIDEEP_TRY_ASSIGN(RunInputs inputs, read_run_inputs(*options));
  WIDEEP_TRY_ASSIGN(const int longest, max_sequence(*options, inputs.model.config));
  WIDEEP_TRY_ASSIGN(*requests, make_requests(*options, inputs, longest));
  WIDEEP_TRY(check_cache_size(*options, inputs.model, *requests));
  WIDEEP_TRY_ASSIGN(*log, create_iteration_log(*options));
  options->cache_pages = pages_needed(*options, *requests);
  return inputs;
}

}  // namespace

Result<std::unique_ptr<Generation>> Generation::prepare(const GenerateOptions& given) {
  auto options = std::make_unique<GenerateOptions>(given);
  if (options->routing_log) options->routing_log->by_request = true;
  std::vector<Request> requests;
  std::optional<IterationLog> log;
  // An error is not returned here: Run::prepare is collective, so that all ranks get it.
  Result<RunInputs> inputs = read_inputs(options.get(), &requests, &log);
  const transport::Settings settings = settings_of(*options, requests);
  WIDEEP_TRY_ASSIGN(std::unique_ptr<Run> run, Run::prepare(*options, std::move(inputs), settings));
  return std::unique_ptr<Generation>(
      new Generation(std::move(options), std::move(run), std::move(requests), std::move(log)));
}

Generation::Generation(std::unique_ptr<const GenerateOptions> options, std::unique_ptr<Run> run,
                       std::vector<Request> requests, std::optional<IterationLog> log)
    : options_(std::move(options)),
      run_(std::move(run)),
      requests_(std::move(requests)),
      log_(std::move(log)),
      lines_(IterationLines::create(*options_)),
      loads_(run_->plan().experts),
      decoders_(requests_.size(), tokenizer::StreamDecoder(run_->tokenizer())),
      created_ns_(base::wall_ns()) {
  const RunPlan& plan = run_->plan();
  report_.isa = run_->inputs().kernels->isa;
  for (const Request& request : requests_) {
    report_.results.push_back({.num_prompt_tokens = static_cast<int>(request.prompt.size())});
  }
  if (plan.mapping.sizes().pp > 1) {
    report_.stages.resize(static_cast<size_t>(plan.mapping.sizes().pp));
  }
  if (plan.num_nodes() > 1) {
    report_.nodes = {.num_nodes = plan.num_nodes(),
                     .row_bytes = plan.dispatch.row_bytes,
                     .result_bytes = plan.dispatch.result_bytes,
                     .traffic = {}};
  }
}

Status Generation::start(const std::function<void(uint64_t)>& on_bytes) {
  WIDEEP_TRY(run_->load(on_bytes));
  WIDEEP_TRY_ASSIGN(group_, RankGroup::start(*run_));
  if (RoutingRecorder* log = group_->routing_log()) {
    std::vector<std::string> labels;
    for (const std::string& prompt : options_->prompts) {
      labels.push_back(first_characters(prompt, kLabelCharacters));
    }
    log->set_labels(std::move(labels));
  }
  // What is kept is looked for: each request begins when its pages are there.
  if (options_->keeps_prompts()) {
    for (Request& each : requests_) group_->requests().submit(std::move(each));
  } else {
    group_->requests().submit_together(std::move(requests_));
  }
  group_->requests().finish();
  return {};
}

std::optional<Event> Generation::next() {
  std::optional<Event> event = group_->next();
  if (!event) return std::nullopt;
  // Events without a take() are only passed on.
  std::visit(
      [this](const auto& each) {
        if constexpr (requires { take(each); }) take(each);
      },
      *event);
  return event;
}

void Generation::take(const Token& token) {
  PromptResult& result = report_.results[static_cast<size_t>(token.request_index)];
  if (engine::has_no_token(token.finish_reason)) return take_failure(token);
  tokenizer::StreamDecoder& decoder = decoders_[static_cast<size_t>(token.request_index)];
  text_ = {.prompt = token.request_index,
           .text = decoder.push(token.sampled.token),
           .last = token.finish_reason != engine::FinishReason::kNotFinished};
  if (text_.last) text_.text += decoder.flush();
  result.tokens.push_back(token.sampled.token);
  result.log_probabilities.push_back(token.sampled.log_probability);
  result.text += text_.text;
  result.finish_reason = token.finish_reason;
  result.digest = token.digest;
}

// The others go on.
void Generation::take_failure(const Token& token) {
  PromptResult& result = report_.results[static_cast<size_t>(token.request_index)];
  result.finish_reason = token.finish_reason;
  tokenizer::StreamDecoder& decoder = decoders_[static_cast<size_t>(token.request_index)];
  text_ = {.prompt = token.request_index, .text = decoder.flush(), .last = true};
  result.text += text_.text;
  if (!not_numbers_.ok()) return;
  not_numbers_ = failed(fmt::format("prompt {}: token {}: {}", token.request_index,
                                    result.tokens.size(), message_of(token.finish_reason)));
}

void Generation::take(const Iteration& iteration) {
  const IterationSummary summary = summarize(iteration, run_->plan().experts);
  last_ns_ = base::wall_ns();
  // The first iteration began wall_ms before its event. Everything before that counts as loading.
  if (first_ns_ == 0) {
    first_ns_ = last_ns_ - static_cast<int64_t>(summary.wall_ms * 1e6);
    report_.load_seconds = static_cast<double>(first_ns_ - created_ns_) * 1e-9;
  }
  loads_.add(summary);
  if (log_) log_->add(summary);
  if (lines_) lines_->print(iteration);
}

void Generation::take(const Rebalance& rebalance) {
  report_.rebalances.push_back(rebalance);
  if (log_) log_->add(rebalance);
}

// The idle share of a stage is the mean over its ranks.
void Generation::take(const RankEnded& rank) {
  const parallel::Mapping& mapping = run_->plan().mapping;
  if (report_.nodes) report_.nodes->traffic.add(rank.traffic);
  if (report_.stages.empty() || rank.times.wall_ns == 0) return;
  StageReport& stage = report_.stages[static_cast<size_t>(mapping.coordinates(rank.rank).pp_rank)];
  stage.layers = run_->plan().layers_of(rank.rank);
  stage.idle_share += static_cast<double>(rank.times.stage_wait_ns) /
                      static_cast<double>(rank.times.wall_ns) / mapping.stage_size();
}

Result<GenerateReport> Generation::take_report() {
  report_.ended = group_->result();
  if (report_.ended.ok()) report_.ended = not_numbers_;
  report_.load = loads_.totals();
  if (!run_->online().empty()) report_.online = read_totals(run_->online());
  if (first_ns_ > 0) report_.wall_seconds = static_cast<double>(last_ns_ - first_ns_) * 1e-9;
  if (RoutingRecorder* log = group_->routing_log()) report_.routing_log = log->take();
  const Status written = run_->write_trace();
  if (report_.ended.ok()) report_.ended = written;
  if (report_.ended.ok() && log_) report_.ended = log_->status();
  if (!report_.ended.ok() && report_.load.num_iterations == 0) return report_.ended;
  return std::move(report_);
}

Result<GenerateReport> generate(const GenerateOptions& options,
                                const std::function<void(const Event&)>& on_event) {
  WIDEEP_TRY_ASSIGN(const auto generation, Generation::prepare(options));
  WIDEEP_TRY(generation->start([](uint64_t) {}));
  while (const auto event = generation->next()) {
    if (on_event) on_event(*event);
  }
  return generation->take_report();
}

}  // namespace wideep::run
