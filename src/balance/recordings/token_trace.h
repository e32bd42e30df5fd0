// SPDX-License-Identifier: Apache-2.0
//
// Per-token traces: which experts the router chose for each token.
//
// A trace is a raw file of expert ids [num_tokens][num_layers][top_k] without a header, uint8 if
// its name ends in .u8 and little-endian uint16 if it ends in .u16. The file does not contain its
// shape; the caller passes it:
//
//   const TraceShape shape{.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1};
//   WIDEEP_TRY_ASSIGN(TraceStatistics trace, read_trace("law.ids.u8", shape));
//   plan(trace.statistics);
//
// Errors (invalid input) name file, token and layer, expected and found: a name with another
// ending, a size that is not a whole number of tokens, no tokens, an expert id out of range, an
// expert chosen twice by one token in one layer. A wrong shape nearly always causes one of these. A
// read error in the middle of the file is kFailed.
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
  // The tokens at the end of the file that are in no iteration: a last window that is less than
  // half full is dropped, because it would be noise beside the others; a fuller one is kept.
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

// A range of a trace's tokens, for example those of some iterations.
struct TracePart {
  std::string path;
  TraceShape shape;
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();  // one past the last, or past the file's end

  bool contains(int64_t token) const { return token >= begin && token < end; }
  bool operator==(const TracePart&) const = default;
};

// Calls visit for every token in file order and each of its layers; keeps only one block of the
// file in memory and ignores window_tokens. Returns the number of tokens. After an error some
// choices have been visited.
Result<int64_t> visit_trace(const std::string& path, const TraceShape& shape,
                            const std::function<void(const TokenChoice&)>& visit);

}  // namespace wideep::recordings
