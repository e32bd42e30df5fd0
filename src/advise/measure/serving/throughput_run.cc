// SPDX-License-Identifier: Apache-2.0
//
// What can be refused is refused before weights are loaded. Then one thread submits requests at
// their times (request_issuer.h), and this one pulls the ranks' events. Warm-up and measured
// requests are one run without a pause; an iteration's event comes after those of its tokens, so
// iterations of the warm-up are told apart by how many tokens have been accounted for.
#include "measure/serving/throughput_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu_time.h"
#include "base/try.h"
#include "measure/serving/request_issuer.h"
#include "run/iteration_lines.h"
#include "run/iteration_log.h"
#include "run/plan_text.h"
#include "run/rank_group.h"

namespace wideep::measure {
namespace {

using engine::Request;

Result<std::vector<int32_t>> tokens_of(const DatasetRequest& request, const run::Run& run) {
  const int vocabulary = run.plan().model.config.vocab_size;
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

Result<Request> request_of(const ThroughputOptions& options, const run::Run& run, size_t line) {
  const DatasetRequest& given = options.requests[line];
  WIDEEP_TRY_ASSIGN(std::vector<int32_t> prompt, tokens_of(given, run));
  if (prompt.empty()) return invalid_input("the prompt has no tokens");
  const int longest = run.plan().longest_sequence();
  const auto length = static_cast<int64_t>(prompt.size()) + given.output_tokens;
  if (length > longest) {
    return invalid_input(
        fmt::format("{} prompt tokens and {} to generate exceed the {} that fit into the model's "
                    "context and the cache",
                    prompt.size(), given.output_tokens, longest));
  }
  return Request{.prompt = std::move(prompt),
                 .max_tokens = given.output_tokens,
                 .sampling = options.sampling,
                 .draw = static_cast<int>(line),
                 .ignore_eos = !options.eos_token};
}

// Waiting for more requests than can run would never end.
int start_queue_of(const ThroughputOptions& options, const run::Run& run,
                   const RequestIssuer::Plan& plan) {
  const auto measured = static_cast<int64_t>(plan.measured.size());
  return static_cast<int>(std::min({int64_t{options.start_queue}, int64_t{plan.concurrency},
                                    measured, run.plan().max_running()}));
}

Result<RequestIssuer::Plan> plan_of(const ThroughputOptions& options, const run::Run& run) {
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
  plan.arrivals = advise::arrival_times(options.arrivals, static_cast<int>(count));
  plan.concurrency = options.concurrency > 0 ? options.concurrency : index;
  plan.start_queue = start_queue_of(options, run, plan);
  return plan;
}

// Collects the tokens and iterations that the ranks report. Used by one thread, that of EventPump.
class Records {
 public:
  explicit Records(const RequestIssuer::Plan& plan)
      : warmup_(plan.warmup.size()), requests_(plan.measured.size()) {
    for (size_t i = 0; i < requests_.size(); ++i) {
      requests_[i].input_tokens = static_cast<int>(plan.measured[i].prompt.size());
      requests_[i].token_ns.reserve(static_cast<size_t>(plan.measured[i].max_tokens));
    }
  }

  // Returns whether it was the last token of a measured request.
  bool token(const run::Token& message) {
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

  // An iteration belongs to the warm-up while requests of the warm-up run. Its event comes after
  // those of its tokens, so the last iterations of the warm-up are recognised by their tokens: all
  // iterations so far account for fewer than the warm-up has received.
  void iteration(const run::IterationSummary& summary) {
    const bool warms_up = num_warm_ < warmup_ || tokens_of_iterations_ < warmup_tokens_;
    tokens_of_iterations_ += summary.generated_tokens;
    if (warms_up) return;
    if (totals_.count++ == 0) totals_.first = summary.iteration;
    totals_.critical_path_ms += summary.critical_path_ms;
    totals_.critical_path_experts_ms += summary.critical_path_experts_ms;
    totals_.mean_rank_ms += summary.mean_rank_ms;
    totals_.imbalance_ratio += summary.imbalance_ratio();
    totals_.speculation += summary.speculation;
  }

  void rebalance(const online::Rebalance& each) {
    totals_.expert_moves += each.moves;
    totals_.moved_bytes += each.bytes;
  }

  bool all_done() const { return num_done_ == requests_.size(); }

  // Of the dataset, as plan_of() counts: those of the warm-up are the first, over and over.
  size_t line_of(int request_index) const {
    const auto index = static_cast<size_t>(request_index);
    return index < warmup_ ? index % requests_.size() : index - warmup_;
  }

  ThroughputRun take(const std::vector<int64_t>& start_ns) {
    for (size_t i = 0; i < requests_.size(); ++i) requests_[i].start_ns = start_ns[i];
    totals_.imbalance_ratio /= static_cast<double>(std::max<int64_t>(totals_.count, 1));
    return {.facts = {}, .requests = std::move(requests_), .texts = {}, .iterations = totals_};
  }

 private:
  size_t warmup_;
  std::vector<RequestTimes> requests_;
  size_t num_warm_ = 0;  // finished requests of the warm-up
  size_t num_done_ = 0;  // finished measured requests
  int64_t warmup_tokens_ = 0;
  int64_t tokens_of_iterations_ = 0;
  IterationTotals totals_;
};

RunFacts facts_of(const run::Run& run) {
  const run::RunPlan& plan = run.plan();
  return {.isa = std::string(run.inputs().kernels->isa),
          .weights = plan.model.forms.format_names(),
          .cache = std::string(dtype_name(plan.cache)),
          .max_batch_size = plan.limits.max_batch_size,
          .max_num_tokens = plan.limits.max_num_tokens,
          .threads_per_rank = plan.threads.threads_per_rank};
}

Status check_eos(const ThroughputOptions& options, const model::ModelConfig& config) {
  const auto& ends = config.eos_token_ids;
  if (!options.eos_token) return {};
  if (std::find(ends.begin(), ends.end(), *options.eos_token) != ends.end()) return {};
  return invalid_input(fmt::format(
      "--eos-id: expected -1 (no token ends an answer) or an end token of the model, found {}",
      *options.eos_token));
}

void add_texts(const run::Run& run, ThroughputRun* result) {
  if (!run.inputs().tokenizer) return;
  for (const RequestTimes& request : result->requests) {
    result->texts.push_back(run.tokenizer().decode(request.tokens));
  }
}

bool needs_tokenizer(const ThroughputOptions& options) {
  return std::any_of(options.requests.begin(), options.requests.end(), [](const auto& request) {
    return std::holds_alternative<std::string>(request.prompt);
  });
}

// Receives the ranks' events until the ranks have ended.
class EventPump {
 public:
  struct Parts {
    run::RankGroup& group;
    const run::ExpertRanks& experts;
    Records& records;
    RequestIssuer& issuer;
    std::optional<run::IterationLog>& log;
    const std::optional<run::IterationLines>& lines;
    ThroughputView& view;
    run::LoadingProgress& loading;
  };
  explicit EventPump(const Parts& parts) : parts_(parts) {}

  void run() {
    while (const auto event = parts_.group.next()) {
      std::visit(
          [this](const auto& each) {
            if constexpr (requires { take(each); }) take(each);
          },
          *event);
    }
  }
  bool was_stopped() const { return stopped_; }
  // Of a request that has failed alone.
  const Status& failure() const { return failure_; }

 private:
  void take(const run::WeightsRead& read) { parts_.loading.add(read.bytes); }
  void take(const run::RanksReady&) { parts_.issuer.start(parts_.group.requests()); }
  void take(const run::Token& token) {
    // Times of a model that does not compute mean nothing.
    if (engine::has_no_token(token.finish_reason) && failure_.ok()) {
      failure_ = failed(fmt::format("request {}: {}", parts_.records.line_of(token.request_index),
                                    run::message_of(token.finish_reason)));
      parts_.group.stop();
    }
    if (!failure_.ok()) return;
    const bool last = parts_.records.token(token);
    if (token.finish_reason != engine::FinishReason::kNotFinished) parts_.issuer.finished();
    if (last) parts_.view.request_done();
  }
  void take(const run::Iteration& iteration) {
    const run::IterationSummary summary = run::summarize(iteration, parts_.experts);
    parts_.records.iteration(summary);
    if (parts_.log) parts_.log->add(summary);
    if (parts_.lines) parts_.lines->print(iteration);
  }
  void take(const run::Rebalance& each) {
    parts_.records.rebalance(each);
    if (parts_.log) parts_.log->add(each);
  }
  void take(const run::StopRequested&) {
    stopped_ = true;
    parts_.group.stop();
    parts_.group.end_within(std::chrono::milliseconds(700));
  }

  Parts parts_;
  bool stopped_ = false;
  Status failure_;
};

}  // namespace

Result<ThroughputRun> run_throughput(const ThroughputOptions& given, ThroughputView& view) {
  ThroughputOptions options = given;
  options.run.needs_tokenizer = options.decodes || needs_tokenizer(options);
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<run::Run> run, run::Run::prepare(options.run));
  WIDEEP_TRY(check_eos(options, run->plan().model.config));
  WIDEEP_TRY_ASSIGN(RequestIssuer::Plan plan, plan_of(options, *run));
  WIDEEP_TRY_ASSIGN(std::optional<run::IterationLog> log, run::create_iteration_log(options.run));
  const std::optional<run::IterationLines> lines = run::IterationLines::create(options.run);
  view.plan(run::plan_text(*run));
  if (plan.start_queue > 0) view.waits_for(plan.start_queue);
  run::LoadingProgress loading(view, run->bytes_to_load());
  WIDEEP_TRY(run->load([&](uint64_t bytes) { loading.add(bytes); }));
  WIDEEP_TRY_ASSIGN(const auto group, run::RankGroup::start(*run, {.reports_stop_signals = true}));
  Records records(plan);
  RequestIssuer issuer(std::move(plan));
  EventPump pump({*group, run->plan().experts, records, issuer, log, lines, view, loading});
  pump.run();
  issuer.end();
  const Status written = run->write_trace();
  WIDEEP_TRY(pump.failure());
  WIDEEP_TRY(group->result());
  WIDEEP_TRY(written);
  if (log) WIDEEP_TRY(log->status());
  if (pump.was_stopped() || !records.all_done()) return interrupted("interrupted");
  ThroughputRun result = records.take(issuer.start_ns());
  result.facts = facts_of(*run);
  add_texts(*run, &result);
  return result;
}

}  // namespace wideep::measure
