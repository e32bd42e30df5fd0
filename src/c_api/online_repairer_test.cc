// SPDX-License-Identifier: Apache-2.0
//
// The moves are applied here, as an engine does, and must lead to the placement that the repairer
// reports, with both splits; the imbalance is asked through the interface too. Arguments that C
// cannot check, null among them, must be errors that change no output. A failure means that the
// engine's tables and the repairer's differ, and the next copy goes to a wrong slot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "wideep/c_api.h"

namespace wideep::c_api {
namespace {

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

// Mean over layers, by the library's own measure.
double imbalance_of(const std::vector<int32_t>& placement, const std::vector<double>& shares,
                    const std::vector<int64_t>& counts) {
  double sum = 0.0;
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const auto row = counts.begin() + static_cast<std::ptrdiff_t>(layer * kExperts);
    const std::vector<double> load(row, row + kExperts);
    double one = -1.0;
    EXPECT_EQ(wideep_imbalance(&kShape, placement.data() + layer * kSlots,
                               shares.data() + layer * kSlots, load.data(), &one),
              WIDEEP_OK)
        << wideep_last_error();
    sum += one;
  }
  return sum / kLayers;
}

TEST(COnlineRepairer, MovesLeadToItsPlacementAndBalanceIt) {
  for (const int split : {WIDEEP_SPLIT_EQUAL, WIDEEP_SPLIT_WEIGHTED}) {
    wideep_online_options options = {};
    options.split = split;
    options.share_update =
        split == WIDEEP_SPLIT_WEIGHTED ? WIDEEP_SHARES_OF_UPDATE : WIDEEP_SHARES_OF_ITERATION;
    options.max_moves = 3;
    wideep_online_repairer* repairer = nullptr;
    ASSERT_EQ(
        wideep_online_repairer_create(&kShape, kLayers, 2, &options, in_order().data(), &repairer),
        WIDEEP_OK)
        << wideep_last_error();
    std::vector<int32_t> served = in_order(), placement(served.size());
    std::vector<double> shares(served.size());
    ASSERT_EQ(wideep_online_repairer_placement(repairer, placement.data(), shares.data()),
              WIDEEP_OK);
    EXPECT_EQ(placement, served);
    const double before = imbalance_of(placement, shares, counts_of(99));
    int32_t total = 0;
    for (unsigned seed = 0; seed < 3; ++seed) {
      const wideep_slot_move* moves = nullptr;
      int32_t num_moves = -1;
      ASSERT_EQ(wideep_online_repairer_step(repairer, counts_of(seed).data(), nullptr, &moves,
                                            &num_moves),
                WIDEEP_OK);
      for (int i = 0; i < num_moves; ++i) {
        served[static_cast<size_t>(moves[i].layer * kSlots + moves[i].slot)] = moves[i].expert;
      }
      EXPECT_LE(num_moves, 3 * kLayers);
      total += num_moves;
    }
    EXPECT_GT(total, 0);
    ASSERT_EQ(wideep_online_repairer_placement(repairer, placement.data(), shares.data()),
              WIDEEP_OK);
    EXPECT_EQ(placement, served);
    const double after = imbalance_of(placement, shares, counts_of(99));
    EXPECT_GT(before, 0.1);
    EXPECT_LT(after, before / 3);
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
