// SPDX-License-Identifier: Apache-2.0
#include "plan/packing_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace wideep::balance {
namespace {

// Tries every bin for every item.
void pack_rest(const std::vector<double>& items, size_t next, size_t per_bin,
               std::vector<double>& weight, std::vector<size_t>& count, double& best) {
  if (next == items.size()) {
    best = std::min(best, *std::max_element(weight.begin(), weight.end()));
    return;
  }
  for (size_t bin = 0; bin < weight.size(); ++bin) {
    if (count[bin] == per_bin) continue;
    ++count[bin];
    weight[bin] += items[next];
    pack_rest(items, next + 1, per_bin, weight, count, best);
    weight[bin] -= items[next];
    if (--count[bin] == 0) return;  // all empty bins are alike
  }
}

double best_packing(const std::vector<double>& items, int num_bins) {
  const auto bins = static_cast<size_t>(num_bins);
  std::vector<double> weight(bins, 0.0);
  std::vector<size_t> count(bins, 0);
  double best = std::numeric_limits<double>::infinity();
  pack_rest(items, 0, items.size() / bins, weight, count, best);
  return best;
}

std::vector<double> random_items(size_t count, std::mt19937& random) {
  std::lognormal_distribution<double> weight(2.0, 1.0);
  std::vector<double> items(count);
  for (double& item : items) item = std::floor(weight(random));
  return items;
}

TEST(PackingBound, NeverAboveTheOptimumAndOftenEqual) {
  std::mt19937 random(3);
  int equal = 0;
  constexpr int kRounds = 400;
  for (int round = 0; round < kRounds; ++round) {
    const int bins = 2 + round % 2;
    const size_t per_bin = 3 + static_cast<size_t>(round / 2 % (bins == 2 ? 3 : 1));
    const std::vector<double> items = random_items(per_bin * static_cast<size_t>(bins), random);
    const double optimum = best_packing(items, bins);
    ASSERT_LE(packing_bound(items, bins), optimum * (1 + 1e-12)) << "round " << round;
    equal += packing_bound(items, bins) > optimum - 0.5;
  }
  EXPECT_GT(equal, kRounds / 2);
}

TEST(PackingBound, ExactForOneAndTwoPerBin) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const int bins = 1 + round % 4;
    const size_t per_bin = 1 + static_cast<size_t>(round / 4 % 2);
    const std::vector<double> items = random_items(per_bin * static_cast<size_t>(bins), random);
    EXPECT_DOUBLE_EQ(packing_bound(items, bins), best_packing(items, bins)) << "round " << round;
  }
}

TEST(PackingBound, EachArgumentGivesTheBoundSomewhere) {
  EXPECT_EQ(packing_bound({4, 4, 4, 4, 4, 4}, 2), 12);    // mean
  EXPECT_EQ(packing_bound({9, 1, 2, 1, 1, 1}, 2), 11);    // the heaviest
  EXPECT_EQ(packing_bound({5, 5, 5, 1, 1, 1}, 2), 11);    // two of three share a bin
  EXPECT_EQ(packing_bound({9, 8, 1, 1, 4, 4}, 2), 13.5);  // two apart: all items in the mean
  EXPECT_EQ(packing_bound({20, 19, 18, 2, 2, 2, 9, 0, 0}, 3),
            27);  // three apart, 9 beside one of them
}

}  // namespace
}  // namespace wideep::balance
