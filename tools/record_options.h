// SPDX-License-Identifier: Apache-2.0
//
// The options that say what a run records of its experts: statistics in TensorRT-LLM's files, also
// by its environment variables, and the routing log. All commands that run a model share them.
#pragma once

#include <string>

#include "command_line/command_line.h"
#include "run/run_options.h"
#include "wideep/status.h"

namespace wideep::tools {

struct RecordOptions {
  std::string statistics_path, statistics_range;
  std::string routing_log, routing_log_range;
};

// `options` must outlive the parsing.
void add_record_options(command_line::Command command, RecordOptions* options);

// What is to be recorded.
struct Recording {
  std::optional<run::StatisticsRequest> statistics;
  std::optional<run::RoutingLogRequest> routing_log;
  std::string statistics_path;  // as given, by the option or the variable; "": not
};

// Which directory alone, without iterations, is enough: a server's clients start recordings.
enum class PathAlone { kRefused, kTaken };

// Options win over environment variables. checks_files: this process will write them. Errors
// (invalid input): a range that is none; a directory of statistics without a range, unless that is
// enough; a range of the routing log without its file; a file that cannot be written.
Result<Recording> read_record_options(const RecordOptions& options, bool checks_files,
                                      PathAlone alone = PathAlone::kRefused);

// Errors (invalid input): statistics of a perfect router, also those that clients would start.
Status check_recording(const Recording& recording, bool perfect_router);

// Errors (invalid input): something is to be recorded, and has no meaning for `command`, whose
// reason is `why`.
Status refuse_recording(const RecordOptions& options, const std::string& command,
                        const std::string& why);

}  // namespace wideep::tools
