// SPDX-License-Identifier: Apache-2.0
//
// A file with one line of JSON per iteration, written when the iteration ends: queue, tokens,
// cache, balance, expert moves. Keys are those of TensorRT-LLM's iteration statistics where it has
// them; docs/bench.md lists all.
//
// Not thread safe.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "online/online_balancer.h"
#include "run/iteration_summary.h"
#include "run/run_options.h"
#include "wideep/status.h"

namespace wideep::run {

class IterationLog {
 public:
  // Errors (invalid input): the file cannot be written.
  static Result<IterationLog> create(const std::string& path);

  // Adds these moves to the next line.
  void add(const online::Rebalance& rebalance);
  // Writes a line and flushes it. After an error nothing more is written.
  void add(const IterationSummary& summary);

  // Errors (failed): a line could not be written.
  const Status& status() const { return status_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  IterationLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  int64_t moves_ = 0;  // since the last line
  int64_t moved_bytes_ = 0;
  Status status_;
};

// The log that the options ask for; nullopt: none, or this process does not receive the events.
// Errors: as create().
Result<std::optional<IterationLog>> create_iteration_log(const RunOptions& options);

}  // namespace wideep::run
