// SPDX-License-Identifier: Apache-2.0
//
// Events with made-up times and numbers are held against the JSON that the dashboard gets: sums of
// windows, what is sent again while a window goes on, a clock that is set back, a reply that stays
// small with many ranks, and a move with its surroundings, which no other replaces too early.
#include "server/load_history.h"

#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using nlohmann::json;

// Two stages of two ranks: layer 1, then layers 3 and 4; three experts.
run::ExpertRanks four_ranks() {
  return {.stage_size = 2,
          .ranks = {{{1}, 0}, {{1}, 1}, {{3, 4}, 2}, {{3, 4}, 3}},
          .statistics = {.num_experts = 3, .top_k = 1, .ep_size = 2}};
}

run::IterationSummary iteration_of(int64_t number, int64_t pairs) {
  run::IterationSummary summary;
  summary.iteration = number;
  summary.sent = {{pairs, 1}, {0, 2}};
  summary.received = {{number, 1}, {number, 3}, {number, 4}};
  return summary;
}

json json_of(const LoadHistory& history, size_t layer_index = 0, int64_t since = 0) {
  return history.json(layer_index, since);
}

TEST(LoadHistory, SumsInWindows) {
  LoadHistory history(four_ranks());
  EXPECT_EQ(history.layers(), (std::vector<int>{1, 3, 4}));
  history.add(iteration_of(0, 5), 1000.5);
  history.add(iteration_of(1, 6), 1004.9);
  history.add(run::ExpertLoad{.first_layer = 0, .counts = {1, 2, 3}}, 1001.0);
  history.add(run::ExpertLoad{.first_layer = 1, .counts = {4, 5, 6, 7, 8, 9}}, 1001.0);
  history.add(run::ExpertLoad{.first_layer = 1, .counts = {1, 1, 1, 1, 1, 1}}, 1002.0);
  history.add(iteration_of(2, 7), 1005.0);
  const json windows = json_of(history, 2)["windows"];
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[0]["time"], 1000);
  EXPECT_EQ(windows[0]["sent"], json({{11, 2}, {0, 4}}));
  EXPECT_EQ(windows[0]["experts"], json({8, 9, 10}));
  EXPECT_EQ(windows[1]["sent"], json({{7, 1}, {0, 2}}));
  EXPECT_TRUE(windows[1]["experts"].is_null());
  EXPECT_EQ(json_of(history)["windows"][0]["experts"], json({1, 2, 3}));
  // A window that goes on is sent again.
  EXPECT_EQ(json_of(history, 0, 1005)["windows"].size(), 1u);
  EXPECT_EQ(json_of(history, 0, 1004)["windows"].size(), 2u);
  EXPECT_EQ(json_of(history)["layers"], json({1, 3, 4}));
}

TEST(LoadHistory, KeepsAsMuchAsThePageShows) {
  LoadHistory history(four_ranks());
  for (size_t i = 0; i < LoadHistory::kMaxWindows + 3; ++i) {
    history.add(iteration_of(static_cast<int64_t>(i), 1),
                static_cast<double>(i) * LoadHistory::kWindowSeconds);
  }
  const json windows = json_of(history)["windows"];
  EXPECT_EQ(windows.size(), LoadHistory::kMaxWindows);
  EXPECT_EQ(windows[0]["time"], 3 * LoadHistory::kWindowSeconds);
  // A clock that was set back opens no window.
  history.add(iteration_of(99, 1), 1.0);
  EXPECT_EQ(json_of(history)["windows"].size(), LoadHistory::kMaxWindows);
}

// A reply must stay small although the numbers from rank to rank grow with the square.
TEST(LoadHistory, ManyRanksSendOnlyTheNewestWindows) {
  run::ExpertRanks many = four_ranks();
  many.stage_size = 160;
  many.ranks.assign(160, {{1}, 0});
  LoadHistory history(many);
  run::IterationSummary summary;
  summary.sent.assign(160, std::vector<int64_t>(160, 1));
  for (int i = 0; i < 5; ++i) history.add(summary, 10.0 * i);
  const json windows = json_of(history)["windows"];
  ASSERT_EQ(windows.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(windows[i]["sent"].is_null(), i < 3) << i;
}

online::Rebalance moved(int64_t decided, std::vector<online::LayerSwitch> switches) {
  online::Rebalance rebalance;
  rebalance.decided = decided;
  rebalance.switches = std::move(switches);
  return rebalance;
}

TEST(LoadHistory, ShowsTheLastMoveWithItsSurroundings) {
  constexpr int64_t kAround = LoadHistory::kAroundMove;
  LoadHistory history(four_ranks());
  EXPECT_TRUE(json_of(history)["move"].is_null());
  for (int64_t i = 0; i < 100; ++i) history.add(iteration_of(i, 1), 1.0);
  history.add(moved(90, {{1, 94, 2}, {3, 95, 7}, {4, 96, 1}}));
  json move = json_of(history)["move"];
  EXPECT_EQ(move["layer"], 3);  // with most experts
  EXPECT_EQ(move["moves"], 7);
  EXPECT_EQ(move["decided"], 90);
  EXPECT_EQ(move["switched"], 95);
  EXPECT_EQ(move["loads"].front()["iteration"], 90 - kAround + 1);
  EXPECT_EQ(move["loads"].back(), json({{"iteration", 99}, {"received", {99, 3}}}));
  // Another one must wait until the picture has all of what comes after.
  history.add(moved(97, {{1, 99, 9}}));
  EXPECT_EQ(json_of(history)["move"]["switched"], 95);
  for (int64_t i = 100; i < 140; ++i) history.add(iteration_of(i, 1), 1.0);
  EXPECT_EQ(json_of(history)["move"]["loads"].back()["iteration"], 95 + kAround - 1);
  history.add(moved(130, {{1, 133, 9}}));
  EXPECT_EQ(json_of(history)["move"]["switched"], 133);
}

TEST(LoadHistory, SharesWithoutMovesAreNoMove) {
  LoadHistory history(four_ranks());
  history.add(iteration_of(0, 1), 1.0);
  history.add(moved(0, {{1, 1, 0}}));
  history.add(moved(0, {}));
  EXPECT_TRUE(json_of(history)["move"].is_null());
}

}  // namespace
}  // namespace wideep::server
