// SPDX-License-Identifier: Apache-2.0
//
// Small cases by hand, loads whose best set is known, and random shapes against a reference that
// remembers every iteration and looks at every record. The reference is exact: counts are whole
// numbers and the decay is a power of 2, so both compute the same bits.
#include "residency/expert_residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace wideep::residency {
namespace {

using ::testing::ElementsAre;
using Counts = std::vector<int64_t>;

ResidencyShape shape_of(int layers, int experts, int records) {
  return {.num_layers = layers, .num_experts = experts, .num_records = records, .owned = {}};
}

// By popularity alone, in one window that does not end: recency is next to nothing, so that worth is
// 1 − kFirstRecencyWeight = 1/4 of popularity.
ResidencyOptions popularity_only() {
  return {.window_tokens = 1 << 30, .decay = 0.5, .recency_rate = 1e-9, .hysteresis = 1e-6};
}

std::vector<Demand> visit(ExpertResidency& residency, int layer, const Counts& counts) {
  const std::span<const Demand> demands = residency.visit(layer, counts);
  return {demands.begin(), demands.end()};
}

TEST(ExpertResidency, FreeMemoryTakesWhatIsRead) {
  ExpertResidency residency(shape_of(1, 4, 2), popularity_only());
  residency.begin_iteration(4);
  EXPECT_THAT(visit(residency, 0, {1, 0, 3, 0}),
              ElementsAre(Demand{2, true, {}}, Demand{0, true, {}}));
  EXPECT_TRUE(residency.is_resident({0, 0}));
  residency.begin_iteration(4);
  EXPECT_THAT(visit(residency, 0, {2, 0, 2, 0}), ElementsAre());
}

TEST(ExpertResidency, TheLeastWorthLeavesForWhatIsWorthMore) {
  ExpertResidency residency(shape_of(1, 4, 2), popularity_only());
  residency.begin_iteration(4);
  visit(residency, 0, {1, 0, 3, 0});
  // Equal worth changes nothing.
  residency.begin_iteration(1);
  EXPECT_THAT(visit(residency, 0, {0, 1, 0, 0}), ElementsAre(Demand{1, false, {}}));
  residency.begin_iteration(1);
  EXPECT_THAT(visit(residency, 0, {0, 1, 0, 0}), ElementsAre(Demand{1, true, ExpertPlace{0, 0}}));
  EXPECT_FALSE(residency.is_resident({0, 0}));
  EXPECT_EQ(residency.num_came(0), 3);
}

TEST(ExpertResidency, HysteresisKeepsWhatIsThere) {
  ResidencyOptions options = popularity_only();
  options.hysteresis = 0.52 / 4;
  ExpertResidency residency(shape_of(1, 3, 1), options);
  residency.begin_iteration(1);
  visit(residency, 0, {1, 0, 0});
  int kept = 0;
  for (; kept < 100; ++kept) {
    residency.begin_iteration(1);
    if (visit(residency, 0, {0, 1, 0})[0].stays) break;
  }
  // After 1 + n iterations the worths are 1 / (1 + n) and n / (1 + n).
  EXPECT_EQ(kept + 1, 4);
}

TEST(ExpertResidency, WhatIsComputedDoesNotLeave) {
  ExpertResidency residency(shape_of(1, 3, 1), popularity_only());
  residency.begin_iteration(10);
  EXPECT_THAT(visit(residency, 0, {1, 9, 0}),
              ElementsAre(Demand{1, true, {}}, Demand{0, false, {}}));
  residency.begin_iteration(100);
  EXPECT_THAT(visit(residency, 0, {99, 1, 0}), ElementsAre(Demand{0, false, {}}));
  residency.begin_iteration(1);
  EXPECT_THAT(visit(residency, 0, {1, 0, 0}), ElementsAre(Demand{0, true, ExpertPlace{0, 1}}));
}

TEST(ExpertResidency, ExpertsOfOtherRanksDoNotCount) {
  ResidencyShape shape = shape_of(1, 3, 2);
  shape.owned = {1, 0, 1};
  ExpertResidency residency(shape, popularity_only());
  residency.start_from(std::vector<double>{1, 9, 2}, 6.0);
  EXPECT_EQ(residency.next_to_fill(), (ExpertPlace{0, 2}));
  residency.begin_iteration(3);
  EXPECT_THAT(visit(residency, 0, {1, 5, 0}), ElementsAre(Demand{0, true, {}}));
  EXPECT_EQ(residency.num_resident(), 1);
}

TEST(ExpertResidency, StartsWarm) {
  ExpertResidency residency(shape_of(2, 2, 3), popularity_only());
  EXPECT_EQ(residency.next_to_fill(), std::nullopt);  // nothing is known
  residency.start_from(std::vector<double>{5, 1, 3, 0}, 6.0);
  std::vector<ExpertPlace> filled;
  while (const auto next = residency.next_to_fill()) {
    filled.push_back(*next);
    residency.fill(*next);
  }
  EXPECT_THAT(filled, ElementsAre(ExpertPlace{0, 0}, ExpertPlace{1, 0}, ExpertPlace{0, 1}));
  EXPECT_EQ(residency.num_resident(0), 2);
  EXPECT_EQ(residency.num_came(0), 2);
  EXPECT_EQ(residency.num_came(1), 1);
  residency.begin_iteration(1);
  EXPECT_THAT(visit(residency, 0, {0, 1}), ElementsAre());
}

TEST(ExpertResidency, ALongRunBeforeDoesNotOutweighThisOne) {
  const ResidencyOptions options{.window_tokens = 10, .recency_rate = 1e-9, .hysteresis = 0.0};
  ExpertResidency residency(shape_of(1, 2, 1), options);
  residency.start_from(std::vector<double>{1e9, 0.0}, 1e9);
  residency.fill({0, 0});
  int iterations = 0;
  while (!residency.is_resident({0, 1})) {
    ++iterations;
    residency.begin_iteration(1);
    residency.visit(0, Counts{0, 1});
  }
  EXPECT_LT(iterations, 60);
}

TEST(ExpertResidency, WhatCouldNotBeReadIsAbsent) {
  ExpertResidency residency(shape_of(1, 2, 1), popularity_only());
  residency.begin_iteration(1);
  visit(residency, 0, {1, 0});
  residency.lose({0, 0});
  EXPECT_EQ(residency.num_resident(), 0);
  residency.begin_iteration(1);
  EXPECT_THAT(visit(residency, 0, {1, 0}), ElementsAre(Demand{0, true, {}}));
}

TEST(ExpertResidency, WhatIsLostIsNotFilledAgain) {
  ExpertResidency residency(shape_of(1, 3, 2), popularity_only());
  residency.start_from(std::vector<double>{3, 2, 1}, 4.0);
  residency.fill({0, 0});
  residency.lose({0, 0});
  EXPECT_EQ(residency.next_to_fill(), (ExpertPlace{0, 1}));
  residency.fill({0, 1});
  EXPECT_EQ(residency.next_to_fill(), (ExpertPlace{0, 2}));
  residency.begin_iteration(1);
  EXPECT_THAT(visit(residency, 0, {1, 0, 0}), ElementsAre(Demand{0, true, {}}));
}

TEST(ExpertResidency, WithoutMemoryNothingStays) {
  ExpertResidency residency(shape_of(1, 2, 0), {});
  residency.start_from(std::vector<double>{1, 1}, 2.0);
  EXPECT_EQ(residency.next_to_fill(), std::nullopt);
  residency.begin_iteration(1);
  EXPECT_THAT(visit(residency, 0, {1, 0}), ElementsAre(Demand{0, false, {}}));
}

// Tokens that choose top_k distinct experts by the weights of their layer.
class MadeUpLoad {
 public:
  MadeUpLoad(std::vector<std::vector<double>> weights, int top_k, unsigned seed)
      : weights_(std::move(weights)), top_k_(top_k), random_(seed) {}

