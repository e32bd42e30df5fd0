// SPDX-License-Identifier: Apache-2.0
#include "model/state_layout.h"

#include "model/parts/part_cost.h"

namespace wideep::model {

size_t state_bytes(const ModelConfig& config, int layer) {
  return sizeof(float) * static_cast<size_t>(mixer_cost(config, layer).state_floats);
}

StateLayout::StateLayout(const ModelConfig& config, parallel::LayerRange layers) {
  std::vector<size_t> bytes;
  for (int layer = layers.first; layer < layers.last; ++layer) {
    bytes.push_back(state_bytes(config, layer));
  }
  *this = of_layer_bytes(layers, bytes);
}

StateLayout StateLayout::of_layer_bytes(parallel::LayerRange layers,
                                        std::span<const size_t> bytes) {
  constexpr size_t kAlignment = 64;
  StateLayout layout;
  layout.first_ = layers.first;
  layout.begin_.push_back(0);
  for (const size_t each : bytes) {
    layout.begin_.push_back(layout.begin_.back() +
                            (each + kAlignment - 1) / kAlignment * kAlignment);
  }
  return layout;
}

}  // namespace wideep::model
