// SPDX-License-Identifier: Apache-2.0
//
// How often an expert that the router chooses would be in memory, for budgets of memory, by policy:
//
//   wideep  ExpertResidency, which has seen the learned part and goes on learning
//   fixed   the experts that the learned part read most, kept as they are
//   oracle  the experts that the judged part reads most: the best set that never changes, which
//           nobody knows beforehand
//   lru     the experts that were used last
//
// A *read* is an expert that at least one token of an iteration chose in a layer, however many
// did: it is a hit if the expert is in memory, else it is fetched once. Under a router that chooses
// all experts alike every policy hits num_records / (L · E) of the reads: what a policy has over
// that comes from the router's preferences.
//
// Thread safety: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "online/request_stream.h"
#include "plan/model_plan.h"
#include "residency/expert_residency.h"

namespace wideep::residency {

struct LayerHits {
  int64_t reads = 0;
  int64_t hits = 0;
  int num_records = 0;  // of the layer in memory, at the end

  bool operator==(const LayerHits&) const = default;
};

struct HitCounts {
  std::vector<LayerHits> layers;

  double rate() const;  // of all layers; 0 without a read
};

struct BudgetHits {
  int num_records = 0;
  HitCounts fixed, oracle;
  std::optional<HitCounts> wideep, lru;  // only where the order of tokens is known
};

// The iterations of a recording: learned from first, then judged on.
struct RecordedIterations {
  int num_layers = 0;
  int num_experts = 0;
  online::NextIteration learned, judged;
};

// For each of the budgets, in records. REQUIRES: 0 to L · E each.
std::vector<BudgetHits> judge_iterations(const RecordedIterations& recorded,
                                         std::span<const int> budgets,
                                         const ResidencyOptions& options);

// The same where only the sums of counts are known, as if every token were an iteration of its own.
// REQUIRES: both have the same layers and experts.
std::vector<BudgetHits> judge_counts(const balance::ModelLoad& learned,
                                     const balance::ModelLoad& judged,
                                     std::span<const int> budgets);

}  // namespace wideep::residency
