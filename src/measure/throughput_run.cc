// SPDX-License-Identifier: Apache-2.0
#include "measure/throughput_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu_time.h"
#include "base/try.h"
#include "engine/serve.h"
#include "measure/request_issuer.h"

namespace wideep::measure {
namespace {

using engine::Request;

Result<std::vector<int32_t>> tokens_of(const DatasetRequest& request, const engine::Run& run) {
  const int vocabulary = run.setup().config.vocab_size;
  if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    return run.tokenizer().encode(*text);
  }
  const auto& ids = std::get<std::vector<int32_t>>(request.prompt);
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    return invalid_input(fmt::format(
        "expected token ids from 0 to {} (the model's vocab_size), found {}", vocabulary - 1, id));
  }
  return ids;
}

Result<Request> request_of(const ThroughputOptions& options, const engine::Run& run, size_t line) {
  const DatasetRequest& given = options.requests[line];
  WIDEEP_TRY_ASSIGN(std::vector<int32_t> prompt, tokens_of(given, run));
  if (prompt.empty()) return invalid_input("the prompt has no tokens");
  const int longest = engine::max_sequence(run);
  const auto length = static_cast<int64_t>(prompt.size()) + given.output_tokens;
  if (length > longest) {
    return invalid_input(
        fmt::format("{} prompt tokens and {} to generate exceed the {} that fit into the model's "
                    "context and the cache",
                    prompt.size(), given.output_tokens, longest));
  }
  return Request{.prompt = std::move(prompt),
                 .max_tokens = given.output_tokens,
                 .sampling = {},
                 .ignore_eos = !options.eos_token};
}

Result<RequestIssuer::Plan> plan_of(const ThroughputOptions& options, const engine::Run& run) {
  RequestIssuer::Plan plan;
  const size_t count = options.requests.size();
  std::vector<Request> all;
  for (size_t line = 0; line < count; ++line) {
    Result<Request> request = request_of(options, run, line);
    if (!request.ok()) return request.status().at(fmt::format("request {}", line));
    all.push_back(std::move(*request));
  }
  for (int i = 0; i < options.warmup; ++i)
    plan.warmup.push_back(all[static_cast<size_t>(i) % count]);
  plan.measured = std::move(all);
  int index = 0;
  for (Request& request : plan.warmup) request.index = index++;
  for (Request& request : plan.measured) request.index = index++;
  plan.arrivals = arrival_times(options.arrivals, static_cast<int>(count));
  plan.concurrency = options.concurrency > 0 ? options.concurrency : index;
  return plan;
}

// What the ranks tell, taken down. All on the thread that serves.
class Records {
 public:
  explicit Records(const RequestIssuer::Plan& plan)
      : warmup_(plan.warmup.size()), requests_(plan.measured.size()) {
    for (size_t i = 0; i < requests_.size(); ++i) {
      requests_[i].input_tokens = static_cast<int>(plan.measured[i].prompt.size());
      requests_[i].token_ns.reserve(static_cast<size_t>(plan.measured[i].max_tokens));
    }
  }

  // Whether it was a measured request's last.
  bool token(const engine::TokenMessage& message) {
    const int64_t now = base::wall_ns();
    const auto index = static_cast<size_t>(message.request_index);
    const bool last = message.finish_reason != engine::FinishReason::kNotFinished;
    if (index < warmup_) {
      ++warmup_tokens_;
      if (last) ++num_warm_;
      return false;
    }
    RequestTimes& request = requests_[index - warmup_];
    request.token_ns.push_back(now);
    request.tokens.push_back(message.sampled.token);
    if (last) ++num_done_;
    return last;
  }

  // Iterations are told of after their tokens.
  void iteration(const engine::IterationSummary& summary) {
    const bool warms_up = num_warm_ < warmup_ || tokens_of_iterations_ < warmup_tokens_;
    tokens_of_iterations_ += summary.generated_tokens;
    if (warms_up) return;
    if (totals_.count++ == 0) totals_.first = summary.iteration;
    totals_.critical_path_ms += summary.critical_path_ms;
    totals_.critical_path_experts_ms += summary.critical_path_experts_ms;
    totals_.mean_rank_ms += summary.mean_rank_ms;
    totals_.imbalance_ratio += summary.imbalance_ratio();
  }

