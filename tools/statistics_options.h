// SPDX-License-Identifier: Apache-2.0
//
// The options of the `wideep balance ...` commands that select recorded statistics.
#pragma once

#include <optional>
#include <string>

#include "command_line/command_line.h"
#include "recordings/statistics.h"
#include "recordings/token_trace.h"
#include "wideep/status.h"

namespace wideep::tools {

// The shape of a per-token trace, which its file does not contain.
struct TraceOptions {
  std::optional<int> layers;
  std::optional<int> top_k;
  std::optional<int> num_experts;
  std::optional<int> first_layer;
  std::optional<int> window;

  bool any() const { return num_experts || describes_trace(); }
  // What has a meaning for a trace alone.
  bool describes_trace() const { return layers || top_k || first_layer || window; }
};

struct StatisticsOptions {
  std::string path;  // directory or file
  std::optional<int> iter_start;
  std::optional<int> iter_stop;
  std::optional<int> ep_size;
  TraceOptions trace;
};

// Adds --stats (also under TensorRT-LLM's name), --iter-start, --iter-stop, --ep-size and the shape
// of a trace. `options` must outlive the parsing. optional: they need not be given.
void add_statistics_options(command_line::Command command, StatisticsOptions* options,
                            bool optional = false);

// A per-token trace, by the ending of its name.
bool is_trace(const std::string& path);
// Errors (invalid input): a part that a trace needs is not given, after `path`.
Result<recordings::TraceShape> trace_shape(const TraceOptions& trace, const std::string& path);
// The fraction that --holdout gives; nothing where it names a file.
std::optional<double> holdout_fraction(const std::string& holdout);

Result<recordings::ExpertStatistics> read_statistics(const StatisticsOptions& options);
// Also counts of slots, which others refuse.
Result<recordings::ExpertStatistics> read_any_statistics(const StatisticsOptions& options);

// Statistics to plan on and, with --holdout, later ones to evaluate the plan on.
struct SplitStatistics {
  recordings::ExpertStatistics planned_on;
  std::optional<recordings::ExpertStatistics> held_out;
  // The traces that they were counted from, if any.
  std::optional<recordings::TracePart> planned_on_trace;
  std::optional<recordings::TracePart> held_out_trace;
};

// holdout: "" for none, a fraction of the iterations, or a second file of statistics (all of its
// iterations; a trace has the shape of the first). Errors name --holdout.
Result<SplitStatistics> read_split_statistics(const StatisticsOptions& options,
                                              const std::string& holdout);

// The ranks to balance for: --ep-size, else the ranks that recorded.
// Errors (invalid input): not positive, or not given and only one rank recorded.
Result<int> choose_ep_size(const StatisticsOptions& options,
                           const recordings::ExpertStatistics& statistics);

}  // namespace wideep::tools
