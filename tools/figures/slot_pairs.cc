// SPDX-License-Identifier: Apache-2.0
#include "figures/slot_pairs.h"

#include <fmt/format.h>

#include <memory>
#include <numeric>

#include "ep/slot_choice.h"

namespace wideep::tools {
namespace {

using recordings::RoutingLog;

// The choosers of all ranks for one layer.
class Choice {
 public:
  Choice(const RoutingLog& log, const balance::ModelPlacement& placement, size_t layer_idx,
         int num_nodes)
      : layer_(log.layers[layer_idx]),
        by_iteration_(placement.share_update == balance::ShareUpdate::kIteration) {
    const balance::Placement& slots = placement.layers.at(layer_);
    const ep::DispatchShape shape{.ep_size = log.ep_size,
                                  .num_experts = log.num_experts,
                                  .slots_per_rank = slots.slots_per_rank(),
                                  .top_k = log.top_k,
                                  .num_nodes = num_nodes};
    for (int rank = 0; rank < log.ep_size; ++rank) {
      choosers_.push_back(std::make_unique<ep::SlotChooser>(shape, rank));
      choosers_.back()->set_placement(layer_, slots, {});
    }
    num_slots_ = static_cast<size_t>(slots.num_slots());
  }

  // counts: [R][E] of the iteration. [R][S]
  std::vector<std::vector<int64_t>> pairs(const std::vector<std::vector<int32_t>>& counts) {
    std::vector<int32_t> all;
    for (const auto& row : counts) all.insert(all.end(), row.begin(), row.end());
    std::vector<std::vector<int64_t>> found;
    for (size_t rank = 0; rank < choosers_.size(); ++rank) {
      found.push_back(pairs_of(rank, counts[rank], all));
    }
    return found;
  }

 private:
  std::vector<int64_t> pairs_of(size_t rank, const std::vector<int32_t>& own,
                                const std::vector<int32_t>& all) {
    ep::SlotChooser& chooser = *choosers_[rank];
    if (by_iteration_ && chooser.has_replicas(layer_)) {
      chooser.split_by_counts(layer_, all);
    } else {
      chooser.split_by_given_shares(layer_, own);
    }
    std::vector<int32_t> experts;
    for (size_t expert = 0; expert < own.size(); ++expert) {
      experts.insert(experts.end(), static_cast<size_t>(own[expert]), static_cast<int32_t>(expert));
    }
    std::vector<int32_t> slots(experts.size());
    chooser.choose(layer_, experts, slots);
    std::vector<int64_t> found(num_slots_);
    for (const int32_t slot : slots) ++found[static_cast<size_t>(slot)];
    return found;
  }

  int layer_;
  bool by_iteration_;
  size_t num_slots_ = 0;
  std::vector<std::unique_ptr<ep::SlotChooser>> choosers_;
};

// "" if the slots' ranks are those that the log has.
std::string difference(const RoutingLog::Iteration& iteration, size_t layer_idx,
                       const std::vector<std::vector<int64_t>>& pairs) {
  const auto& sent = iteration.sent[layer_idx];
  for (size_t from = 0; from < sent.size(); ++from) {
    const size_t per_rank = pairs[from].size() / sent.size();
    for (size_t to = 0; to < sent.size(); ++to) {
      const auto first = pairs[from].begin() + static_cast<ptrdiff_t>(to * per_rank);
      const int64_t chosen =
          std::reduce(first, first + static_cast<ptrdiff_t>(per_rank), int64_t{0});
      if (chosen == sent[from][to]) continue;
      return fmt::format("rank {} sent {} pairs to rank {}, by this placement {}", from,
                         sent[from][to], to, chosen);
    }
  }
  return "";
}

}  // namespace

Result<SlotPairs> slot_pairs(const RoutingLog& log, const balance::ModelPlacement& placement,
                             size_t layer_idx, const SlotQuestion& question) {
  const int layer = log.layers[layer_idx];
  for (const RoutingLog::LayerUpdate& update : log.layer_updates) {
    const bool is_later = update.switched > log.iterations[question.end - 1].iteration;
    if (update.layer != layer || is_later) continue;
    return invalid_input(
        fmt::format("layer {} was updated at iteration {} (online balancing), and a routing log "
                    "does not have the new slots",
                    layer, update.switched));
  }
  Choice choice(log, placement, layer_idx, question.num_nodes);
  SlotPairs found;
  // Given shares carry what they rounded from one iteration to the next; shares of an iteration
  // are its own.
  const bool carries = placement.share_update == balance::ShareUpdate::kWindow;
  for (size_t i = carries ? 0 : question.first; i < question.end; ++i) {
    const RoutingLog::Iteration& iteration = log.iterations[i];
    if (i < question.first) {
      choice.pairs(iteration.counts[layer_idx]);
      continue;
    }
    found.push_back(choice.pairs(iteration.counts[layer_idx]));
    const std::string differs = difference(iteration, layer_idx, found.back());
    if (differs.empty()) continue;
    return invalid_input(
        fmt::format("layer {}, iteration {}: {}: not the placement of the run (or with iterations "
                    "missing before, prompts in chunks, lent experts, or other nodes)",
                    layer, iteration.iteration, differs));
  }
  return found;
}

}  // namespace wideep::tools
