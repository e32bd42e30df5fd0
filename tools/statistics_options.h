// SPDX-License-Identifier: Apache-2.0
//
// The options by which `wideep balance ...` commands name recorded statistics.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "balance/statistics.h"
#include "wideep/status.h"

namespace wideep::tools {

struct StatisticsOptions {
  std::string path;  // directory or JSON file
  std::optional<int> iter_start;
  std::optional<int> iter_stop;
  std::optional<int> ep_size;
};

// Adds --stats, --iter-start, --iter-stop and --ep-size (and TRT's name of the first).
// `options` must outlive the parsing.
void add_statistics_options(CLI::App& command, StatisticsOptions* options);

Result<balance::ExpertStatistics> read_statistics(const StatisticsOptions& options);

// The ranks to balance for: --ep-size, else the ranks that recorded.
// Errors (invalid input): not positive, or not given and only one rank recorded.
Result<int> choose_ep_size(const StatisticsOptions& options,
                           const balance::ExpertStatistics& statistics);

}  // namespace wideep::tools
