// SPDX-License-Identifier: Apache-2.0
//
// The output of `wideep balance cache`: a line for each batch and budget, with --by-layer one for
// each layer of them, or JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "residency/hit_rates.h"

namespace wideep::tools {

struct JudgedBudget {
  int batch = 0;  // 0: counts, whose order is not known
  residency::BudgetHits hits;
};

struct JudgedCache {
  std::string recording;    // as the user names it
  std::string text;         // for people: what was learned from, and judged on
  std::vector<int> layers;  // the model's indices
  int num_experts = 0;
  std::optional<double> bytes_per_expert;
  bool by_layer = false;
  std::vector<JudgedBudget> budgets;

  int num_records() const { return static_cast<int>(layers.size()) * num_experts; }
};

std::string cache_table(const JudgedCache& judged);
std::string cache_json(const JudgedCache& judged);

}  // namespace wideep::tools