  Counts layer(int layer_idx, int num_tokens) {
    std::vector<double> weights = weights_[static_cast<size_t>(layer_idx)];
    Counts counts(weights.size());
    for (int token = 0; token < num_tokens; ++token) {
      std::vector<double> left = weights;
      for (int k = 0; k < top_k_; ++k) {
        const size_t e = std::discrete_distribution<size_t>(left.begin(), left.end())(random_);
        left[e] = 0.0;
        ++counts[e];
      }
    }
    return counts;
  }

 private:
  std::vector<std::vector<double>> weights_;
  int top_k_;
  std::mt19937 random_;
};

struct Measured {
  double rate = 0.0;
  double oracle = 0.0;
  double uniform = 0.0;
};

// Runs `iterations` of `batch` tokens; judges those from `first` on.
Measured run(ExpertResidency& residency, MadeUpLoad load, const ResidencyShape& shape, int batch,
             std::pair<int, int> iterations) {
  Counts reads(static_cast<size_t>(shape.num_layers * shape.num_experts));
  int64_t hits = 0, sum = 0;
  for (int i = 0; i < iterations.second; ++i) {
    residency.begin_iteration(batch);
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      const Counts counts = load.layer(layer, batch);
      const auto missed = static_cast<int64_t>(residency.visit(layer, counts).size());
      if (i < iterations.first) continue;
      hits -= missed;
      for (size_t e = 0; e < counts.size(); ++e) {
        if (counts[e] == 0) continue;
        ++reads[static_cast<size_t>(layer * shape.num_experts) + e];
        ++hits;
        ++sum;
      }
    }
  }
  std::sort(reads.rbegin(), reads.rend());
  int64_t best = 0;
  for (int i = 0; i < shape.num_records; ++i) best += reads[static_cast<size_t>(i)];
  const auto all = static_cast<double>(sum);
  return {.rate = static_cast<double>(hits) / all,
          .oracle = static_cast<double>(best) / all,
          .uniform = static_cast<double>(shape.num_records) / static_cast<double>(reads.size())};
}

