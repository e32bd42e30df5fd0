// SPDX-License-Identifier: Apache-2.0
//
// A rank's statistics on its device: launches the kernels of load_counts.h.
//
//   auto statistics = LoadStatistics::create(devices, exchange.exchange(), num_layers);
//   auto taken = statistics->allocate_taken();
//   statistics->count(num_tokens, experts, slots, layer);  // each call, once its slots are chosen
//   statistics->end_iteration();                           // each iteration
//   statistics->take(stream_of_balancer, *taken);          // whenever the balancer likes
//   ... = statistics->read(stream_of_balancer, *taken);    // waits for that stream only
//
// A sum over all ranks is the caller's: each rank counts its own tokens.
//
// Thread safety: that of its devices.
#pragma once

#include <vector>

#include "cuda/devices.h"

namespace wideep::cuda {

struct RankLoads {
  int64_t first_iteration = 0;   // counted from 0
  int64_t num_iterations = 0;    // 0: nothing new, and no tokens
  std::vector<uint64_t> tokens;  // [num_layers, num_experts + num_slots]
};

class LoadStatistics {
 public:
  // What create and allocate_taken allocate, but for a few words.
  static size_t num_bytes(const ExchangeShape& shape, int num_layers) {
    return size_t{3} * static_cast<size_t>(num_layers) *
           static_cast<size_t>(shape.num_experts + shape.num_slots()) * sizeof(uint64_t);
  }

  // Errors (invalid input): no layers, or too many experts and slots for a block;
  // failed: not enough memory.
  // num_threads: of the blocks, which are one per kernel.
  static Result<LoadStatistics> create(Devices& devices, const Exchange& x, int num_layers,
                                       int num_threads = kMaxThreads);

  // Adds a call's tokens to row `layer`. All pointers are to the device's memory; experts, slots:
  // [num_tokens, top_k].
  Status count(const int32_t* num_tokens, const int32_t* experts, const int32_t* slots, int layer);
  Status end_iteration();

  // Where a take puts what it gets, on the device.
  struct Taken {
    TakenLoads* loads = nullptr;
    uint64_t* tokens = nullptr;
  };
  Result<Taken> allocate_taken();
  // Takes what ended iterations have handed over. stream: a rank of the devices whose stream runs
  // it; one at a time.
  Status take(int stream, const Taken& to);
  Result<RankLoads> read(int stream, const Taken& taken);

 private:
  LoadStatistics(Devices& devices, const Exchange& x, int num_threads)
      : devices_(&devices), x_(x), num_threads_(num_threads) {}
  size_t sums_bytes() const { return static_cast<size_t>(sums_.num_sums()) * sizeof(uint64_t); }

  Devices* devices_;
  Exchange x_;
  int num_threads_;
  LoadSums sums_;
};

}  // namespace wideep::cuda
