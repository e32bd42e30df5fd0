// SPDX-License-Identifier: Apache-2.0
//
// The part of the model that each rank computes: rank ↔ coordinates along each axis of parallelism,
// with TRT's names and order (mapping.py).
//
//   world = tp × pp × cp        tp = moe_tp × moe_ep × moe_cluster
//   rank  = (pp_rank × cp + cp_rank) × tp + tp_rank
//
// Within tp, the ranks of a moe_ep group are neighbours and those of a moe_tp group are moe_ep
// apart: tp 8 = moe_tp 2 × moe_ep 4 has moe_ep groups [0 1 2 3] [4 5 6 7] and moe_tp groups [0 4]
// [1 5] [2 6] [3 7].
//
// Thread safety: immutable after create.
#pragma once

#include <vector>

#include "wideep/status.h"

namespace wideep::parallel {

// The limit of the world's size and of each size. 2^16 keeps every product of three sizes within
// int64.
inline constexpr int kMaxRanks = 1 << 16;

// −1: not set, see Mapping::create.
struct ParallelSizes {
  int tp = 1;
  int pp = 1;
  int cp = 1;
  int moe_tp = -1;
  int moe_ep = -1;
  int moe_cluster = -1;
};

struct Coordinates {
  int tp_rank = 0;
  int cp_rank = 0;
  int pp_rank = 0;
  int moe_tp_rank = 0;
  int moe_ep_rank = 0;
  int moe_cluster_rank = 0;

  bool operator==(const Coordinates&) const = default;
};

enum class Axis { kTp, kCp, kPp, kMoeTp, kMoeEp, kMoeCluster };

// Layers first ≤ l < last.
struct LayerRange {
  int first = 0;
  int last = 0;

  int count() const { return last - first; }
  bool contains(int layer) const { return layer >= first && layer < last; }
  bool operator==(const LayerRange&) const = default;
};

// The layers of a pipeline stage: stages get equally many layers in order, the first num_layers %
// num_stages stages one more. REQUIRES: 0 ≤ stage < num_stages.
LayerRange layers_of_stage(int stage, int num_stages, int num_layers);

class Mapping {
 public:
  // Fills unset sizes as TRT does: moe_cluster 1; if moe_tp and moe_ep are both unset, moe_ep 1 and
  // moe_tp the rest of tp; if one of them is unset, it is the rest. Errors (invalid input), naming
  // the key of the configuration file: a size outside 1 ... kMaxRanks, more than kMaxRanks ranks,
  // moe_tp × moe_ep × moe_cluster ≠ tp, moe_cluster > 1 together with moe_ep > 1.
  static Result<Mapping> create(ParallelSizes sizes);

  const ParallelSizes& sizes() const { return sizes_; }  // all set
  int world_size() const { return sizes_.tp * sizes_.pp * sizes_.cp; }
  // Ranks of one pipeline stage, which are neighbours.
  int stage_size() const { return sizes_.tp * sizes_.cp; }

  // REQUIRES: 0 ≤ rank < world_size().
  Coordinates coordinates(int rank) const;

  // All ranks, ascending, of the pipeline stage that `rank` belongs to.
  std::vector<int> stage(int rank) const;

  // The ranks, ascending, that differ from `rank` along this axis only (`rank` included).
  std::vector<int> group(Axis axis, int rank) const;

 private:
  explicit Mapping(const ParallelSizes& sizes) : sizes_(sizes) {}

  ParallelSizes sizes_;
};

}  // namespace wideep::parallel