// Weights 1 / rank^skew, in an order that differs by layer.
std::vector<double> zipf(int num_experts, double skew, int shift) {
  std::vector<double> weights;
  for (int e = 0; e < num_experts; ++e) {
    weights.push_back(std::pow(1.0 + (e * 7 + shift) % num_experts, -skew));
  }
  return weights;
}

// A load without memory: the set that never changes is the best one, and recency is noise.
TEST(ExpertResidency, IsNearTheOracleOnLoadsThatDoNotChange) {
  for (const double skew : {0.0, 0.5, 1.5}) {
    for (const int batch : {1, 8}) {
      const ResidencyShape shape = shape_of(4, 32, 64);
      ExpertResidency residency(shape, {});
      MadeUpLoad load({zipf(32, skew, 0), zipf(32, skew, 1), zipf(32, skew, 2), zipf(32, skew, 3)},
                      2, 5);
      const Measured found = run(residency, load, shape, batch, {2100, 4200});
      // Of a flat load hindsight knows the noise, which nobody can foretell.
      const double best = skew > 0.0 ? found.oracle : found.uniform;
      EXPECT_GE(found.rate, 0.95 * best) << "skew " << skew << ", batch " << batch;
    }
  }
}

// Experts that consecutive tokens share are foretold by recency; those of single tokens are not.
TEST(ExpertResidency, MeasuresWhatRecencyForetells) {
  const ResidencyShape shape = shape_of(1, 32, 8);
  for (const bool alike : {false, true}) {
    ExpertResidency residency(shape, {});
    MadeUpLoad load({zipf(32, 0.5, 0)}, 2, 5);
    Counts counts;
    for (int i = 0; i < 10000; ++i) {
      if (!alike || i % 50 == 0) counts = load.layer(0, 1);
      residency.begin_iteration(1);
      residency.visit(0, counts);
    }
    if (alike) {
      EXPECT_GT(residency.recency_weight(), 0.9);
    } else {
      EXPECT_LT(residency.recency_weight(), 0.1);
    }
  }
}

TEST(ExpertResidency, SkewedLayersGetFewerRecordsThanFlatOnes) {
  const ResidencyShape shape = shape_of(2, 32, 32);
  ExpertResidency residency(shape, {});
  run(residency, MadeUpLoad({zipf(32, 2.0, 0), zipf(32, 0.2, 0)}, 2, 5), shape, 1, {0, 4000});
  EXPECT_LT(residency.num_resident(0), residency.num_resident(1));
  EXPECT_EQ(residency.num_resident(), 32);
}

