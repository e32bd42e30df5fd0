// SPDX-License-Identifier: Apache-2.0
//
// What a benchmark of a model measures, in which order, with which tokens. Parent and ranks make
// the same plan from the same options.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "model/config.h"
#include "wideep/status.h"

namespace wideep::measure {

struct BenchOptions {
  int prompt = 512;   // tokens of the prefill test's prompts; 0: no such test
  int generate = 64;  // steps of a decode test; 0: no such tests
  int depth = 16;     // tokens of each sequence before a decode test's first step
  std::vector<int> batches = {1, 8, 32};  // sequences of the decode tests, over all ranks
  int repeats = 5;                        // of every test
  uint64_t seed = 1;                      // of the tokens
};

// One test: `sequences` over all ranks, each with a prompt of `prompt` tokens.
struct BenchTest {
  enum class Kind { kPrefill, kDecode };
  Kind kind = Kind::kPrefill;
  int sequences = 1;
  int prompt = 1;
  int steps = 1;  // that are measured; prefill: 1, whatever the number of iterations

  std::string name() const;  // "prefill 512", "decode x8"
};

// One run of a test.
struct BenchRun {
  int test = 0;  // index
  bool is_warm_up = false;
};

struct BenchPlan {
  std::vector<BenchTest> tests;
  std::vector<BenchRun>
      runs;  // every test once to warm up, then all tests in turn, `repeats` times
  int num_ranks = 1;
  engine::SchedulerLimits limits;  // of each rank
  uint64_t seed = 1;
};

// Errors (invalid input): nothing to measure; sequences longer than the model's context. Messages
// speak of the command's options.
Result<BenchPlan> make_plan(const BenchOptions& options, const model::ModelConfig& config,
                            int num_ranks);

// The requests of a run: random tokens, others for every sequence and run. Rank r serves those with
// index % num_ranks == r.
std::vector<engine::Request> make_requests(const BenchPlan& plan, const model::ModelConfig& config,
                                           size_t run);

}  // namespace wideep::measure
