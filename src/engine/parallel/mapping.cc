// SPDX-License-Identifier: Apache-2.0
//
// Sizes are checked one by one, unset ones filled in, and then the products checked: rest() rounds
// down where a product does not divide tp, and leaves it to the check to say so, with all sizes in
// the message.
//
// A group is found by comparing coordinates with those along its axis set to 0. That goes over all
// ranks, but has no second formula that would have to agree with coordinates().
#include "parallel/mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/try.h"

namespace wideep::parallel {
namespace {

constexpr int kUnset = -1;

Status check_size(const char* key, int size) {
  if (size >= 1 && size <= kMaxRanks) return {};
  return invalid_input(fmt::format("{}: expected 1 to {}, found {}", key, kMaxRanks, size));
}

// The value of the unset size: tp / the set sizes. At least 1 if that does not divide, so that the
// product differs from tp and check_products reports it.
int rest(int tp, int64_t product) {
  return static_cast<int>(std::max<int64_t>(1, tp / std::max<int64_t>(1, product)));
}

void fill_unset(ParallelSizes* sizes) {
  if (sizes->moe_cluster == kUnset) sizes->moe_cluster = 1;
  if (sizes->moe_tp == kUnset && sizes->moe_ep == kUnset) sizes->moe_ep = 1;
  if (sizes->moe_tp == kUnset)
    sizes->moe_tp = rest(sizes->tp, int64_t{sizes->moe_ep} * sizes->moe_cluster);
  if (sizes->moe_ep == kUnset)
    sizes->moe_ep = rest(sizes->tp, int64_t{sizes->moe_tp} * sizes->moe_cluster);
}

Status check_products(const ParallelSizes& sizes) {
  // 64 bits: each size may be kMaxRanks.
  const int64_t world = int64_t{sizes.tp} * sizes.pp * sizes.cp;
  if (world > kMaxRanks) {
    return invalid_input(
        fmt::format("tensor_parallel_size {} × pipeline_parallel_size {} × context_parallel_size "
                    "{} = {}, expected at most {} ranks",
                    sizes.tp, sizes.pp, sizes.cp, world, kMaxRanks));
  }
  const int64_t product = int64_t{sizes.moe_tp} * sizes.moe_ep * sizes.moe_cluster;
  if (product != sizes.tp) {
    return invalid_input(
        fmt::format("moe_tensor_parallel_size {} × moe_expert_parallel_size {} × "
                    "moe_cluster_parallel_size {} = {}, expected tensor_parallel_size {}",
                    sizes.moe_tp, sizes.moe_ep, sizes.moe_cluster, product, sizes.tp));
  }
  if (sizes.moe_cluster > 1 && sizes.moe_ep > 1) {
    return invalid_input(
        fmt::format("moe_cluster_parallel_size {} needs moe_expert_parallel_size 1, found {}",
                    sizes.moe_cluster, sizes.moe_ep));
  }
  return {};
}

int& along(Axis axis, Coordinates* coordinates) {
  switch (axis) {
    case Axis::kCp:
      return coordinates->cp_rank;
    case Axis::kPp:
      return coordinates->pp_rank;
    case Axis::kMoeTp:
      return coordinates->moe_tp_rank;
    case Axis::kMoeEp:
      return coordinates->moe_ep_rank;
    case Axis::kMoeCluster:
      return coordinates->moe_cluster_rank;
    case Axis::kTp:
      break;
  }
  return coordinates->tp_rank;
}

// The coordinates that the ranks of a group share; coordinates that differ within the group are set
// to 0. The MoE axes divide tp, so a group along tp spans all of them, a group along one of them
// spans tp, and a group along cp or pp does not affect them.
Coordinates shared_coordinates(Axis axis, Coordinates coordinates) {
  along(axis, &coordinates) = 0;
  if (axis == Axis::kTp) {
    coordinates.moe_tp_rank = coordinates.moe_ep_rank = coordinates.moe_cluster_rank = 0;
  } else if (axis != Axis::kCp && axis != Axis::kPp) {
    coordinates.tp_rank = 0;
  }
  return coordinates;
}

}  // namespace

Result<Mapping> Mapping::create(ParallelSizes sizes) {
  WIDEEP_TRY(check_size("tensor_parallel_size", sizes.tp));
  WIDEEP_TRY(check_size("pipeline_parallel_size", sizes.pp));
  WIDEEP_TRY(check_size("context_parallel_size", sizes.cp));
  fill_unset(&sizes);
  WIDEEP_TRY(check_size("moe_tensor_parallel_size", sizes.moe_tp));
  WIDEEP_TRY(check_size("moe_expert_parallel_size", sizes.moe_ep));
  WIDEEP_TRY(check_size("moe_cluster_parallel_size", sizes.moe_cluster));
  WIDEEP_TRY(check_products(sizes));
  return Mapping(sizes);
}

Coordinates Mapping::coordinates(int rank) const {
  WIDEEP_CHECK(rank >= 0 && rank < world_size());
  Coordinates c;
  c.tp_rank = rank % sizes_.tp;
  c.cp_rank = rank % (sizes_.tp * sizes_.cp) / sizes_.tp;
  c.pp_rank = rank / (sizes_.tp * sizes_.cp);
  c.moe_tp_rank = c.tp_rank / (sizes_.moe_ep * sizes_.moe_cluster);
  c.moe_ep_rank = c.tp_rank % sizes_.moe_ep;
  c.moe_cluster_rank = c.tp_rank % sizes_.moe_cluster;
  return c;
}

std::vector<int> Mapping::stage(int rank) const {
  std::vector<int> ranks(static_cast<size_t>(stage_size()));
  std::iota(ranks.begin(), ranks.end(), coordinates(rank).pp_rank * stage_size());
  return ranks;
}

std::vector<int> Mapping::group(Axis axis, int rank) const {
  const Coordinates shared = shared_coordinates(axis, coordinates(rank));
  std::vector<int> ranks;
  for (int other = 0; other < world_size(); ++other) {
    if (shared_coordinates(axis, coordinates(other)) == shared) ranks.push_back(other);
  }
  return ranks;
}

LayerRange layers_of_stage(int stage, int num_stages, int num_layers) {
  WIDEEP_CHECK(stage >= 0 && stage < num_stages);
  const int base = num_layers / num_stages;
  const int longer = num_layers % num_stages;  // stages with one layer more
  const auto first = [&](int s) { return s * base + std::min(s, longer); };
  return {first(stage), first(stage + 1)};
}

}  // namespace wideep::parallel
