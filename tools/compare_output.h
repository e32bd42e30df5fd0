// SPDX-License-Identifier: Apache-2.0
//
// The output of `wideep balance compare`: a table, JSON, or an HTML page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/assessment.h"
#include "planning.h"

namespace wideep::tools {

// One planner with one split.
struct ComparedPlan {
  std::string planner;
  balance::Split split = balance::Split::kEqual;
  TimedPlan plan;  // its time is the median of several runs
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
// The whole HTML page, self-contained: it loads nothing.
std::string compare_html(const Comparison& comparison);

}  // namespace wideep::tools
