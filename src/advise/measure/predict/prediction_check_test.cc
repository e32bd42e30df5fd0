// SPDX-License-Identifier: Apache-2.0
//
// The rule of prediction_check.h, on cells made by hand; tests/prediction has the real ones.
#include "measure/predict/prediction_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::measure {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Twenty cells of 1, 2, 4, … seconds that are predicted with this error.
std::vector<CheckedCell> cells_with(double error, double noise) {
  std::vector<CheckedCell> cells;
  for (int i = 0; i < 20; ++i) {
    const double measured = static_cast<double>(1 << i);
    cells.push_back({.name = fmt::format("cell {}", i),
                     .predicted = measured * (1.0 + error),
                     .measured = measured,
                     .noise = noise});
  }
  return cells;
}

TEST(PredictionGoals, AreMetWithin) {
  EXPECT_THAT(missed(cells_with(0.09, 0.0)), IsEmpty());
  EXPECT_THAT(missed(cells_with(-0.09, 0.0)), IsEmpty());
}

TEST(PredictionGoals, TheMedianHasItsNoise) {
  EXPECT_THAT(missed(cells_with(0.14, 0.03)), ElementsAre(HasSubstr("median error 14.0 %")));
  EXPECT_THAT(missed(cells_with(0.14, 0.05)), IsEmpty());
}

TEST(PredictionGoals, ACellHasItsOwnNoiseAndNoOthers) {
  std::vector<CheckedCell> cells = cells_with(0.01, 0.0);
  cells[3].predicted = cells[3].measured * 1.3;
  cells[4].noise = 0.5;
  EXPECT_THAT(missed(cells), ElementsAre(HasSubstr("cell 3")));
  cells[3].noise = 0.04;
  EXPECT_THAT(missed(cells), ElementsAre(HasSubstr("cell 3")));
  cells[3].noise = 0.06;
  EXPECT_THAT(missed(cells), IsEmpty());
}

TEST(PredictionGoals, TheOrderCountsWhateverTheNoise) {
  std::vector<CheckedCell> cells = cells_with(0.0, 2.0);
  for (int i = 0; i < 20; ++i) cells[static_cast<size_t>(i)].measured = 1.0 + 0.001 * (20 - i);
  for (int i = 0; i < 20; ++i) cells[static_cast<size_t>(i)].predicted = 1.0 + 0.001 * i;
  EXPECT_THAT(missed(cells), ElementsAre(HasSubstr("Kendall's tau -1.000: below 0.8")));
}

TEST(PredictionGoals, DisturbedCellsAreLeftOut) {
  std::vector<CheckedCell> cells = cells_with(0.01, 0.0);
  cells[3].predicted = cells[3].measured * 2.0;
  EXPECT_THAT(missed(cells), ElementsAre(HasSubstr("cell 3")));
  cells[3].others = 0.3;
  EXPECT_THAT(missed(cells), IsEmpty());
  EXPECT_EQ(undisturbed(cells).size(), cells.size() - 1);
}

TEST(CheckedGrid, HasEnoughCellsOfEveryKind) {
  const auto grid = checked_grid();
  ASSERT_TRUE(grid.ok()) << grid.status().message();
  size_t cells = 0, replicated = 0, online = 0, context = 0;
  for (const CheckedLayout& layout : *grid) {
    cells += layout.batches.size() + layout.prompts.size();
    const auto& balancer = layout.parallel.moe_config.load_balancer;
    replicated += balancer.has_value();
    online += balancer && balancer->layer_updates_per_iter > 0;
    context += layout.parallel.sizes.cp > 1;
  }
  EXPECT_GE(cells, 40u);
  EXPECT_GE(replicated, 4u);
  EXPECT_GE(online, 2u);
  EXPECT_GE(context, 2u);
}

}  // namespace
}  // namespace wideep::measure
