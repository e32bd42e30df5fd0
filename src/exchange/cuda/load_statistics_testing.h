// SPDX-License-Identifier: Apache-2.0
//
// Random iterations on a device whose statistics a balancer takes meanwhile, on a stream of its
// own, against plain sums.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>

#include "cuda/dispatch_combine.h"

namespace wideep::cuda {

struct StatisticsCase {
  ExchangeShape shape;
  int num_layers = 1;
  int num_iterations = 1;
  int num_takes = 1;  // while the iterations run
  int num_threads = 32;
  uint64_t seed = 1;

  // Streams: one of each rank, of which the first counts, and the balancer's.
  int num_streams() const { return shape.ep_size + 1; }
};

StatisticsCase random_statistics(uint64_t seed);

// Errors (failed): what a kernel did wrong, or the first sum that differs. devices: with
// num_streams() ranks.
Status play_statistics(Devices& devices, const StatisticsCase& c);

}  // namespace wideep::cuda
