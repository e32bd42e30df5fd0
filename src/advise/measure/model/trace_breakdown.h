// SPDX-License-Identifier: Apache-2.0
//
// What each part of an iteration takes, summed over the ranks of a trace (`--profile-output`).
//
// A part's time is its own: that of its spans without the spans inside them. So the parts of the
// forward thread add up to the time that ranks have spent between the first and the last of their
// spans, without what lies between two iterations. Spans of other lanes (rows that travel, copies
// of experts) run beside it and count whole.
//
// Thread safety: pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wideep/status.h"

namespace wideep::measure {

struct SpanTime {
  std::string name;      // "attention"
  std::string lane;      // "forward"
  int64_t count = 0;     // spans of all ranks
  double us = 0.0;       // of an iteration of a rank, mean
  double us_low = 0.0;   // the same of the rank with the least
  double us_high = 0.0;  // and of the one with the most
};

struct TraceBreakdown {
  int num_ranks = 0;
  int64_t num_iterations = 0;    // of one rank; the most, if ranks differ
  std::vector<SpanTime> parts;   // of the forward lane, in the order of their first spans
  std::vector<SpanTime> beside;  // of other lanes; the two lanes of alternating calls count as one
  int64_t num_dropped = 0;       // spans that did not fit into the recorder's memory

  double us() const;  // of an iteration of a rank: the sum of the parts
};

// Errors (invalid input) name the file: it cannot be read, is no JSON or no trace of ranks, has no
// whole iteration, or has spans of a thread that overlap in part.
Result<TraceBreakdown> break_down_trace(const std::string& path);

}  // namespace wideep::measure