// From the second window of the new text on it is as good as if it had never seen another.
TEST(ExpertResidency, FollowsNewTextWithinTwoWindows) {
  for (const int64_t window_tokens : {int64_t{512}, ResidencyOptions().window_tokens}) {
    for (const int batch : {1, 8}) {
      const ResidencyShape shape = shape_of(4, 32, 64);
      const ResidencyOptions options{.window_tokens = window_tokens};
      const int window = static_cast<int>(options.window_tokens) / batch;
      ExpertResidency residency(shape, options);
      // What one text chooses most the other one chooses least.
      const auto text = [&](int shift) { return MadeUpLoad({4, zipf(32, 1.5, shift)}, 2, 5); };
      run(residency, text(0), shape, batch, {0, 20 * window});
      const Measured found = run(residency, text(16), shape, batch, {window, 3 * window});
      EXPECT_GE(found.rate, 0.95 * found.oracle)
          << "windows of " << window_tokens << " tokens, batch " << batch;
    }
  }
}

// With batches noise must not replace what is there: of a flat load nothing is worth more.
TEST(ExpertResidency, NoiseReplacesLittle) {
  const ResidencyShape shape = shape_of(2, 16, 16);
  ExpertResidency residency(shape, {});
  MadeUpLoad load({zipf(16, 0.0, 0), zipf(16, 0.0, 0)}, 2, 9);
  int64_t replaced = 0, missed = 0;
  for (int i = 0; i < 2000; ++i) {
    residency.begin_iteration(64);
    for (int layer = 0; layer < 2; ++layer) {
      for (const Demand& demand : residency.visit(layer, load.layer(layer, 64))) {
        ++missed;
        replaced += demand.stays ? 1 : 0;
      }
    }
  }
  EXPECT_LT(replaced, missed / 20);
}

// The formulas of the header, from the beginning each time.
class Reference {
 public:
  Reference(ResidencyShape shape, const ResidencyOptions& options)
      : shape_(std::move(shape)),
        options_(options),
        history_(shape_.owned.size()),
        worth_(shape_.owned.size()),
        resident_(shape_.owned.size()) {}

  void begin_iteration(int64_t tokens) {
    const Sums past = sums_of(tokens_.size());
    if (past.window_tokens >= static_cast<double>(options_.window_tokens)) {
      foretold_ *= options_.decay;
      deviation_ *= options_.decay;
    }
    if (deviation_ > 0.0) weight_ = std::clamp(foretold_ / deviation_, 0.0, 1.0);
    tokens_.push_back(tokens);
  }

  std::vector<Demand> visit(int layer, const Counts& counts) {
    std::vector<Demand> demands;
    for (int e = 0; e < shape_.num_experts; ++e) {
      const size_t i = index({layer, e});
      const int64_t tokens = shape_.owned[i] != 0 ? counts[static_cast<size_t>(e)] : 0;
      measure(history_[i], tokens);
      history_[i].push_back(tokens);
      const Sums now = sums_of(history_[i].size(), history_[i]);
      worth_[i] = now.popularity() + weight_ * (now.recency - now.popularity());
      if (tokens > 0 && !resident_[i]) demands.push_back({.expert = e});
    }
    std::sort(demands.begin(), demands.end(), [&](const Demand& a, const Demand& b) {
      const double of_a = worth_[index({layer, a.expert})];
      const double of_b = worth_[index({layer, b.expert})];
      return of_a != of_b ? of_a > of_b : a.expert < b.expert;
    });
    for (Demand& demand : demands) keep(layer, &demand);
    return demands;
  }

 private:
  size_t index(const ExpertPlace& place) const {
    return static_cast<size_t>(place.layer_idx) * static_cast<size_t>(shape_.num_experts) +
           static_cast<size_t>(place.expert);
  }

  struct Sums {
    double past = 0.0, past_tokens = 0.0, window = 0.0, window_tokens = 0.0, recency = 0.0;

    double popularity() const { return (past + window) / (past_tokens + window_tokens); }
  };