  void rebalance(const online::Rebalance& each) {
    totals_.expert_moves += each.moves;
    totals_.moved_bytes += each.bytes;
  }

  bool all_done() const { return num_done_ == requests_.size(); }

  ThroughputRun take(const std::vector<int64_t>& start_ns) {
    for (size_t i = 0; i < requests_.size(); ++i) requests_[i].start_ns = start_ns[i];
    totals_.imbalance_ratio /= static_cast<double>(std::max<int64_t>(totals_.count, 1));
    return {.facts = {}, .requests = std::move(requests_), .texts = {}, .iterations = totals_};
  }

 private:
  size_t warmup_;
  std::vector<RequestTimes> requests_;
  size_t num_warm_ = 0;  // requests of the warm-up that have ended
  size_t num_done_ = 0;  // measured ones
  int64_t warmup_tokens_ = 0;
  int64_t tokens_of_iterations_ = 0;
  IterationTotals totals_;
};

RunFacts facts_of(const engine::RunSetup& setup) {
  return {.isa = std::string(setup.kernels.isa),
          .weights = setup.forms.format_names(),
          .cache = std::string(dtype_name(setup.options.cache_dtype())),
          .max_batch_size = setup.limits.max_batch_size,
          .max_num_tokens = setup.limits.max_num_tokens,
          .threads_per_rank = setup.threads.threads_per_rank};
}

Status check_eos(const ThroughputOptions& options, const model::ModelConfig& config) {
  const auto& ends = config.eos_token_ids;
  if (!options.eos_token) return {};
  if (std::find(ends.begin(), ends.end(), *options.eos_token) != ends.end()) return {};
  return invalid_input(
      fmt::format("--eos-id: expected -1 (none ends an answer) or an end token of the model, found "
                  "{}",
                  *options.eos_token));
}

void add_texts(const engine::Run& run, ThroughputRun* result) {
  if (!run.has_tokenizer()) return;
  for (const RequestTimes& request : result->requests) {
    result->texts.push_back(run.tokenizer().decode(request.tokens));
  }
}

bool needs_tokenizer(const ThroughputOptions& options) {
  return std::any_of(options.requests.begin(), options.requests.end(), [](const auto& request) {
    return std::holds_alternative<std::string>(request.prompt);
  });
}

}  // namespace

Result<ThroughputRun> run_throughput(const ThroughputOptions& given,
                                     const ThroughputObserver& observer) {
  ThroughputOptions options = given;
  options.run.needs_tokenizer = needs_tokenizer(options);
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<engine::Run> run, engine::prepare_to_serve(options.run));
  WIDEEP_TRY(check_eos(options, run->setup().config));
  WIDEEP_TRY_ASSIGN(RequestIssuer::Plan plan, plan_of(options, *run));
  Records records(plan);
  RequestIssuer issuer(std::move(plan));
  engine::RequestWriter* writer = nullptr;
  bool stopped = false;
  const Status ended = engine::serve(
      *run, {.on_plan = observer.on_plan,
             .on_loading = observer.on_loading,
             .on_ready =
                 [&](engine::RequestWriter& ready) {
                   writer = &ready;
                   issuer.start(ready);
                 },
             .on_token =
                 [&](const engine::TokenMessage& message) {
                   const bool last = records.token(message);
                   if (message.finish_reason != engine::FinishReason::kNotFinished) {
                     issuer.finished();
                   }
                   if (last && observer.on_done) observer.on_done();
                 },
             .on_summary = [&](const engine::IterationSummary& each) { records.iteration(each); },
             .on_rebalance = [&](const online::Rebalance& each) { records.rebalance(each); },
             .on_stop =
                 [&](int) {
                   stopped = true;
                   writer->stop();
                   return std::chrono::milliseconds(700);
                 },
             .on_ended = [&] { issuer.end(); }});
  WIDEEP_TRY(ended);
  if (stopped || !records.all_done()) return interrupted("interrupted");
  ThroughputRun result = records.take(issuer.start_ns());
  result.facts = facts_of(run->setup());
  add_texts(*run, &result);
  return result;
}

}  // namespace wideep::measure
