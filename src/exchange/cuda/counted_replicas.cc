// SPDX-License-Identifier: Apache-2.0
//
// The CPU builds the graph of replicas once per placement, and all its arrays go to the device in
// one piece of memory, padded so that each begins at a multiple of 16 bytes: one allocation
// instead of some twenty, and vector loads may read a few bytes beyond an array's end. What the
// kernel writes (shares, quotas) lies in the same piece, reserved without contents. That the
// structs of both sides agree is checked at compile time.
#include "cuda/counted_replicas.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "base/try.h"
#include "placement/replica_graph.h"

namespace wideep::cuda {
namespace {

using balance::ReplicaGraph;
static_assert(ReplicaGraph::Step::kTake == 0 && ReplicaGraph::Step::kGive == 1 &&
              ReplicaGraph::Step::kDone == 2);  // as share_solver.h has them
static_assert(sizeof(ReplicaGraph::Step) == 12 && sizeof(ReplicaGraph::CycleStep) == 12);

// Collects arrays for one piece of device memory. Those to be uploaded outlive it.
class Uploads {
 public:
  template <typename T, typename U>
  void add(const std::vector<T>& values, const U** to) {
    static_assert(sizeof(T) % sizeof(U) == 0);
    parts_.push_back({values.data(), values.size() * sizeof(T), reinterpret_cast<void*>(to)});
  }
  template <typename T>
  void add_space(size_t count, T** to) {
    parts_.push_back({nullptr, count * sizeof(T), reinterpret_cast<void*>(to)});
  }
  Status upload(Devices& devices, int rank) const {
    size_t num_bytes = 0;
    for (const Part& part : parts_) num_bytes += padded(part.num_bytes);
    WIDEEP_TRY_ASSIGN(std::byte * at, devices.allocate(rank, num_bytes, false));
    for (const Part& part : parts_) {
      if (part.from != nullptr) WIDEEP_TRY(devices.write(rank, at, part.from, part.num_bytes));
      std::memcpy(part.to, &at, sizeof(at));
      at += padded(part.num_bytes);
    }
    return {};
  }

 private:
  struct Part {
    const void* from;  // null: only space
    size_t num_bytes;
    void* to;  // a pointer
  };
  static size_t padded(size_t num_bytes) { return (num_bytes + 8 + 15) / 16 * 16; }

