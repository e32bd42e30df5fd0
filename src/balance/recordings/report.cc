// SPDX-License-Identifier: Apache-2.0
//
// Each iteration is summarised before the mean is taken: the ratio of sums would be more even than
// any iteration was.
#include "recordings/report.h"

#include <fmt/format.h>

#include <span>

#include "base/try.h"

namespace wideep::recordings {
namespace {

using balance::kUnusedSlot;
using balance::LoadSummary;
using balance::ModelPlacement;
using balance::Placement;

LoadSummary& operator+=(LoadSummary& sum, const LoadSummary& other) {
  sum.mean += other.mean;
  sum.std += other.std;
  sum.imbalance_ratio += other.imbalance_ratio;
  return sum;
}

LoadSummary operator/(const LoadSummary& sum, int count) {
  return {sum.mean / count, sum.std / count, sum.imbalance_ratio / count};
}

// For each rank or slot: true if it holds an expert.
std::vector<bool> in_use(const Placement& placement, LoadBy by) {
  std::vector<bool> used(
      static_cast<size_t>(by == LoadBy::kRank ? placement.ep_size : placement.num_slots()));
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    if (placement.slot_to_expert[static_cast<size_t>(slot)] == kUnusedSlot) continue;
    used[static_cast<size_t>(by == LoadBy::kRank ? placement.rank_of_slot(slot) : slot)] = true;
  }
  return used;
}

// Dead ranks and unused slots do not lower the mean.
std::vector<double> loads_in_use(const Placement& placement, LoadBy by,
                                 std::span<const int64_t> expert_load,
                                 const std::vector<bool>& used) {
  const std::vector<double> all = by == LoadBy::kRank ? balance::rank_loads(placement, expert_load)
                                                      : balance::slot_loads(placement, expert_load);
  std::vector<double> loads;
  for (size_t i = 0; i < all.size(); ++i) {
    if (used[i]) loads.push_back(all[i]);
  }
  return loads;
}

// What the slots received in an iteration, [ranks] or [slots in use].
std::vector<double> loads_of_slots(const std::vector<int64_t>& slots, const SlotLayout& layout,
                                   LoadBy by) {
  const int per_rank = static_cast<int>(slots.size()) / layout.num_ranks;
  std::vector<double> ranks(static_cast<size_t>(layout.num_ranks)), used;
  for (int slot = 0; slot < static_cast<int>(slots.size()); ++slot) {
    const auto tokens = static_cast<double>(slots[static_cast<size_t>(slot)]);
    ranks[static_cast<size_t>(slot / per_rank)] += tokens;
    const bool is_borrowed = slot % per_rank >= per_rank - layout.borrowed_per_rank;
    if (!is_borrowed || tokens > 0) used.push_back(tokens);
  }
  return by == LoadBy::kRank ? ranks : used;
}

LoadSummary summarize_layer(const ExpertStatistics& statistics, int layer_idx,
                            const Placement& placement, LoadBy by) {
  // The placement is the same in all iterations.
  const std::vector<bool> used = in_use(placement, by);
  LoadSummary sum;
  for (int iteration = 0; iteration < statistics.num_iterations(); ++iteration) {
    const std::vector<int64_t> load = statistics.iteration_load(iteration, layer_idx);
    sum += balance::summarize_loads(loads_in_use(placement, by, load, used));
  }
  return sum / statistics.num_iterations();
}

std::string table_line(const std::string& label, const LoadSummary& summary) {
  return fmt::format("{:<8}{:>15.3f}{:>15.3f}{:>17.6f}\n", label, summary.mean, summary.std,
                     summary.imbalance_ratio);
}

}  // namespace

Result<LoadReport> report_load(const ExpertStatistics& statistics, const ModelPlacement& placement,
                               LoadBy by) {
  LoadReport report;
  for (int i = 0; i < statistics.num_layers(); ++i) {
    const int layer = statistics.layers[static_cast<size_t>(i)];
    const auto found = placement.layers.find(layer);
    if (found == placement.layers.end()) {
      return invalid_input(fmt::format("layer {}: statistics but no placement", layer));
    }
    if (found->second.num_experts != statistics.num_experts) {
      return invalid_input(fmt::format("layer {}: expected a placement of {} experts, found {}",
                                       layer, statistics.num_experts, found->second.num_experts));
    }
    report.rows.push_back({layer, summarize_layer(statistics, i, found->second, by)});
    report.average += report.rows.back().summary;
  }
  if (!report.rows.empty()) report.average = report.average / static_cast<int>(report.rows.size());
  return report;
}

Result<LoadReport> report_slots(const ExpertStatistics& statistics, LoadBy by) {
  if (!statistics.slots) return invalid_input("expected counts of slots, found counts of experts");
  LoadReport report;
  for (int layer = 0; layer < statistics.num_layers(); ++layer) {
    LoadSummary sum;
    for (int iteration = 0; iteration < statistics.num_iterations(); ++iteration) {
      sum += balance::summarize_loads(
          loads_of_slots(statistics.iteration_load(iteration, layer), *statistics.slots, by));
    }
    report.rows.push_back(
        {statistics.layers[static_cast<size_t>(layer)], sum / statistics.num_iterations()});
    report.average += report.rows.back().summary;
  }
  report.average = report.average / static_cast<int>(report.rows.size());
  return report;
}

Result<ModelPlacement> linear_model_placement(const ExpertStatistics& statistics, int ep_size) {
  WIDEEP_TRY_ASSIGN(const Placement placement,
                    balance::linear_placement(statistics.num_experts, ep_size));
  ModelPlacement model;
  model.num_slots = placement.num_slots();
  for (int layer : statistics.layers) model.layers[layer] = placement;
  return model;
}

std::string load_table(const LoadReport& report) {
  std::string table = fmt::format("Load statistics:\n{:<8}{:>15}{:>15}{:>17}\n", "layer", "mean",
                                  "std", "imbalance-ratio");
  for (const LoadReport::Row& row : report.rows) {
    table += table_line(std::to_string(row.layer), row.summary);
  }
  return table + table_line("average", report.average);
}

}  // namespace wideep::recordings
