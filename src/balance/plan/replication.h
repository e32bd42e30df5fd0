// SPDX-License-Identifier: Apache-2.0
//
// How many replicas each expert gets: TRT's greedy (doReplication).
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <vector>

namespace wideep::balance {

// load: [E] tokens per expert, finite and ≥ 0 (any unit). Returns [E] replica counts, each ≥ 1,
// which sum to num_slots.
//
// Every expert gets one replica; each further slot goes to the expert whose replicas carry most,
// load / replicas (ties: larger expert id). Without any load the slots are divided evenly, the
// remainder to the lowest ids. As in TRT, loads are rounded to float32 and the rest is computed in
// double, so that ties break the same way.
//
// REQUIRES: num_slots ≥ E ≥ 1.
std::vector<int> replicate_trt(std::span<const double> load, int num_slots);

// The share of an expert's load that one of its replicas carries, as TRT computes it.
inline double replica_load(double load, int num_replicas) {
  return static_cast<double>(static_cast<float>(load)) / num_replicas;
}

}  // namespace wideep::balance
