// SPDX-License-Identifier: Apache-2.0
//
// Sizes grow by powers of two, because the product of all choices is weighed; the constants below
// bound it. Whether the engine runs a layout is not decided by rules of the advisor's own:
// model::check_parts is asked, which refuses settings when a run starts. So none is recommended
// that the engine would refuse.
#include "advise/sweep.h"

#include <algorithm>

#include "model/model_division.h"
#include "parallel/parallel_config.h"

namespace wideep::advise {
namespace {

constexpr int kMaxStages = 8;
constexpr int kMaxSlices = 4;
constexpr int kMaxDenseRanks = 64;  // that divide or copy the layers of a dense model
constexpr int kMaxContext = 8;

// Redundant slots of a rank that are worth a look; more take memory from the cache.
constexpr int kRedundantPerRank[] = {0, 1, 2, 4};

// Drafts of a request that are worth a look.
constexpr int kDrafts[] = {1, 2, 3, 5, 8};

// Whether the engine runs the model so (model::check_parts).
bool is_accepted(const model::ModelConfig& config, const cost::Layout& layout) {
  parallel::ParallelConfig settings;
  settings.sizes = {.tp = layout.tensor_ranks(),
                    .pp = layout.stages,
                    .cp = layout.context,
                    .moe_tp = layout.expert_slices,
                    .moe_ep = layout.ep};
  settings.enable_attention_dp = layout.attention_dp;
  return model::check_parts(settings, config).ok();
}

bool divides_heads(const model::ModelConfig& config, int parts) {
  for (int i = 0; i < config.num_attention_kinds(); ++i) {
    if (config.attention_kind(i).num_heads % parts != 0) return false;
  }
  return config.hidden_size % parts == 0;
}

std::vector<int> slot_counts(int num_experts, int ep) {
  const int min = (num_experts + ep - 1) / ep;
  std::vector<int> counts;
  for (const int more : kRedundantPerRank) {
    // A rank alone has every expert already, and no more than one slot for each is of use.
    if (more > 0 && (ep == 1 || min + more > num_experts)) continue;
    counts.push_back((min + more) * ep);
  }
  return counts;
}

// With every number of slots, format and number of drafts.
void add_variants(cost::Layout layout, const std::vector<kernels::WeightFormat>& formats,
                  int experts, const Choices& choices, std::vector<cost::Layout>* layouts) {
  for (const int slots : slot_counts(experts, layout.ep)) {
    layout.num_slots = slots;
    for (const auto format : formats) {
      layout.format = format;
      layout.drafts = 0;
      layouts->push_back(layout);
      for (const int drafts : kDrafts) {
        layout.drafts = drafts;
        if (drafts <= choices.max_drafts) layouts->push_back(layout);
      }
    }
  }
}

}  // namespace

std::vector<int> batches_up_to(int max) {
  std::vector<int> batches;
  for (int power = 1; power <= max; power *= 2) {
    batches.push_back(power);
    if (power >= 2 && power + power / 2 <= max) batches.push_back(power + power / 2);
  }
  if (max > 0 && batches.back() != max) batches.push_back(max);
  return batches;
}

std::vector<cost::Layout> layouts_of(const cost::Hardware& hardware,
                                     const model::ModelConfig& config, const Choices& choices) {
  std::vector<kernels::WeightFormat> formats = choices.formats;
  if (formats.empty()) {
    for (const auto& [format, peak] : hardware.peak) formats.push_back(format);
  }
  const bool has_experts = config.has_experts();
  const int experts = has_experts ? config.routing.num_experts : 0;
  // Ranks of a dense model count as slices: there is nothing else that they could have in common.
  const int max_slices = has_experts ? kMaxSlices : kMaxDenseRanks;
  std::vector<cost::Layout> layouts;
  for (int stages = 1; stages <= std::min(kMaxStages, config.num_layers); stages *= 2) {
    for (int slices = 1; slices <= max_slices; slices *= 2) {
      const bool fits = !has_experts || config.moe_intermediate_size % (slices * 128) == 0;
      if (!fits && slices > 1) continue;
      for (int ep = 1; ep * slices * stages <= choices.max_ranks && ep <= std::max(1, experts);
           ep *= 2) {
        for (int context = 1; context <= kMaxContext; context *= 2) {
          cost::Layout layout{.ep = ep,
                              .expert_slices = slices,
                              .stages = stages,
                              .context = context,
                              .cache = choices.cache};
          if (layout.num_ranks() > choices.max_ranks) break;
          // Without a network, ranks of different nodes do not reach each other.
          const bool one_node =
              hardware.divisible || layout.num_ranks() <= hardware.node_link_ranks;
          if (!one_node && hardware.network.bandwidth <= 0.0) continue;
          for (const bool attention_dp : {true, false}) {
            layout.attention_dp = attention_dp;
            const int parts = layout.tensor_ranks();
            if (!attention_dp && (parts == 1 || !divides_heads(config, parts))) continue;
            if (!is_accepted(config, layout)) continue;
            add_variants(layout, formats, experts, choices, &layouts);
          }
        }
      }
    }
  }
  return layouts;
}

}  // namespace wideep::advise
