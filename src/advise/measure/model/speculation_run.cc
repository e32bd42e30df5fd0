// SPDX-License-Identifier: Apache-2.0
//
// In each round the run without drafts comes first and each drafter's after it; a ratio is of runs
// of one round, and a cell's the median of its ratios, since the machine changes between rounds.
// Answers are compared in every round: a drafter that changes them would be timed on another text.
// Steps with prompt tokens are left out, whatever they generate.
#include "measure/model/speculation_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/try.h"

namespace wideep::measure {
namespace {

struct Measured {
  SpeculationSteps steps;
  std::vector<std::vector<int32_t>> answers;
  std::vector<std::string> texts;
};

void add(const run::Iteration& iteration, SpeculationSteps& steps) {
  SpeculationSteps::Step step;
  int64_t prompt_tokens = 0, tokens = 0, wall_ns = 0;
  for (const engine::IterationRecord& rank : iteration.ranks) {
    prompt_tokens += rank.prompt_tokens;
    tokens += rank.generated_tokens;
    step.requests += rank.queue.scheduled;
    wall_ns = std::max(wall_ns, rank.wall_ns);
    steps.totals.add(rank);
    for (const engine::Verified& each : rank.verified) {
      const auto accepted = static_cast<size_t>(each.accepted);
      if (steps.accepted.size() <= accepted) steps.accepted.resize(accepted + 1);
      ++steps.accepted[accepted];
    }
  }
  if (prompt_tokens > 0 || step.requests == 0) return;
  step.tokens = static_cast<double>(tokens) / step.requests;
  steps.steps.push_back(step);
  steps.tokens += tokens;
  steps.seconds += static_cast<double>(wall_ns) * 1e-9;
}

Result<Measured> run_once(const SpeculationPlan& plan, const std::vector<std::string>& prompts,
                          const std::optional<parallel::SpeculativeConfig>& drafts) {
  run::GenerateOptions options;
  static_cast<run::RunOptions&>(options) = plan.run;
  options.parallel.speculative_config = drafts;
  options.prompts = prompts;
  options.max_tokens = plan.max_tokens;
  Measured measured;
  WIDEEP_TRY_ASSIGN(const run::GenerateReport report,
                    run::generate(options, [&](const run::Event& event) {
                      if (const auto* each = std::get_if<run::Iteration>(&event)) {
                        add(*each, measured.steps);
                      }
                    }));
  WIDEEP_TRY(report.ended);
  for (const run::PromptResult& each : report.results) {
    measured.answers.push_back(each.tokens);
    measured.texts.push_back(each.text);
  }
  return measured;
}

std::vector<std::string> take(const std::vector<std::string>& prompts, int count) {
  std::vector<std::string> taken;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    taken.push_back(prompts[i % prompts.size()]);
  }
  return taken;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Status measure_batch(const SpeculationPlan& plan, int turn, int batch,
                     const std::vector<std::string>& prompts,
                     const std::function<void(const SpeculationCell&)>& on_cell) {
  std::vector<SpeculationCell> cells;
  std::vector<std::vector<double>> with(plan.drafters.size());
  std::vector<double> without;
  for (const DraftedBy& drafter : plan.drafters) {
    cells.push_back({.turn = turn, .batch = batch, .drafter = drafter.name});
  }
  for (int round = 0; round < plan.rounds; ++round) {
    WIDEEP_TRY_ASSIGN(const Measured plain, run_once(plan, prompts, {}));
    without.push_back(plain.steps.tokens_per_second());
    for (size_t i = 0; i < cells.size(); ++i) {
      WIDEEP_TRY_ASSIGN(Measured drafted, run_once(plan, prompts, plan.drafters[i].config));
      if (drafted.answers != plain.answers) {
        return failed(fmt::format("{}: other answers than without drafts", cells[i].drafter));
      }
      with[i].push_back(drafted.steps.tokens_per_second());
      cells[i].ratios.push_back(with[i].back() / without.back());
      cells[i].last = std::move(drafted.steps);
    }
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i].without = median(without);
    cells[i].with = median(with[i]);
    on_cell(cells[i]);
  }
  return {};
}

}  // namespace

double SpeculationCell::ratio() const { return median(ratios); }

Status measure_speculation(const SpeculationPlan& plan,
                           const std::function<void(const SpeculationCell&)>& on_cell) {
  for (const int batch : plan.batches) {
    const std::vector<std::string> prompts = take(plan.prompts, batch);
    WIDEEP_TRY(measure_batch(plan, 1, batch, prompts, on_cell));
    WIDEEP_TRY_ASSIGN(const Measured first, run_once(plan, prompts, {}));
    std::vector<std::string> second;
    for (size_t i = 0; i < prompts.size(); ++i) {
      second.push_back(prompts[i] + first.texts[i] + "\n\n" + prompts[i]);
    }
    WIDEEP_TRY(measure_batch(plan, 2, batch, second, on_cell));
  }
  return {};
}

}  // namespace wideep::measure
