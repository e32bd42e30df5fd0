// SPDX-License-Identifier: Apache-2.0
//
// The layout of a sequence's state on one rank, float32: what layers with a recurrent part keep
// beside the KV cache, of the same size for any length of the sequence.
//
//   delta net      the convolution's last inputs [width − 1, convolved_width], then for each value
//                  head a matrix [key_dim, value_dim]
//   convolution    its last inputs [width − 1, hidden]
//   Mamba-2        the convolution's last inputs [width − 1, convolved_width], then for each head a
//                  matrix [state_dim, head_dim]
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/config/config.h"
#include "parallel/mapping.h"

namespace wideep::model {

// The bytes of the layer's state; 0 for attention.
size_t state_bytes(const ModelConfig& config, int layer);

class StateLayout {
 public:
  StateLayout() = default;  // no state
  StateLayout(const ModelConfig& config, parallel::LayerRange layers);
  static StateLayout of_layer_bytes(parallel::LayerRange layers, std::span<const size_t> bytes);

  // Of one sequence; 0: the layers keep none. A multiple of 64.
  size_t bytes() const { return begin_.empty() ? 0 : begin_.back(); }
  // The first element of the layer's part, 64-byte aligned if the state is.
  float* of_layer(std::byte* state, int layer) const {
    return reinterpret_cast<float*>(state + begin_[static_cast<size_t>(layer - first_)]);
  }

 private:
  int first_ = 0;
  std::vector<size_t> begin_;  // [layers + 1] bytes before each layer's part
};

}  // namespace wideep::model
