// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "wideep/c_api.h"
#include "wideep/online_repairer.h"

namespace wideep::c_api {
namespace {

using balance::Placement;
using ::testing::HasSubstr;

constexpr int kExperts = 8, kRanks = 2, kSlots = 10, kLayers = 2;
constexpr wideep_plan_shape kShape = {
    .num_experts = kExperts, .ep_size = kRanks, .num_slots = kSlots};

std::vector<int32_t> in_order() {
  std::vector<int32_t> slots(static_cast<size_t>(kLayers * kSlots));
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i % kSlots % kExperts);
  return slots;
}

// The experts of the first rank are hotter.
std::vector<int64_t> counts_of(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> counts(static_cast<size_t>(kLayers * kExperts));
  for (size_t i = 0; i < counts.size(); ++i) {
    counts[i] = 500 + static_cast<int64_t>(random() % 50) + (i % kExperts < 4 ? 900 : 0);
  }
  return counts;
}

TEST(COnlineRepairer, SameMovesAsInCpp) {
  for (const int split : {WIDEEP_SPLIT_EQUAL, WIDEEP_SPLIT_WEIGHTED}) {
    wideep_online_options options = {};
    options.split = split;
    options.share_update = split == WIDEEP_SPLIT_WEIGHTED ? WIDEEP_SHARES_OF_UPDATE : 0;
    options.max_moves = 3;
    wideep_online_repairer* repairer = nullptr;
    ASSERT_EQ(
        wideep_online_repairer_create(&kShape, kLayers, 2, &options, in_order().data(), &repairer),
        WIDEEP_OK)
        << wideep_last_error();
    std::vector<Placement> placements;
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::vector<int32_t> all = in_order();
      placements.push_back({kExperts, kRanks, {all.begin(), all.begin() + kSlots}});
    }
    auto expected = online::OnlineRepairer::create(
        {{.num_experts = kExperts, .ep_size = kRanks, .num_slots = kSlots}, kLayers, 2},
        {.split = static_cast<balance::Split>(split),
         .share_update = split == WIDEEP_SPLIT_WEIGHTED ? balance::ShareUpdate::kWindow
                                                        : balance::ShareUpdate::kIteration,
         .max_moves = 3},
        placements);
    ASSERT_TRUE(expected.ok());
    std::vector<int32_t> served = in_order();
    int32_t total = 0;
    for (unsigned seed = 0; seed < 3; ++seed) {
      const std::vector<int64_t> counts = counts_of(seed);
      const wideep_slot_move* moves = nullptr;
      int32_t num_moves = -1;
      ASSERT_EQ(wideep_online_repairer_step(repairer, counts.data(), nullptr, &moves, &num_moves),
                WIDEEP_OK);
      int32_t next = 0;
      const auto updates = expected->step(counts);
      for (const online::LayerUpdate& update : *updates) {
        for (const online::SlotMove& move : update.moves) {
          ASSERT_LT(next, num_moves);
          EXPECT_EQ(moves[next].layer, update.layer_idx);
          EXPECT_EQ(moves[next].slot, move.slot);
          EXPECT_EQ(moves[next].expert, move.expert);
          served[static_cast<size_t>(update.layer_idx * kSlots + move.slot)] = move.expert;
          ++next;
        }
      }
      EXPECT_EQ(next, num_moves);
      total += num_moves;
    }
    EXPECT_GT(total, 0);
    std::vector<int32_t> placement(served.size());
    std::vector<double> shares(served.size());
    ASSERT_EQ(wideep_online_repairer_placement(repairer, placement.data(), shares.data()),
              WIDEEP_OK);
    EXPECT_EQ(placement, served);
    for (int layer = 0; layer < kLayers; ++layer) {
      double sum = 0.0;
      for (int slot = 0; slot < kSlots; ++slot) {
        sum += shares[static_cast<size_t>(layer * kSlots + slot)];
      }
      EXPECT_NEAR(sum, kExperts, 1e-9);
    }
    wideep_online_repairer_destroy(repairer);
  }
}

TEST(COnlineRepairer, BusyLayersAndOwnPlacements) {
  wideep_online_repairer* repairer = nullptr;
  ASSERT_EQ(
      wideep_online_repairer_create(&kShape, kLayers, 2, nullptr, in_order().data(), &repairer),
      WIDEEP_OK);
  const wideep_slot_move* moves = nullptr;
  int32_t num_moves = -1;
  const uint8_t busy[] = {1, 0};
  ASSERT_EQ(wideep_online_repairer_step(repairer, counts_of(1).data(), busy, &moves, &num_moves),
            WIDEEP_OK);
  ASSERT_GT(num_moves, 0);
  for (int i = 0; i < num_moves; ++i) EXPECT_EQ(moves[i].layer, 1);
  const std::vector<int32_t> original = in_order();
  ASSERT_EQ(wideep_online_repairer_set_placement(repairer, 1, original.data()), WIDEEP_OK);
  std::vector<int32_t> placement(original.size());
  ASSERT_EQ(wideep_online_repairer_placement(repairer, placement.data(), nullptr), WIDEEP_OK);
  EXPECT_EQ(placement, original);
  wideep_online_repairer_destroy(repairer);
  wideep_online_repairer_destroy(nullptr);
}

TEST(COnlineRepairer, BadInput) {
  wideep_online_repairer* repairer = nullptr;
  const auto complaint = [&](const wideep_online_options& options, const int32_t* placement,
                             int32_t layers = kLayers) {
    EXPECT_EQ(wideep_online_repairer_create(&kShape, layers, 2, &options, placement, &repairer),
              WIDEEP_INVALID_INPUT);
    return std::string(wideep_last_error());
  };
  wideep_online_options options = {};
  EXPECT_THAT(complaint(options, nullptr), HasSubstr("slot_to_expert"));
  std::vector<int32_t> broken = in_order();
  broken[kSlots] = 99;
  EXPECT_THAT(complaint(options, broken.data()), HasSubstr("slot_to_expert, layer 1"));
  options.share_update = 7;
  EXPECT_THAT(complaint(options, in_order().data()), HasSubstr("share_update"));
  options = {};
  options.reserved[2] = 1;
  EXPECT_THAT(complaint(options, in_order().data()), HasSubstr("reserved"));
  options = {};
  options.max_moves = -1;
  EXPECT_THAT(complaint(options, in_order().data()), HasSubstr("max_moves"));
  EXPECT_EQ(repairer, nullptr);

  ASSERT_EQ(
      wideep_online_repairer_create(&kShape, kLayers, 2, nullptr, in_order().data(), &repairer),
      WIDEEP_OK);
  int32_t num_moves = 5;
  const wideep_slot_move* moves = nullptr;
  EXPECT_EQ(wideep_online_repairer_step(repairer, nullptr, nullptr, &moves, &num_moves),
            WIDEEP_INVALID_INPUT);
  std::vector<int64_t> negative = counts_of(1);
  negative[3] = -1;
  EXPECT_EQ(wideep_online_repairer_step(repairer, negative.data(), nullptr, &moves, &num_moves),
            WIDEEP_INVALID_INPUT);
  EXPECT_EQ(num_moves, 5);
  EXPECT_EQ(wideep_online_repairer_set_placement(repairer, 2, in_order().data()),
            WIDEEP_INVALID_INPUT);
  wideep_online_repairer_destroy(repairer);
}

}  // namespace
}  // namespace wideep::c_api
