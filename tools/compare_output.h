// SPDX-License-Identifier: Apache-2.0
//
// What `wideep balance compare` says: one table, JSON, or a page that draws it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "balance/assessment.h"
#include "planning.h"

namespace wideep::tools {

// One planner with one split.
struct ComparedPlan {
  std::string planner;
  balance::Split split = balance::Split::kEqual;
  TimedPlan plan;  // with the median of several times
  balance::Assessment assessment;

  double total_moves() const;
};

struct Comparison {
  std::string file;  // the statistics, as named by the user
  PlanningInput input;
  balance::ModelPlacement before;
  std::optional<double> bytes_per_expert;
  std::vector<ComparedPlan> plans;  // at least one
};

std::string compare_table(const Comparison& comparison);
std::string compare_json(const Comparison& comparison);
// The whole HTML page: everything it shows is in it.
std::string compare_html(const Comparison& comparison);

}  // namespace wideep::tools
