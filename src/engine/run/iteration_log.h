// SPDX-License-Identifier: Apache-2.0
//
// A file with one line of JSON per iteration, written when the iteration ends: queue, tokens,
// cache, balance, expert moves. Keys are those of TensorRT-LLM's iteration statistics where it has
// them; docs/bench.md lists all.
//
// The file has a bound: where the next line would exceed it, the file becomes PATH.1, in place of
// the one before, and a new file begins. Only regular files are bounded.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "online/online_balancer.h"
#include "run/iteration_summary.h"
#include "run/run_options.h"
#include "wideep/status.h"

namespace wideep::run {

class IterationLog {
 public:
  // max_bytes: the bound of the file; 0: none. With a bound an old PATH.1 is removed, so that both
  // files are of this run. Errors (invalid input): the file, or PATH.1, cannot
  // be written.
  static Result<IterationLog> create(const std::string& path, uint64_t max_bytes = 0);

  IterationLog(IterationLog&& other) noexcept;
  IterationLog& operator=(IterationLog&& other) noexcept;
  ~IterationLog();

  // In another process, where the one that wrote the log has died: appends to the file that has the
  // path now, after its last whole line. Errors (failed): it cannot be written.
  Status go_on();

  // Adds these moves to the next line.
  void add(const online::Rebalance& rebalance);
  // Writes a line. After an error nothing more is written, and the file ends with its last whole
  // line.
  void add(const IterationSummary& summary);

  // Errors (failed): a line could not be written.
  const Status& status() const { return status_; }

 private:
  IterationLog(std::string path, int fd, uint64_t max_bytes);
  Status append(std::string_view line);
  Status rotate();
  Status unwritable(int error) const;

  std::string path_;
  int fd_;
  uint64_t max_bytes_;  // 0: no bound
  uint64_t bytes_ = 0;  // of whole lines in the file
  int64_t moves_ = 0;   // since the last line
  int64_t moved_bytes_ = 0;
  Status status_;
};

// The log that the options ask for; nullopt: none, or this process does not receive the events.
// Errors: as create().
Result<std::optional<IterationLog>> create_iteration_log(const RunOptions& options);

}  // namespace wideep::run
