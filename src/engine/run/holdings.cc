// SPDX-License-Identifier: Apache-2.0
//
// A rank writes its holdings into its own segment, forwards them to other nodes, and after a
// barrier all read all. The second barrier keeps anyone from reusing the memory too early.
//
// Slots per rank differ between members, since some come from a group of another size; so the
// number is in the header. The placement follows from equal inputs by a deterministic function on
// each rank.
#include "run/holdings.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/try.h"
#include "group/fault_drill.h"
#include "plan/regroup.h"
#include "run/layouts.h"

namespace wideep::run {
namespace {

using Header = HoldingsHeader;

size_t num_layers(const RunPlan& plan) { return plan.model.placement.layers.size(); }

size_t num_loads(const RunPlan& plan) {
  return num_layers(plan) * static_cast<size_t>(plan.dispatch.num_experts);
}

size_t bytes_with(const RunPlan& plan, size_t slots_per_rank) {
  return holdings_bytes(num_layers(plan), static_cast<size_t>(plan.dispatch.num_experts),
                        slots_per_rank);
}

void write(const Holdings& own, const RunPlan& plan, std::byte* to) {
  const size_t slots = own.experts.empty() ? 0 : own.experts.front().size();
  WIDEEP_CHECK_LE(bytes_with(plan, slots), plan.segment.bytes());
  const Header header{own.iteration, static_cast<int64_t>(slots)};
  std::memcpy(to, &header, sizeof(header));
  to += sizeof(header);
  std::memcpy(to, own.loads.data(), own.loads.size() * sizeof(double));
  to += own.loads.size() * sizeof(double);
  for (const std::vector<int32_t>& layer : own.experts) {
    std::memcpy(to, layer.data(), slots * sizeof(int32_t));
    to += slots * sizeof(int32_t);
  }
}

Holdings read(const RunPlan& plan, const std::byte* from) {
  Header header;
  std::memcpy(&header, from, sizeof(header));
  from += sizeof(header);
  Holdings holdings{.iteration = header.iteration,
                    .experts = std::vector<std::vector<int32_t>>(num_layers(plan)),
                    .loads = std::vector<double>(num_loads(plan))};
  std::memcpy(holdings.loads.data(), from, holdings.loads.size() * sizeof(double));
  from += holdings.loads.size() * sizeof(double);
  const auto slots = static_cast<size_t>(header.slots_per_rank);
  for (std::vector<int32_t>& layer : holdings.experts) {
    layer.resize(slots);
    std::memcpy(layer.data(), from, slots * sizeof(int32_t));
    from += slots * sizeof(int32_t);
  }
  return holdings;
}

}  // namespace

Result<std::vector<Holdings>> exchange_holdings(const Holdings& own, const RunPlan& plan,
                                                transport::Endpoint& group) {
  WIDEEP_CHECK_EQ(own.loads.size(), num_loads(plan));
  write(own, plan, group.segment(group.rank()));
  const size_t slots = own.experts.empty() ? 0 : own.experts.front().size();
  const std::array<transport::Written, 1> written = {
      transport::Written{.first = group.segment(group.rank()), .width = bytes_with(plan, slots)}};
  group.forward_to_all(group.rank(), written);
  transport::FaultDrill::pass(transport::FaultDrill::Step::kHolding);
  WIDEEP_TRY(group.barrier({.what = "the experts that it holds"}));
  std::vector<Holdings> all;
  for (int rank = 0; rank < group.num_ranks(); ++rank) {
    all.push_back(read(plan, group.segment(rank)));
  }
  WIDEEP_TRY(group.barrier({.what = "the end of the exchange of holdings"}));
  return all;
}

balance::ModelPlacement regroup_placement(const RunPlan& plan, std::span<const Holdings> ranks) {
  const auto num_experts = static_cast<size_t>(plan.dispatch.num_experts);
  const auto num_ranks = static_cast<int>(ranks.size());
  const int slots = plan.slots_per_rank(num_ranks);
  balance::ModelPlacement placement = plan.model.placement;
  placement.num_slots = num_ranks * slots;
  size_t index = 0;
  for (auto& [layer, each] : placement.layers) {
    std::vector<std::vector<int32_t>> held;
    std::vector<double> load(num_experts, 1e-9);  // without any load, replicas are spread evenly
    for (const Holdings& rank : ranks) {
      held.push_back(rank.experts[index]);
      for (size_t expert = 0; expert < num_experts; ++expert) {
        load[expert] += rank.loads[index * num_experts + expert];
      }
    }
    each = balance::regroup(held, plan.dispatch.num_experts, slots, load);
    ++index;
  }
  return placement;
}

}  // namespace wideep::run