  std::vector<Part> parts_;
};

// By replica: expert, then slot.
struct ReplicaLists {
  std::vector<int32_t> first, slots, links;
  std::vector<double> fractions, constant_shares;
};

ReplicaLists list_replicas(const balance::Placement& placement, const ReplicaGraph& graph) {
  std::vector<std::vector<int32_t>> slots_of(static_cast<size_t>(placement.num_experts));
  for (int32_t slot = 0; slot < placement.num_slots(); ++slot) {
    const int32_t expert = placement.slot_to_expert[static_cast<size_t>(slot)];
    if (expert != balance::kUnusedSlot) slots_of[static_cast<size_t>(expert)].push_back(slot);
  }
  std::vector<const ReplicaGraph::LinkSlot*> link_of(static_cast<size_t>(placement.num_slots()));
  for (const ReplicaGraph::LinkSlot& each : graph.link_slots) {
    link_of[static_cast<size_t>(each.slot)] = &each;
  }
  ReplicaLists lists;
  for (const std::vector<int32_t>& slots : slots_of) {
    lists.first.push_back(static_cast<int32_t>(lists.slots.size()));
    for (const int32_t slot : slots) {
      const ReplicaGraph::LinkSlot* link = link_of[static_cast<size_t>(slot)];
      lists.slots.push_back(slot);
      lists.links.push_back(link == nullptr ? -1 : link->link);
      lists.fractions.push_back(link == nullptr ? 0.0 : link->fraction);
      lists.constant_shares.push_back(graph.constant_shares[static_cast<size_t>(slot)]);
    }
  }
  lists.first.push_back(static_cast<int32_t>(lists.slots.size()));
  return lists;
}

Status check(const ExchangeShape& shape, const balance::Placement& placement, int ranks_per_node) {
  WIDEEP_TRY(balance::check_placement(placement));
  if (placement.ep_size != shape.ep_size || placement.num_experts != shape.num_experts ||
      placement.num_slots() != shape.num_slots()) {
    return invalid_input(fmt::format(
        "replicas on GPUs: a placement of {} experts on {} slots of {} ranks, expected {} on {} of "
        "{}",
        placement.num_experts, placement.num_slots(), placement.ep_size, shape.num_experts,
        shape.num_slots(), shape.ep_size));
  }
  if (ranks_per_node >= 1 && shape.ep_size % ranks_per_node == 0) return {};
  return invalid_input(fmt::format("replicas on GPUs: {} ranks per node, expected a divisor of {}",
                                   ranks_per_node, shape.ep_size));
}

}  // namespace

Result<CountedReplicas> upload_replicas(Devices& devices, int rank, const ExchangeShape& shape,
                                        const balance::Placement& placement, int ranks_per_node) {
  WIDEEP_TRY(check(shape, placement, ranks_per_node));
  ReplicaGraph graph;
  balance::ReplicaGraphBuilder().build(placement, &graph);
  const ReplicaLists lists = list_replicas(placement, graph);
  std::vector<int32_t> link_spread, link_rank;
  for (const ReplicaGraph::Link& link : graph.links) {
    link_spread.push_back(link.spread);
    link_rank.push_back(link.rank);
  }
  CountedReplicas made;
  made.ranks_per_node = ranks_per_node;
  DeviceReplicaGraph& on_device = made.graph;
  on_device.num_ranks = graph.num_ranks();
  on_device.num_spread = static_cast<int32_t>(graph.spread.size());
  on_device.num_links = static_cast<int32_t>(graph.links.size());
  on_device.num_steps = static_cast<int32_t>(graph.steps.size());
  on_device.num_cycles = static_cast<int32_t>(graph.cycle_start.size()) - 1;
  on_device.num_extra = static_cast<int32_t>(graph.extra_links.size());
  const size_t shared = ChooseByCounts::shared_bytes(shape, on_device);
  if (shared > kMaxSharedBytes) {
    return invalid_input(fmt::format(
        "replicas on GPUs: {} replicas of experts on several ranks need {} bytes of shared memory "
        "in a block, expected at most {}",
        graph.links.size(), shared, kMaxSharedBytes));
  }
  Uploads uploads;
  uploads.add(graph.spread, &on_device.spread);
  uploads.add(link_spread, &on_device.link_spread);
  uploads.add(link_rank, &on_device.link_rank);
  uploads.add(graph.rank_start, &on_device.rank_start);
  uploads.add(graph.spread_links, &on_device.spread_links);
  uploads.add(graph.spread_start, &on_device.spread_start);
  uploads.add(graph.alone, &on_device.alone);
  uploads.add(graph.alone_start, &on_device.alone_start);
  uploads.add(graph.steps, &on_device.steps);
  uploads.add(graph.cycles, &on_device.cycles);
  uploads.add(graph.cycle_start, &on_device.cycle_start);
  uploads.add(graph.extra_links, &on_device.extra_links);
  uploads.add(graph.equal, &on_device.equal);
  uploads.add(lists.first, &made.first);
  uploads.add(lists.slots, &made.slots);
  uploads.add(lists.links, &made.links);
  uploads.add(lists.fractions, &made.fractions);
  uploads.add(lists.constant_shares, &made.constant_shares);
  uploads.add_space(lists.slots.size(), &made.shares);
  uploads.add_space(lists.slots.size(), &made.of_all);
  uploads.add_space(lists.slots.size(), &made.quotas);
  uploads.add_space(static_cast<size_t>(shape.num_experts) * static_cast<size_t>(shape.ep_size),
                    &made.unmatched);
  WIDEEP_TRY(uploads.upload(devices, rank));
  return made;
}

}  // namespace wideep::cuda
