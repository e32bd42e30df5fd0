// SPDX-License-Identifier: Apache-2.0
//
// What one change is worth: the same work without and with it, in turn.
//
//   run_in_turn()   two functions of this process: two forms of a kernel
//   ablate()        two models on ranks of their own, which differ in a setting or in a tensor
//
// In each round both run, and every second round in the other order: a machine's speed changes from
// minute to minute, so only the ratio of a round's two times is sound.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "measure/model/bench_plan.h"
#include "measure/model/bench_ranks.h"
#include "measure/model/bench_report.h"
#include "run/run_view.h"
#include "weights/tensor_source.h"

namespace wideep::measure {

struct AblatedTest {
  std::string test;                   // "prefill 512", "decode x8"
  std::vector<double> before, after;  // [rounds] seconds of a prompt, of a step or of a call

  std::vector<double> ratios() const;  // before / after of each round: above 1, the change pays
  Figure ratio() const { return figure_of(ratios()); }
};

// Calls each once to warm up, and then as often in a round as takes about `seconds`; a round's time
// is that of its median call.
AblatedTest run_in_turn(const std::string& test, int rounds, double seconds,
                        const std::pair<std::function<void()>, std::function<void()>>& forms);

// One side of a comparison. precision, parallel and the like; limits are set by ablate().
struct AblatedModel {
  BenchRanksOptions ranks;
  std::function<std::unique_ptr<weights::TensorSource>()> tensors;
};

// Both models stay loaded; the ranks of one sleep while the other's run. The tests are those of
// `wideep bench model`, `bench.repeats` rounds of each after one to warm up.
// REQUIRES: the caller has started no other thread; both have as many ranks.
// Errors: those of make_plan and BenchRanks.
Result<std::vector<AblatedTest>> ablate(const AblatedModel& before, const AblatedModel& after,
                                        const BenchOptions& bench, run::RunView& view);

}  // namespace wideep::measure
