// SPDX-License-Identifier: Apache-2.0
#include "statistics_options.h"

#include <fmt/format.h>

#include "balance/statistics_reader.h"
#include "base/try.h"

namespace wideep::tools {

void add_statistics_options(CLI::App& command, StatisticsOptions* options) {
  command
      .add_option(
          "--stats,--expert-statistic-path", options->path,
          "Recorded expert statistics: a directory (meta_info.json, rank*.safetensors) or a "
          "JSON file {\"logical_count\": [[...], ...]}")
      ->required();
  command.add_option("--iter-start", options->iter_start, "First iteration to use (default: all)");
  command.add_option("--iter-stop", options->iter_stop, "One past the last iteration to use");
  command.add_option("--ep-size", options->ep_size,
                     "Number of ranks (default: as many as recorded)");
}

Result<balance::ExpertStatistics> read_statistics(const StatisticsOptions& options) {
  WIDEEP_TRY_ASSIGN(balance::ExpertStatistics statistics, balance::read_statistics(options.path));
  if (!options.iter_start && !options.iter_stop) return statistics;
  Result<balance::ExpertStatistics> selected =
      balance::select_iterations(statistics, options.iter_start, options.iter_stop);
  if (!selected.ok()) return selected.status().at(options.path);
  return selected;
}

Result<int> choose_ep_size(const StatisticsOptions& options,
                           const balance::ExpertStatistics& statistics) {
  if (options.ep_size && *options.ep_size < 1) {
    return invalid_input(
        fmt::format("--ep-size: expected at least 1 rank, found {}", *options.ep_size));
  }
  if (options.ep_size) return *options.ep_size;
  if (statistics.ep_size > 1) return statistics.ep_size;
  return invalid_input(fmt::format(
      "{}: recorded by one rank, which says nothing about balance; give --ep-size", options.path));
}

}  // namespace wideep::tools
