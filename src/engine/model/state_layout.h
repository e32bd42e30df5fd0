// SPDX-License-Identifier: Apache-2.0
//
// The layout of a sequence's state on one rank, float32: what layers with a recurrent part keep
// beside the KV cache, of the same size for any length of the sequence.
//
//   delta net      for each key head: the convolution's last inputs [width − 1, channels of the
//                  head's query, its key and its value heads], then for each of these value heads a
//                  matrix [key_dim, value_dim]
//   Kimi delta     for each head the convolutions' last inputs [width − 1, 3 · head_dim], then a
//                  matrix [head_dim, head_dim]
//   convolution    its last inputs [width − 1, hidden]
//   Mamba-2        for each head: the convolution's last inputs [width − 1, channels of the head and
//                  of its group's b and c], then a matrix [state_dim, head_dim]
//
// How ranks divide it. A layer's state is a matrix [rows, units · unit_floats] (StateUnits, which
// the part's cost file says). Units are computed apart from each other: a head with its channels,
// or some channels. Of n units a rank has some that follow each other, as equally many as possible:
// in a tensor group a part for each rank, and of that one for each rank that shares the sequences
// (context parallelism). Units are the same whoever has them, so what one layout has kept another
// can read (run/page_geometry.h). Channels that several heads read are in the unit of each of them.
//
// A mixer follows this scheme as a StateMixer (parts/state_mixer.h).
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <vector>

#include "model/config/config.h"
#include "parallel/mapping.h"

namespace wideep::model {

// Which part of every layer's units a rank has; by default all.
struct StatePart {
  int index = 0;
  int count = 1;

  // That of a rank of a tensor group which shares sequences with other ranks (context parallelism).
  static StatePart of_rank(int tp_rank, int tp, int cp_rank, int cp) {
    return {.index = tp_rank * cp + cp_rank, .count = tp * cp};
  }
};

struct UnitRange {
  int first = 0;
  int count = 0;
};
UnitRange units_of_part(int units, StatePart part);

class StateLayout {
 public:
  StateLayout() = default;  // no state
  // Of a whole model, or of these layers' part of it.
  StateLayout(const ModelConfig& config, parallel::LayerRange layers, StatePart part = {});

  // Of one sequence; 0: the rank keeps none. A multiple of 64.
  size_t bytes() const { return begin_.empty() ? 0 : begin_.back(); }
  // The first element of the layer's part, 64-byte aligned if the state is.
  float* of_layer(std::byte* state, int layer) const {
    return reinterpret_cast<float*>(state + begin_[static_cast<size_t>(layer - first_)]);
  }
  // Of `units`, those that this rank has.
  UnitRange own(int units) const { return units_of_part(units, part_); }

 private:
  int first_ = 0;
  StatePart part_;
  std::vector<size_t> begin_;  // [layers + 1] bytes before each layer's part
};

// Of the rank that has the most of the units, if `parts` ranks divide them.
inline StateLayout largest_state_part(const ModelConfig& config, parallel::LayerRange layers,
                                      int parts) {
  return {config, layers, {.index = parts - 1, .count = parts}};
}

}  // namespace wideep::model
