// SPDX-License-Identifier: Apache-2.0
#include "cost/rank_hardware.h"

#include <algorithm>
#include <cmath>

namespace wideep::cost {
namespace {

using kernels::WeightFormat;

// Between constants of one core (part 0) and of all (part 1).
ProductKernel between(const ProductKernel& one, const ProductKernel& all, double part) {
  return {.overhead = std::lerp(one.overhead, all.overhead, part),
          .memory = std::lerp(one.memory, all.memory, part),
          .compute = std::lerp(one.compute, all.compute, part),
          .row_traffic = std::lerp(one.row_traffic, all.row_traffic, part),
          .activation = std::lerp(one.activation, all.activation, part),
          .matrix = std::lerp(one.matrix, all.matrix, part),
          .tile = one.tile};
}

FormatKernels kernels_of(const Hardware& hardware, WeightFormat format, int cores) {
  const FormatKernels one{.experts = hardware.experts_in(format),
                          .dense = hardware.dense_in(format)};
  const auto all = hardware.of_all_cores.find(format);
  if (cores == 1 || all == hardware.of_all_cores.end()) return one;
  const double part = std::log(cores) / std::log(hardware.devices_per_node);
  return {.experts = between(one.experts, all->second.experts, part),
          .dense = between(one.dense, all->second.dense, part)};
}

}  // namespace

int ranks_of_node(const Hardware& hardware, int num_ranks) {
  return hardware.nodes_share_cores ? num_ranks : (num_ranks + hardware.nodes - 1) / hardware.nodes;
}

int cores_of_rank(const Hardware& hardware, int num_ranks) {
  return std::max(1, hardware.devices_per_node / ranks_of_node(hardware, num_ranks));
}

double turns_of_ranks(const Hardware& hardware, int num_ranks) {
  if (!hardware.divisible) return 1.0;
  return std::max(
      1.0, static_cast<double>(ranks_of_node(hardware, num_ranks)) / hardware.devices_per_node);
}

Hardware rank_hardware(Hardware hardware, WeightFormat format, int num_ranks, double bytes) {
  if (!hardware.divisible) return hardware;
  const int cores = cores_of_rank(hardware, num_ranks);
  const int sharing = ranks_of_node(hardware, num_ranks);
  const double running = std::min(hardware.devices_per_node, sharing);
  bytes *= static_cast<double>(sharing) / num_ranks;
  hardware.of_formats[format] = kernels_of(hardware, format, cores);
  for (auto& [each, peak] : hardware.peak) peak *= cores;
  hardware.memory_bandwidth = std::min(hardware.bandwidth_of(bytes / running) * cores,
                                       hardware.node_bandwidth_of(bytes) / running);
  for (auto& [each, rate] : hardware.cached_bandwidth) rate *= cores;  // row_bandwidth()
  return hardware;
}

Hardware dense_hardware(const Hardware& hardware, WeightFormat format, int num_ranks,
                        double bytes) {
  Hardware rank = rank_hardware(hardware, format, num_ranks, bytes);
  const double turns = turns_of_ranks(hardware, num_ranks);
  if (turns == 1.0 || hardware.shared_reads == 0.0) return rank;
  const double found = hardware.shared_reads * (1.0 - 1.0 / turns);
  rank.memory_bandwidth =
      1.0 / ((1.0 - found) / rank.memory_bandwidth + found / rank.row_bandwidth());
  return rank;
}

}  // namespace wideep::cost
