// SPDX-License-Identifier: Apache-2.0
//
// A prompt is never asked twice in a run: the common pool would draft the whole second answer. The
// run without drafts comes first in each round and those with drafts after it, since a machine's
// speed changes from minute to minute; a ratio is of one round.
#include "measure/model/ngram_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "measure/model/bench_report.h"

namespace wideep::measure {
namespace {

// The tokens of a request come in the order of its steps. The first one comes with its prompt.
class StepLog {
 public:
  explicit StepLog(size_t num_requests) : steps_(num_requests), begun_(num_requests, false) {}

  void add(const run::Event& event) {
    if (std::holds_alternative<run::Iteration>(event)) ++iteration_;
    const auto* token = std::get_if<run::Token>(&event);
    if (token == nullptr) return;
    const auto request = static_cast<size_t>(token->request_index);
    if (!begun_[request]) {
      begun_[request] = true;
      return;
    }
    std::vector<RequestStep>& steps = steps_[request];
    // −1: the token is not its step's first.
    if (token->step_drafts >= 0 || steps.empty()) steps.push_back({.iteration = iteration_});
    ++steps.back().tokens;
  }

  std::vector<std::vector<RequestStep>> take() { return std::move(steps_); }

 private:
  std::vector<std::vector<RequestStep>> steps_;
  std::vector<bool> begun_;
  int64_t iteration_ = 0;
};

struct Counted {
  const std::function<void(int, int)>& on_run;
  int done = 0;
  int all = 0;
  void step() { on_run(++done, all); }
};

run::RunOptions options_of(const NgramPlan& plan, int batch) {
  run::RunOptions options = plan.run;
  const auto owners =
      options.parallel.enable_attention_dp ? options.parallel.mapping().sizes().tp : 1;
  options.parallel.max_batch_size = (batch + owners - 1) / owners;
  return options;
}

Status check_answers(const DraftedRun& plain, const DraftedRun& drafted, const NgramSizes& sizes) {
  for (size_t i = 0; i < plain.answers.size(); ++i) {
    if (plain.answers[i] == drafted.answers[i]) continue;
    return failed(
        fmt::format("request {}: another answer with n-grams of k = {}, v = {} than "
                    "without drafts",
                    i, sizes.k, sizes.v));
  }
  return {};
}

Result<std::vector<std::string>> measure_turn(const NgramPlan& plan, int turn, int batch,
                                              const std::vector<std::string>& prompts,
                                              NgramReport* report, Counted& counted) {
  const run::RunOptions options = options_of(plan, batch);
  std::vector<NgramCell> cells;
  for (const NgramSizes& sizes : plan.sizes) {
    cells.push_back({.turn = turn, .batch = batch, .sizes = sizes});
  }
  std::vector<double> without;
  std::vector<std::vector<double>> with(cells.size());
  std::vector<std::string> texts;
  for (int round = 0; round < plan.rounds; ++round) {
    WIDEEP_TRY_ASSIGN(DraftedRun plain, run_drafted(options, prompts, plan.max_tokens, nullptr));
    counted.step();
    without.push_back(plain.seconds);
    for (size_t i = 0; i < cells.size(); ++i) {
      WIDEEP_TRY_ASSIGN(cells[i].last,
                        run_drafted(options, prompts, plan.max_tokens, &cells[i].sizes));
      counted.step();
      WIDEEP_TRY(check_answers(plain, cells[i].last, cells[i].sizes));
      with[i].push_back(cells[i].last.seconds);
      cells[i].ratios.push_back(plain.seconds / cells[i].last.seconds);
    }
    texts = std::move(plain.texts);
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i].without = figure_of(without).median;
    cells[i].with = figure_of(with[i]).median;
    report->turns.push_back(std::move(cells[i]));
  }
  return texts;
}

Status measure_conversations(const NgramPlan& plan, int batch, NgramReport* report,
                             Counted& counted) {
  const auto wanted = static_cast<size_t>(batch) * static_cast<size_t>(plan.requests_per_place);
  const size_t count = std::min(wanted, plan.conversations.size());
  std::vector<std::string> prompts;
  for (size_t i = 0; i < count; ++i) prompts.push_back(plan.conversations[i].first);
  WIDEEP_TRY_ASSIGN(const std::vector<std::string> answers,
                    measure_turn(plan, 1, batch, prompts, report, counted));
  for (size_t i = 0; i < count; ++i) {
    const Conversation& each = plan.conversations[i];
    prompts[i] += answers[i] + "\n\n" + (each.second.empty() ? each.first : each.second);
  }
  return measure_turn(plan, 2, batch, prompts, report, counted).status();
}

Status measure_translations(const NgramPlan& plan, NgramReport* report, Counted& counted) {
  if (plan.translation_sizes.empty() || plan.translations.empty()) return {};
  const run::RunOptions options = options_of(plan, *std::ranges::max_element(plan.batches));
  WIDEEP_TRY_ASSIGN(const DraftedRun plain,
                    run_drafted(options, plan.translations, plan.max_tokens, nullptr));
  counted.step();
  for (const NgramSizes& sizes : plan.translation_sizes) {
    WIDEEP_TRY_ASSIGN(DraftedRun drafted,
                      run_drafted(options, plan.translations, plan.max_tokens, &sizes));
    counted.step();
    WIDEEP_TRY(check_answers(plain, drafted, sizes));
    report->translations.push_back({sizes, std::move(drafted)});
  }
  return {};
}

}  // namespace

