// SPDX-License-Identifier: Apache-2.0
//
// The output of `wideep bench ep`, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "measure/ep/ep_run.h"
#include "measure/ep/ep_sweep.h"

namespace wideep::tools {

std::string ep_bench_text(const measure::EpBenchOptions& options,
                          const measure::EpBenchReport& report);
nlohmann::ordered_json ep_bench_json(const measure::EpBenchOptions& options,
                                     const measure::EpBenchReport& report);

std::string ep_sweep_text(const measure::EpBenchOptions& options,
                          const std::vector<measure::EpSweepRow>& rows);
nlohmann::ordered_json ep_sweep_json(const measure::EpBenchOptions& options,
                                     const std::vector<measure::EpSweepRow>& rows);

}  // namespace wideep::tools
