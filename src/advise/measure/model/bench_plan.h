// SPDX-License-Identifier: Apache-2.0
//
// The plan of `wideep bench model`: which tests, in which order, with which tokens. The same
// options give the same plan.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "schedule/scheduler.h"
#include "wideep/status.h"

namespace wideep::measure {

struct BenchOptions {
  int prompt = 512;   // tokens of each prompt of the prefill test; 0: no prefill test
  int generate = 64;  // steps of a decode test; 0: no decode tests
  int depth = 16;     // tokens of each sequence before a decode test's first step
  std::vector<int> batches = {1, 8, 32};  // sequences of each decode test, over all ranks
  int repeats = 5;                        // measured runs of every test
  uint64_t seed = 1;                      // of the random tokens
};

// One test: `sequences` over all ranks, each with a prompt of `prompt` tokens.
struct BenchTest {
  enum class Kind { kPrefill, kDecode };
  Kind kind = Kind::kPrefill;
  int sequences = 1;
  int prompt = 1;
  int steps = 1;  // measured steps; prefill: 1, whatever the number of iterations

  std::string name() const;  // "prefill 512", "decode x8"
};

// One run of a test.
struct BenchRun {
  int test = 0;  // index
  bool is_warm_up = false;
};

struct BenchPlan {
  std::vector<BenchTest> tests;
  // Every test once to warm up, then all tests in turn, `repeats` times.
  std::vector<BenchRun> runs;
  int num_ranks = 1;
  engine::SchedulerLimits limits;  // of each rank
  uint64_t seed = 1;
};

// Errors (invalid input): nothing to measure; sequences longer than the model's context. Messages
// name the command's options.
Result<BenchPlan> make_plan(const BenchOptions& options, const model::ModelConfig& config,
                            int num_ranks);

// The requests of a run, with different random tokens for every sequence and run. Rank r serves
// those with index % num_ranks == r.
std::vector<engine::Request> make_requests(const BenchPlan& plan, const model::ModelConfig& config,
                                           size_t run);

}  // namespace wideep::measure
