// SPDX-License-Identifier: Apache-2.0
//
// What a run is asked to record of its experts, and of which iterations: statistics in
// TensorRT-LLM's files, and the routing log.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "wideep/status.h"

namespace wideep::run {

// Iterations first ... last − 1.
struct IterationRange {
  int64_t first = 0;
  int64_t last = 0;

  bool contains(int64_t iteration) const { return iteration >= first && iteration < last; }
  std::string text() const { return std::to_string(first) + "-" + std::to_string(last); }

  // From "A-B". Errors (invalid input): not two numbers, or not A < B; `name` begins the message.
  static Result<IterationRange> parse(const std::string& text, const std::string& name);
};

struct StatisticsRequest {
  std::string directory;
  IterationRange range;
};

struct RoutingLogRequest {
  std::string path;                     // empty: RunRecorder keeps it
  std::optional<IterationRange> range;  // nullopt: all iterations
  // The log also has the counts of each request. Every rank then keeps them to the end.
  bool by_request = false;

  bool contains(int64_t iteration) const { return !range || range->contains(iteration); }
};

}  // namespace wideep::run
