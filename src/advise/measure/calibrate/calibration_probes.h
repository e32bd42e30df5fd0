// SPDX-License-Identifier: Apache-2.0
//
// What calibrate() measures: iterations of small models with random weights on the engine's own
// ranks. The models differ in what the parts of the cost model tell apart: width, the ratio of an
// expert's sizes, the number of matrices, shared experts, whether weights stay in caches.
//
// Thread safety: one call at a time in a process.
#pragma once

#include <memory>
#include <vector>

#include "cost/hardware.h"
#include "model/config/config.h"
#include "run/iteration_summary.h"
#include "run/run_view.h"
#include "wideep/status.h"

namespace wideep::measure {

// The configurations of the models. Their hidden sizes are from kMinProbed to kMaxProbed.
inline constexpr int kMinProbed = 384, kMaxProbed = 1024;
inline constexpr int kMaxProbedTokens = 512;  // of a rank's iteration
std::vector<std::shared_ptr<const model::ModelConfig>> probe_models();

// Requests that come together on each rank: it computes their prompts, then a token of each at a
// time.
struct ProbeShape {
  int prompt = 1, tokens = 1, requests = 1;
};

// An iteration and what every rank has computed in it.
struct ProbeIteration {
  ProbeShape shape;
  bool is_prompt = false;
  double tokens = 0.0;  // of a rank
  double cached = 0.0;  // positions of a rank's sequences before
  double seconds = 0.0;
  std::vector<engine::IterationRecord> ranks;
};

// All iterations of a model on ranks with a number of threads each.
struct ProbeRun {
  std::shared_ptr<const model::ModelConfig> config;
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  int threads = 1;
  int step = 0;         // of the calibration
  double others = 0.0;  // what other programs used of the processors meanwhile (other_work.h)
  std::vector<ProbeIteration> iterations;
};

// Runs it on num_ranks ranks, with every shape or, if they take turns on cores, with a
// few.
// REQUIRES: the caller has started no other thread. Errors: too little memory; a rank failed;
// interrupted.
Result<ProbeRun> run_probe(std::shared_ptr<const model::ModelConfig> config,
                           kernels::WeightFormat format, int num_ranks, int threads,
                           run::RunView& view);

}  // namespace wideep::measure
