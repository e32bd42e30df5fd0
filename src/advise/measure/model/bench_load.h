// SPDX-License-Identifier: Apache-2.0
//
// `wideep bench load` without its command line: the time to load a model that is in the page cache,
// next to two lower limits: reading the page cache, and touching for the first time as much memory
// as the packed weights need.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/weight_format.h"
#include "model/config/config.h"
#include "wideep/status.h"

namespace wideep::measure {

struct LoadBenchOptions {
  model::ModelConfig config;
  std::string model_dir;  // holds the weights
  int threads = 0;        // 0: one per core
  int rounds = 7;
};

// Seconds of one round.
struct LoadRound {
  double read = 0.0;   // reads every byte of the checkpoint through a new mapping
  double touch = 0.0;  // writes one byte per page of as much new memory as the packed weights need
  double load = 0.0;   // opens, reads and packs all experts and all other weights, as one rank

  double ratio() const;  // load / max(read, touch)
};

struct LoadBenchReport {
  int threads = 1;
  uint64_t file_bytes = 0;    // bytes of the checkpoint's tensors
  uint64_t packed_bytes = 0;  // packed weights: slots and all others
  std::vector<LoadRound> rounds;

  LoadRound median() const;     // median of each figure on its own
  double median_ratio() const;  // median of the rounds' ratios
};

// Every measurement runs in a process of its own, and each round changes their order: memory that
// another process has just freed is faster to get than other memory. on_round is called after each
// round. REQUIRES: the caller has started no other thread. Errors: the checkpoint cannot be read; a
// process died.
Result<LoadBenchReport> run_load_bench(const LoadBenchOptions& options,
                                       const std::function<void()>& on_round);

}  // namespace wideep::measure
