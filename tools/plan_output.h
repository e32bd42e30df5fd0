// SPDX-License-Identifier: Apache-2.0
//
// The output of `wideep balance plan`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "plan/assessment.h"
#include "planning.h"
#include "window_report.h"

namespace wideep::tools {

struct PlanResult {
  std::string planner;
  balance::Split split = balance::Split::kEqual;
  std::string from;  // the placement file that was repaired; empty: a new plan
  int num_slots_before = 0;
  WindowReport windows;
  std::optional<RobustChoice> choice;  // the method that planned from windows
  TimedPlan plan;
  balance::Assessment assessment;
  std::string output;  // file
  std::string shares;  // file; empty: not written
};

// A line for each layer, their mean, and the mean's gap to its lower bound.
std::string plan_table(const PlanningInput& input, const PlanResult& result);

std::string plan_json(const PlanningInput& input, const PlanResult& result);

// The keys "imbalance_now" ... "moves" of one layer or mean.
nlohmann::ordered_json to_json(const balance::Figures& figures);

// JSON text as every command prints it.
std::string json_text(const nlohmann::ordered_json& root);

}  // namespace wideep::tools
