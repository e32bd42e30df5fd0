// SPDX-License-Identifier: Apache-2.0
//
// An output without iterations would silently stay empty, and a range without an output would have
// no effect: both are errors. What can fail after a run, a file that cannot be written, is refused
// before it.
#include "record_options.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "base/try.h"
#include "output_file.h"

namespace wideep::tools {
namespace {

constexpr const char* kPathVariable = "EXPERT_STATISTIC_PATH";
constexpr const char* kRangeVariable = "EXPERT_STATISTIC_ITER_RANGE";
constexpr const char* kDefaultPath = "expert_statistic";  // TensorRT-LLM's

// A value and the name under which it was given.
struct Given {
  std::string value, name;
};

Given option_or_variable(const std::string& option, const char* name, const char* variable) {
  const char* value = std::getenv(variable);
  if (!option.empty() || value == nullptr) return {option, name};
  return {value, variable};
}

Given path_of(const RecordOptions& options) {
  return option_or_variable(options.statistics_path, "--expert-statistic-path", kPathVariable);
}

Given range_of(const RecordOptions& options) {
  return option_or_variable(options.statistics_range, "--expert-statistic-iter-range",
                            kRangeVariable);
}

Result<std::optional<run::StatisticsRequest>> statistics_request(const RecordOptions& options,
                                                                 PathAlone alone) {
  const std::string path = path_of(options).value;
  const Given range = range_of(options);
  if (range.value.empty()) {
    if (path.empty() || alone == PathAlone::kTaken) return std::optional<run::StatisticsRequest>();
    return invalid_input(fmt::format(
        "expert statistics to {}: no iterations given; add --expert-statistic-iter-range A-B (or "
        "{})",
        path, kRangeVariable));
  }
  WIDEEP_TRY_ASSIGN(const run::IterationRange parsed,
                    run::IterationRange::parse(range.value, range.name));
  return std::optional(run::StatisticsRequest{path.empty() ? kDefaultPath : path, parsed});
}

Result<std::optional<run::RoutingLogRequest>> routing_log_request(const RecordOptions& options,
                                                                  bool checks_files) {
  constexpr const char* kRange = "--routing-log-iter-range";
  if (options.routing_log.empty()) {
    if (options.routing_log_range.empty()) return std::optional<run::RoutingLogRequest>();
    return invalid_input(fmt::format("{}: has no effect without --routing-log FILE", kRange));
  }
  run::RoutingLogRequest request{.path = options.routing_log};
  if (!options.routing_log_range.empty()) {
    WIDEEP_TRY_ASSIGN(request.range, run::IterationRange::parse(options.routing_log_range, kRange));
  }
  if (checks_files) WIDEEP_TRY(check_output_file(request.path, "--routing-log"));
  return std::optional(std::move(request));
}

}  // namespace

void add_record_options(command_line::Command command, RecordOptions* options) {
  command
      .add_option("--expert-statistic-path", options->statistics_path,
                  "Directory for expert statistics (also EXPERT_STATISTIC_PATH); of experts, "
                  "and with a load balancer in its folder slots/ of slots")
      .path();
  command.add_option(
      "--expert-statistic-iter-range", options->statistics_range,
      "Iterations to record: A-B, where B is not included (also EXPERT_STATISTIC_ITER_RANGE)");
  command
      .add_option(
          "--routing-log", options->routing_log,
          "File for `wideep balance picture`: how many tokens went from which rank to which")
      .path();
  command.add_option("--routing-log-iter-range", options->routing_log_range,
                     "Iterations in the routing log: A-B, where B is not included (default: all)");
}

Result<Recording> read_record_options(const RecordOptions& options, bool checks_files,
                                      PathAlone alone) {
  Recording recording;
  recording.statistics_path = path_of(options).value;
  WIDEEP_TRY_ASSIGN(recording.statistics, statistics_request(options, alone));
  WIDEEP_TRY_ASSIGN(recording.routing_log, routing_log_request(options, checks_files));
  return recording;
}

Status check_recording(const Recording& recording, bool perfect_router) {
  const bool records = recording.statistics || !recording.statistics_path.empty();
  if (!records || !perfect_router) return {};
  return invalid_input(
      "--perfect-router: expert statistics would not be those of the model's own router; leave out "
      "one of the two");
}

Status refuse_recording(const RecordOptions& options, const std::string& command,
                        const std::string& why) {
  for (const Given& given :
       {path_of(options), range_of(options), Given{options.routing_log, "--routing-log"},
        Given{options.routing_log_range, "--routing-log-iter-range"}}) {
    if (given.value.empty()) continue;
    return invalid_input(
        fmt::format("{}: {} records nothing, because {}; leave it out (unset the variable)",
                    given.name, command, why));
  }
  return {};
}

}  // namespace wideep::tools
