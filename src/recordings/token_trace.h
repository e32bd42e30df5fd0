// SPDX-License-Identifier: Apache-2.0
//
// Per-token traces: which experts the router chose for each token.
//
// A trace is a raw file of expert ids [num_tokens][num_layers][top_k] without a header, uint8 when
// its name ends in .u8 and little-endian uint16 when it ends in .u16. Its shape is not in the file;
// who names the file knows it:
//
//   const TraceShape shape{.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1};
//   WIDEEP_TRY_ASSIGN(TraceStatistics trace, read_trace("law.ids.u8", shape));
//   plan(trace.statistics);
//
// Errors (invalid input) name file, token and layer, expected and found: a name with another
// ending, a size that is not a whole number of tokens, no tokens, an id that is no expert, an
// expert chosen twice by one token in one layer. A wrong shape nearly always ends in one of these.
// A file whose reading breaks off is another (failed).
//
// Thread safety: pure functions of the file.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>

#include "recordings/statistics.h"
#include "wideep/status.h"

namespace wideep::recordings {

struct TraceShape {
  int num_layers = 0;   // MoE layers in the trace, 1 to 65536
  int top_k = 0;        // experts of a token in a layer, 1 to 1024 and ≤ num_experts
  int num_experts = 0;  // E, 1 to 65536; at most 256 in a .u8 file
  int first_layer = 0;  // the model's index of the first of them, 0 to 65536; the others follow it
  int window_tokens = 0;  // tokens of an iteration; 0: the whole trace is one

  bool operator==(const TraceShape&) const = default;
};

// Errors (invalid input): a number outside its range above.
Status check_trace_shape(const TraceShape& shape);

struct TraceStatistics {
  // One iteration for each window of tokens in file order, numbered from 0; one rank.
  ExpertStatistics statistics;
  int64_t num_tokens = 0;  // in the file
  // How many of them, at the end of the file, are in no iteration: a last window that is less than
  // half full would be noise beside the others and is dropped, a fuller one is kept as it is.
  int64_t num_dropped_tokens = 0;

  bool operator==(const TraceStatistics&) const = default;
};

// Errors: as above; fewer tokens than half a window, or windows so small that their counts exceed
// 1 GiB (invalid input).
Result<TraceStatistics> read_trace(const std::string& path, const TraceShape& shape);

// The experts of one token in one layer.
struct TokenChoice {
  int64_t token = 0;
  int layer_idx = 0;                  // from 0; the model's layer is first_layer + layer_idx
  std::span<const uint16_t> experts;  // [top_k], distinct, each < num_experts
};

// A stretch of a trace's tokens: those that some iterations were counted from.
struct TracePart {
  std::string path;
  TraceShape shape;
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();  // one past the last, or past the file's end

  bool contains(int64_t token) const { return token >= begin && token < end; }
  bool operator==(const TracePart&) const = default;
};

// Calls visit for every token in file order and each of its layers, holding only a piece of the
// file in memory; window_tokens does not matter. Returns the number of tokens. After an error some
// choices have been visited.
Result<int64_t> visit_trace(const std::string& path, const TraceShape& shape,
                            const std::function<void(const TokenChoice&)>& visit);

}  // namespace wideep::recordings
