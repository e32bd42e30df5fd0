// SPDX-License-Identifier: Apache-2.0
#include "measure/model/ablation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/cpu_time.h"
#include "base/try.h"

namespace wideep::measure {
namespace {

// The median call: others may take the processor for some of them.
double seconds_of(const std::function<void()>& form, int calls) {
  std::vector<double> seconds;
  for (int i = 0; i < calls; ++i) {
    const int64_t start = base::wall_ns();
    form();
    seconds.push_back(static_cast<double>(base::wall_ns() - start) * 1e-9);
  }
  return figure_of(std::move(seconds)).median;
}

// Seconds of a prompt, or of a step.
Result<double> seconds_of(const AblatedModel& model, const BenchTest& test,
                          const std::vector<run::Iteration>& iterations) {
  WIDEEP_TRY_ASSIGN(const BenchSample sample,
                    sample_of(model.ranks.config, model.ranks.precision, test, iterations));
  const bool is_prefill = test.kind == BenchTest::Kind::kPrefill;
  return sample.seconds / (is_prefill ? 1.0 : static_cast<double>(sample.steps));
}

}  // namespace

std::vector<double> AblatedTest::ratios() const {
  std::vector<double> ratios;
  for (size_t i = 0; i < before.size(); ++i) ratios.push_back(before[i] / after[i]);
  return ratios;
}

AblatedTest run_in_turn(const std::string& test, int rounds, double seconds,
                        const std::pair<std::function<void()>, std::function<void()>>& forms) {
  const double once = std::max(seconds_of(forms.first, 1), seconds_of(forms.second, 1));
  const int calls = std::clamp(static_cast<int>(seconds / std::max(once, 1e-9)), 1, 1 << 16);
  AblatedTest result{.test = test};
  for (int round = 0; round < rounds; ++round) {
    const bool swapped = round % 2 == 1;
    double times[2];
    for (const int side : {swapped ? 1 : 0, swapped ? 0 : 1}) {
      times[side] = seconds_of(side == 0 ? forms.first : forms.second, calls);
    }
    result.before.push_back(times[0]);
    result.after.push_back(times[1]);
  }
  return result;
}

Result<std::vector<AblatedTest>> ablate(const AblatedModel& before, const AblatedModel& after,
                                        const BenchOptions& bench, run::RunView& view) {
  const std::array<const AblatedModel*, 2> models = {&before, &after};
  const int num_ranks = before.ranks.parallel.mapping().world_size();
  WIDEEP_TRY_ASSIGN(const BenchPlan plan, make_plan(bench, before.ranks.config, num_ranks));
  std::array<std::unique_ptr<BenchRanks>, 2> ranks;
  for (size_t side = 0; side < 2; ++side) {
    BenchRanksOptions options = models[side]->ranks;
    options.limits = plan.limits;
    WIDEEP_TRY_ASSIGN(ranks[side], BenchRanks::start(options, models[side]->tensors(), view));
  }
  std::vector<AblatedTest> tests;
  for (const BenchTest& test : plan.tests) tests.push_back({.test = test.name()});
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const BenchRun& run = plan.runs[i];
    const size_t round = i / plan.tests.size();
    const auto test = static_cast<size_t>(run.test);
    for (const size_t side : {round % 2, 1 - round % 2}) {
      WIDEEP_TRY_ASSIGN(const std::vector<run::Iteration> iterations,
                        ranks[side]->run(make_requests(plan, before.ranks.config, i)));
      if (run.is_warm_up) continue;
      WIDEEP_TRY_ASSIGN(const double seconds,
                        seconds_of(*models[side], plan.tests[test], iterations));
      (side == 0 ? tests[test].before : tests[test].after).push_back(seconds);
    }
  }
  // The last started first: its ranks have copies of the others' pipes.
  WIDEEP_TRY(ranks[1]->finish());
  WIDEEP_TRY(ranks[0]->finish());
  return tests;
}

}  // namespace wideep::measure
