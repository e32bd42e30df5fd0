// SPDX-License-Identifier: Apache-2.0
//
// Counts of tokens that chose two experts together, for planners that put such experts on one node
// or rank.
//
// Thread safety: plain values; count_pairs is a pure function of the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "recordings/token_trace.h"
#include "wideep/status.h"

namespace wideep::recordings {

// counts[l][a][b] = tokens that chose both a and b in layer l; symmetric, 0 where a == b.
struct PairCounts {
  int num_experts = 0;          // E
  int64_t num_tokens = 0;       // counted in every layer
  std::vector<int> layers;      // the model's layer indices, ascending
  std::vector<int64_t> counts;  // [layer, expert, expert]

  int num_layers() const { return static_cast<int>(layers.size()); }
  // The counts of `expert` with every expert, [E]; layer_idx 0 is layers[0].
  std::span<const int64_t> row(int layer_idx, int expert) const;
  std::span<const int64_t> matrix(int layer_idx) const;  // [expert, expert]

  bool operator==(const PairCounts&) const = default;
};

// Counts the tokens of a part of a trace; ignores window_tokens. Errors: as visit_trace; matrices
// of more than 1 GiB in all (invalid input).
Result<PairCounts> count_pairs(const TracePart& trace);
// The same for all tokens of a trace.
Result<PairCounts> count_pairs(const std::string& path, const TraceShape& shape);

}  // namespace wideep::recordings
