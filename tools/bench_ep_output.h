// SPDX-License-Identifier: Apache-2.0
//
// What `wideep bench ep` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/ep_run.h"
#include "bench/ep_sweep.h"

namespace wideep::tools {

std::string ep_bench_text(const bench::EpBenchOptions& options, const bench::EpBenchReport& report);
nlohmann::ordered_json ep_bench_json(const bench::EpBenchOptions& options,
                                     const bench::EpBenchReport& report);

std::string ep_sweep_text(const bench::EpBenchOptions& options,
                          const std::vector<bench::EpSweepRow>& rows);
nlohmann::ordered_json ep_sweep_json(const bench::EpBenchOptions& options,
                                     const std::vector<bench::EpSweepRow>& rows);

}  // namespace wideep::tools
