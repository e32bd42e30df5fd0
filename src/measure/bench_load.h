// SPDX-License-Identifier: Apache-2.0
//
// `wideep bench load` without its command line: how long it takes to load a model that is in the
// page cache, beside the two things that cannot be avoided: reading the page cache and first
// touching as much memory as the packed weights take.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/weight_format.h"
#include "model/config.h"
#include "wideep/status.h"

namespace wideep::measure {

struct LoadBenchOptions {
  model::ModelConfig config;
  std::string model_dir;  // holds the weights
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  int threads = 0;  // 0: one a core
  int rounds = 7;
};

// Seconds of one round.
struct LoadRound {
  double read = 0.0;   // every byte of the checkpoint, mapped afresh
  double touch = 0.0;  // a byte of every page of fresh memory, as much and in the same pages
  double load = 0.0;   // opening, reading, packing: all experts and all else, as one rank

  double ratio() const;  // of load to the slower of the others
};

struct LoadBenchReport {
  int threads = 1;
  uint64_t file_bytes = 0;    // of the checkpoint's tensors
  uint64_t packed_bytes = 0;  // of slots and other weights
  std::vector<LoadRound> rounds;

  LoadRound median() const;     // of each figure by itself
  double median_ratio() const;  // of the rounds' ratios
};

// Every measurement is a process of its own, and each round takes them in another order: memory
// that another process has just given back is quicker to get than fresh one.
// REQUIRES: the caller has started no other thread.
// Errors: the checkpoint cannot be read; a process died.
Result<LoadBenchReport> run_load_bench(const LoadBenchOptions& options,
                                       const std::function<void()>& on_round);

}  // namespace wideep::measure