double DraftedRun::accepted_length() const {
  int64_t tokens = 0, count = 0;
  for (const auto& request : steps) {
    for (const RequestStep& step : request) tokens += step.tokens;
    count += static_cast<int64_t>(request.size());
  }
  return count > 0 ? static_cast<double>(tokens) / static_cast<double>(count) : 0.0;
}

std::vector<int64_t> DraftedRun::lengths(int max) const {
  std::vector<int64_t> counts(static_cast<size_t>(max) + 1);
  for (const auto& request : steps) {
    for (const RequestStep& step : request)
      ++counts[static_cast<size_t>(std::min(step.tokens, max))];
  }
  return counts;
}

double NgramCell::ratio() const { return figure_of(ratios).median; }

Result<DraftedRun> run_drafted(const run::RunOptions& options,
                               const std::vector<std::string>& prompts, int max_tokens,
                               const NgramSizes* sizes) {
  run::GenerateOptions generate;
  static_cast<run::RunOptions&>(generate) = options;
  generate.prompts = prompts;
  generate.max_tokens = max_tokens;
  generate.shortens_to_context = true;
  generate.parallel.speculative_config.reset();
  if (sizes != nullptr) {
    generate.parallel.speculative_config = {.type = parallel::SpeculativeConfig::Type::kNgram,
                                            .max_draft_len = sizes->v,
                                            .max_matching_ngram_size = sizes->k};
  }
  StepLog log(prompts.size());
  WIDEEP_TRY_ASSIGN(run::GenerateReport report,
                    run::generate(generate, [&](const run::Event& event) { log.add(event); }));
  WIDEEP_TRY(report.ended);
  DraftedRun run{.seconds = report.wall_seconds,
                 .num_requests = static_cast<int>(prompts.size()),
                 .steps = log.take()};
  for (run::PromptResult& each : report.results) {
    run.answers.push_back(std::move(each.tokens));
    run.texts.push_back(std::move(each.text));
  }
  return run;
}

Result<NgramReport> measure_ngram(const NgramPlan& plan,
                                  const std::function<void(int, int)>& on_run) {
  const auto batches = static_cast<int>(plan.batches.size());
  const auto sizes = static_cast<int>(plan.sizes.size());
  const auto translations = static_cast<int>(plan.translation_sizes.size());
  Counted counted{.on_run = on_run, .all = 2 * batches * plan.rounds * (1 + sizes)};
  if (translations > 0 && !plan.translations.empty()) counted.all += 1 + translations;
  NgramReport report;
  for (const int batch : plan.batches) {
    WIDEEP_TRY(measure_conversations(plan, batch, &report, counted));
  }
  WIDEEP_TRY(measure_translations(plan, &report, counted));
  return report;
}

}  // namespace wideep::measure
