// SPDX-License-Identifier: Apache-2.0
#include "model/state_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace wideep::model {
namespace {

using Mixer = LayerConfig::Mixer;

// Two value heads of each key head, and channels that do not fill a unit's last cache line.
ModelConfig delta_nets() {
  ModelConfig config;
  config.num_layers = 3;
  config.hidden_size = 40;
  config.layers.resize(3);
  config.layers[0].mixer = config.layers[2].mixer = Mixer::kDeltaNet;
  config.delta_net = {.num_key_heads = 6,
                      .num_value_heads = 12,
                      .key_dim = 4,
                      .value_dim = 5,
                      .convolution_width = 4};
  return config;
}

ModelConfig convolutions() {
  ModelConfig config;
  config.num_layers = 2;
  config.hidden_size = 40;  // 3 units of 16 channels
  config.layers.resize(2);
  for (LayerConfig& layer : config.layers) layer.mixer = Mixer::kConvolution;
  config.convolution_width = 3;
  return config;
}

TEST(StateLayout, LayersHaveTheirUnitsInWholeCacheLines) {
  // 3 · (2 · 4 + 2 · 5) + 2 · 4 · 5 = 94 floats of a unit, 96 with the rest of its last line
  const StateLayout layout(delta_nets(), {0, 3});
  EXPECT_EQ(layout.bytes(), 2u * 6 * 96 * sizeof(float));
  alignas(64) std::array<std::byte, 64> state;
  const auto offset = [&](int layer) {
    return reinterpret_cast<std::byte*>(layout.of_layer(state.data(), layer)) - state.data();
  };
  EXPECT_EQ(offset(0), 0);
  EXPECT_EQ(offset(2), 6 * 96 * 4);
  EXPECT_EQ(StateLayout(convolutions(), {1, 2}).bytes(), 2u * 3 * 16 * sizeof(float));
}

TEST(StateLayout, PartsHaveEveryUnitOnce) {
  for (const ModelConfig& config : {delta_nets(), convolutions()}) {
    const size_t all = StateLayout(config, {0, config.num_layers}).bytes();
    for (int count = 1; count <= 9; ++count) {  // also more ranks than units
      size_t bytes = 0, most = 0;
      int next = 0;
      for (int index = 0; index < count; ++index) {
        const StateLayout layout(config, {0, config.num_layers}, {index, count});
        EXPECT_EQ(layout.own(6).first, next);
        next += layout.own(6).count;
        bytes += layout.bytes();
        most = std::max(most, layout.bytes());
      }
      EXPECT_EQ(next, 6);
      EXPECT_EQ(bytes, all) << count;
      EXPECT_EQ(largest_state_part(config, {0, config.num_layers}, count).bytes(), most) << count;
    }
  }
}

// A rank's part in a tensor group is what the ranks that share its sequences have together.
TEST(StateLayout, PartsOfAGroupAreCutAgain) {
  const auto own = [](StatePart part) { return StateLayout(delta_nets(), {0, 3}, part).own(23); };
  for (int tp = 1; tp <= 5; ++tp) {
    for (int cp = 1; cp <= 5; ++cp) {
      for (int rank = 0; rank < tp; ++rank) {
        const UnitRange whole = own({rank, tp});
        const UnitRange first = own(StatePart::of_rank(rank, tp, 0, cp));
        const UnitRange last = own(StatePart::of_rank(rank, tp, cp - 1, cp));
        EXPECT_EQ(first.first, whole.first);
        EXPECT_EQ(last.first + last.count, whole.first + whole.count);
      }
    }
  }
}

TEST(StateLayout, ModelsWithoutRecurrentPartsHaveNone) {
  ModelConfig config;
  config.num_layers = 5;
  config.layers.resize(5);
  EXPECT_FALSE(config.has_state());
  EXPECT_EQ(StateLayout(config, {1, 4}).bytes(), 0u);
  EXPECT_EQ(StateLayout().bytes(), 0u);
}

}  // namespace
}  // namespace wideep::model