  // After the first iterations, in which an expert was chosen by these tokens.
  Sums sums_of(size_t num_iterations, const Counts& history = {}) const {
    Sums sums;
    for (size_t i = 0; i < num_iterations; ++i) {
      end_full_window(&sums);
      const auto chosen = history.empty() ? 0.0 : static_cast<double>(history[i]);
      sums.window += chosen;
      sums.window_tokens += static_cast<double>(tokens_[i]);
      sums.recency +=
          options_.recency_rate * (chosen / static_cast<double>(tokens_[i]) - sums.recency);
    }
    return sums;
  }

  void end_full_window(Sums* sums) const {
    if (sums->window_tokens < static_cast<double>(options_.window_tokens)) return;
    sums->past = sums->past * options_.decay + sums->window;
    sums->past_tokens = sums->past_tokens * options_.decay + sums->window_tokens;
    sums->window = sums->window_tokens = 0.0;
  }

  void measure(const Counts& history, int64_t tokens) {
    Sums before = sums_of(history.size(), history);
    end_full_window(&before);
    if (before.past_tokens == 0.0) return;
    const double share = static_cast<double>(tokens) / static_cast<double>(tokens_.back());
    const double deviation = before.recency - before.popularity();
    foretold_ += deviation * (share - before.popularity());
    deviation_ += deviation * deviation;
  }

  void keep(int layer, Demand* demand) {
    const size_t wanted = index({layer, demand->expert});
    if (std::ranges::count(resident_, true) >= shape_.num_records) {
      std::optional<ExpertPlace> least;
      for (int l = 0; l < shape_.num_layers; ++l) {
        for (int e = 0; e < shape_.num_experts; ++e) {
          const size_t i = index({l, e});
          if (!resident_[i] || (l == layer && history_[i].back() > 0)) continue;
          if (!least || worth_[i] < worth_[index(*least)]) least = ExpertPlace{l, e};
        }
      }
      if (!least || worth_[wanted] <= worth_[index(*least)] + options_.hysteresis) return;
      resident_[index(*least)] = false;
      demand->leaves = least;
    }
    resident_[wanted] = true;
    demand->stays = true;
  }

  ResidencyShape shape_;
  ResidencyOptions options_;
  double foretold_ = 0.0, deviation_ = 0.0, weight_ = kFirstRecencyWeight;
  Counts tokens_;                // of each iteration
  std::vector<Counts> history_;  // [L · E] of each iteration
  std::vector<double> worth_;
  std::vector<bool> resident_;
};

TEST(ExpertResidency, DecidesAsTheReference) {
  std::mt19937 random(3);
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (int round = 0; round < 60; ++round) {
    ResidencyShape shape = shape_of(between(1, 4), between(1, 12), 0);
    shape.num_records = between(0, shape.num_layers * shape.num_experts);
    for (int i = 0; i < shape.num_layers * shape.num_experts; ++i) {
      shape.owned.push_back(between(0, 3) > 0 ? 1 : 0);
    }
    const ResidencyOptions options{.window_tokens = between(1, 40),
                                   .decay = 0.5,
                                   .recency_rate = 1.0 / between(1, 16),
                                   .hysteresis = between(0, 2) * 0.01};
    ExpertResidency residency(shape, options);
    Reference reference(shape, options);
    for (int i = 0; i < 60; ++i) {
      const int tokens = between(0, 9) == 0 ? between(20, 60) : between(1, 4);
      residency.begin_iteration(tokens);
      reference.begin_iteration(tokens);
      for (int layer = 0; layer < shape.num_layers; ++layer) {
        Counts counts(static_cast<size_t>(shape.num_experts));
        for (int token = 0; token < tokens; ++token) {
          ++counts[static_cast<size_t>(
              std::min(between(0, shape.num_experts - 1), between(0, shape.num_experts - 1)))];
        }
        ASSERT_EQ(visit(residency, layer, counts), reference.visit(layer, counts))
            << "round " << round << ", iteration " << i << ", layer " << layer;
        ASSERT_LE(residency.num_resident(), shape.num_records);
      }
    }
  }
}

}  // namespace
}  // namespace wideep::residency
