// SPDX-License-Identifier: Apache-2.0
//
// The part of the output of `wideep balance plan` about windows of load: imbalance per window
// before and after, and the choice of the method that plans from windows.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "plan/robust.h"
#include "planning.h"

namespace wideep::tools {

struct WindowReport {
  struct Figures {
    int num_windows = 0;
    balance::WindowFigures now;      // the placement before, equal split
    balance::WindowFigures planned;  // the plan with its shares
    balance::WindowFigures resplit;  // ... with shares computed from each window
  };
  Figures planned_on;
  std::optional<Figures> held_out;
};

WindowReport report_windows(const PlanningInput& input, const balance::ModelPlacement& before,
                            const balance::PlannedModel& plan);

// Empty if there is only one window and no method was chosen.
std::string window_lines(const WindowReport& report, const std::optional<RobustChoice>& choice);

nlohmann::ordered_json window_json(const WindowReport& report);
nlohmann::ordered_json choice_json(const RobustChoice& choice);

}  // namespace wideep::tools
