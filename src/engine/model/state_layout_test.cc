// SPDX-License-Identifier: Apache-2.0
#include "model/state_layout.h"

#include <gtest/gtest.h>

#include <array>

namespace wideep::model {
namespace {

TEST(StateLayout, LayersFollowEachOtherInWholeCacheLines) {
  const std::array<size_t, 4> bytes = {100, 0, 64, 4};
  const StateLayout layout = StateLayout::of_layer_bytes({3, 7}, bytes);
  EXPECT_EQ(layout.bytes(), 128u + 64u + 64u);
  alignas(64) std::array<std::byte, 256> state;
  const auto offset = [&](int layer) {
    return reinterpret_cast<std::byte*>(layout.of_layer(state.data(), layer)) - state.data();
  };
  EXPECT_EQ(offset(3), 0);
  EXPECT_EQ(offset(5), 128);
  EXPECT_EQ(offset(6), 192);
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
