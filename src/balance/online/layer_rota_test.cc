// SPDX-License-Identifier: Apache-2.0
#include "online/layer_rota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace wideep::online {
namespace {

using ::testing::ElementsAre;
using Turns = std::vector<std::vector<int>>;

Turns turns_of(int num_layers, int layers_per_turn, int count) {
  LayerRota rota(num_layers, layers_per_turn);
  Turns turns;
  for (int turn = 0; turn < count; ++turn, rota.advance()) {
    auto& layers = turns.emplace_back();
    for (int l = rota.first_layer(); l < num_layers; l += rota.stride()) layers.push_back(l);
    for (int l = 0; l < num_layers; ++l) {
      EXPECT_EQ(rota.has_turn(l), std::find(layers.begin(), layers.end(), l) != layers.end());
    }
  }
  return turns;
}

// TensorRT-LLM's code, not its C++ unit test: two groups of three and an empty one.
TEST(LayerRota, AnEmptyTurnFollowsEqualGroups) {
  EXPECT_EQ(turns_of(6, 4, 4), (Turns{{0, 2, 4}, {1, 3, 5}, {}, {0, 2, 4}}));
  EXPECT_EQ(turns_of(4, 1, 6), (Turns{{0}, {1}, {2}, {3}, {}, {0}}));
}

TEST(LayerRota, NoEmptyTurnAfterUnequalGroups) {
  EXPECT_EQ(turns_of(5, 2, 4), (Turns{{0, 3}, {1, 4}, {2}, {0, 3}}));
}

TEST(LayerRota, AllLayersAtOnce) {
  EXPECT_EQ(turns_of(3, 3, 3), (Turns{{0, 1, 2}, {}, {0, 1, 2}}));
  EXPECT_EQ(turns_of(1, 1, 3), (Turns{{0}, {}, {0}}));
}

}  // namespace
}  // namespace wideep::online
