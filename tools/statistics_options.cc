// SPDX-License-Identifier: Apache-2.0
//
// The kind of a file is told by its ending. A per-token trace does not contain its shape, so
// options give it, and are refused where no file is a trace. A held-out part is either the last
// fraction of the iterations or another file, and remembers which tokens of a trace it was counted
// from, for planners that look at single tokens.
#include "statistics_options.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "base/log.h"
#include "base/try.h"
#include "recordings/held_out.h"
#include "recordings/statistics_reader.h"
#include "recordings/token_trace.h"

namespace wideep::tools {
namespace {

using recordings::ExpertStatistics;

bool is_table(const std::string& path) { return path.ends_with(".csv"); }

void add_trace_options(command_line::Command command, TraceOptions* trace) {
  command.add_option("--trace-layers", trace->layers, "For a trace: number of MoE layers");
  command.add_option("--trace-top-k", trace->top_k, "For a trace: experts per token and layer");
  command.add_option("--num-experts", trace->num_experts,
                     "For a trace, or a table of layer_id,expert_id,count: number of experts per "
                     "layer");
  command.add_option("--trace-first-layer", trace->first_layer,
                     "For a trace: index, in the model, of its first layer (default: 0)");
  command.add_option("--trace-window", trace->window,
                     "For a trace: tokens that count as one iteration (default: all)");
}

Status check_window(const std::string& path, std::optional<int> window) {
  if (!window || *window > 0) return {};
  return invalid_input(
      fmt::format("{}: --trace-window: expected at least 1 token, found {}", path, *window));
}

// REQUIRES: layers, top_k and num_experts are given.
recordings::TraceShape shape_of(const TraceOptions& trace) {
  return {.num_layers = *trace.layers,
          .top_k = *trace.top_k,
          .num_experts = *trace.num_experts,
          .first_layer = trace.first_layer.value_or(0),
          .window_tokens = trace.window.value_or(0)};
}

// The tokens of a trace that the iterations of `statistics` were counted from.
std::optional<recordings::TracePart> trace_part(const std::string& path, const TraceOptions& trace,
                                                const ExpertStatistics& statistics) {
  if (!is_trace(path)) return {};
  recordings::TracePart part{.path = path, .shape = shape_of(trace)};
  if (!trace.window) return part;
  part.begin = int64_t{statistics.iter_start} * *trace.window;
  part.end = int64_t{statistics.iter_stop} * *trace.window;
  return part;
}

Result<ExpertStatistics> read_trace(const std::string& path, const TraceOptions& trace) {
  WIDEEP_TRY_ASSIGN(const recordings::TraceShape shape, trace_shape(trace, path));
  WIDEEP_TRY(check_window(path, trace.window));
  WIDEEP_TRY_ASSIGN(recordings::TraceStatistics read, recordings::read_trace(path, shape));
  if (read.num_dropped_tokens > 0) {
    log::warn("{}: the last {} of {} tokens are less than half a window, so they are left out",
              path, read.num_dropped_tokens, read.num_tokens);
  }
  return std::move(read.statistics);
}

// Of a table --num-experts is the number of experts unless it belongs to a trace beside it.
Result<int> experts_of_table(const std::string& path, const TraceOptions& trace) {
  if (!is_table(path) || trace.describes_trace()) return 0;
  const int num_experts = trace.num_experts.value_or(0);
  if (num_experts > 0 || !trace.num_experts) return num_experts;
  return invalid_input(
      fmt::format("{}: --num-experts: expected at least 1, found {}", path, num_experts));
}

Result<ExpertStatistics> read_file(const std::string& path, const TraceOptions& trace) {
  if (is_trace(path)) return read_trace(path, trace);
  WIDEEP_TRY_ASSIGN(const int num_experts, experts_of_table(path, trace));
  WIDEEP_TRY_ASSIGN(ExpertStatistics statistics, recordings::read_statistics(path, num_experts));
  if (statistics.guessed_experts) {
    log::warn(
        "{}: does not say how many experts there are; {} are assumed, the largest id + 1: "
        "--num-experts tells",
        path, statistics.num_experts);
  }
  return statistics;
}

// The shape options would have no effect on other files. Either --stats or --holdout may be the
// trace. A table says itself whether --num-experts describes it.
Status check_trace_options(const StatisticsOptions& options, const std::string& holdout) {
  if (!options.trace.any() || is_trace(options.path) || is_trace(holdout)) return {};
  const bool only_experts = options.trace.num_experts && !options.trace.describes_trace();
  if (only_experts && (is_table(options.path) || is_table(holdout))) return {};
  return invalid_input(fmt::format(
      "{}: --trace-... and --num-experts describe a trace, expected a file that ends in .u8 or "
      ".u16; leave them out",
      options.path));
}

Result<ExpertStatistics> select(const StatisticsOptions& options, ExpertStatistics statistics) {
  if (!options.iter_start && !options.iter_stop) return statistics;
  Result<ExpertStatistics> selected =
      recordings::select_iterations(statistics, options.iter_start, options.iter_stop);
  if (!selected.ok()) return selected.status().at(options.path);
  return selected;
}

Result<ExpertStatistics> read_selected(const StatisticsOptions& options) {
  WIDEEP_TRY_ASSIGN(ExpertStatistics statistics, read_file(options.path, options.trace));
  return select(options, std::move(statistics));
}

void name_traces(const StatisticsOptions& options, const std::string& held_out_path,
                 SplitStatistics* split) {
  split->planned_on_trace = trace_part(options.path, options.trace, split->planned_on);
  if (!split->held_out) return;
  split->held_out_trace = trace_part(held_out_path, options.trace, *split->held_out);
}

}  // namespace

bool is_trace(const std::string& path) { return path.ends_with(".u8") || path.ends_with(".u16"); }

Result<recordings::TraceShape> trace_shape(const TraceOptions& trace, const std::string& path) {
  if (trace.layers && trace.top_k && trace.num_experts) return shape_of(trace);
  return invalid_input(
      fmt::format("{}: a trace does not contain its shape: give --trace-layers, --trace-top-k "
                  "and --num-experts",
                  path));
}

std::optional<double> holdout_fraction(const std::string& holdout) {
  double value = 0;
  const char* end = holdout.data() + holdout.size();
  const auto [stop, error] = std::from_chars(holdout.data(), end, value);
  if (error != std::errc() || stop != end) return {};
  return value;
}

void add_statistics_options(command_line::Command command, StatisticsOptions* options,
                            bool optional) {
  command_line::Option path =
      command
          .add_option(
              "--stats,--expert-statistic-path", options->path,
              "Recorded expert statistics: a directory (meta_info.json, rank*.safetensors), a JSON "
              "file {\"logical_count\": [[...], ...]}, a table FILE.csv (layer,e0,e1,... or "
              "layer_id,expert_id,count), or a "
              "per-token trace FILE.u8 or FILE.u16")
          .path();
  if (!optional) path.required();
  command.add_option("--iter-start", options->iter_start, "First iteration to use (default: all)");
  command.add_option("--iter-stop", options->iter_stop, "One past the last iteration to use");
  command.add_option("--ep-size", options->ep_size,
                     "Number of ranks (default: as many as recorded)");
  add_trace_options(command, &options->trace);
}

Result<ExpertStatistics> read_statistics(const StatisticsOptions& options) {
  WIDEEP_TRY(check_trace_options(options, ""));
  return read_selected(options);
}

Result<ExpertStatistics> read_any_statistics(const StatisticsOptions& options) {
  std::error_code absent;
  if (!std::filesystem::is_directory(options.path, absent)) return read_statistics(options);
  WIDEEP_TRY(check_trace_options(options, ""));
  WIDEEP_TRY_ASSIGN(ExpertStatistics statistics,
                    recordings::read_statistics_directory(options.path));
  return select(options, std::move(statistics));
}

Result<SplitStatistics> read_split_statistics(const StatisticsOptions& options,
                                              const std::string& holdout) {
  WIDEEP_TRY(check_trace_options(options, holdout));
  SplitStatistics split;
  WIDEEP_TRY_ASSIGN(split.planned_on, read_selected(options));
  if (holdout.empty()) {
    name_traces(options, "", &split);
    return split;
  }
  if (const std::optional<double> fraction = holdout_fraction(holdout)) {
    Result<recordings::HeldOut> cut = recordings::hold_out_last(split.planned_on, *fraction);
    if (!cut.ok()) return cut.status().at(options.path + ": --holdout");
    split = {.planned_on = std::move(cut->earlier), .held_out = std::move(cut->later)};
    name_traces(options, options.path, &split);
    return split;
  }
  Result<ExpertStatistics> later = read_file(holdout, options.trace);
  if (!later.ok()) return later.status().at("--holdout");
  WIDEEP_TRY(recordings::check_same_experts(split.planned_on, *later).at("--holdout: " + holdout));
  split.held_out = std::move(later).value();
  name_traces(options, holdout, &split);
  return split;
}

Result<int> choose_ep_size(const StatisticsOptions& options, const ExpertStatistics& statistics) {
  if (options.ep_size && *options.ep_size < 1) {
    return invalid_input(
        fmt::format("--ep-size: expected at least 1 rank, found {}", *options.ep_size));
  }
  if (options.ep_size) return *options.ep_size;
  if (statistics.ep_size > 1) return statistics.ep_size;
  return invalid_input(
      fmt::format("{}: recorded by one rank, which cannot be imbalanced; give --ep-size, the "
                  "number of ranks to balance for",
                  options.path));
}

}  // namespace wideep::tools
