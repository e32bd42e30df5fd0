// SPDX-License-Identifier: Apache-2.0
//
// Tokens are drawn as a router chooses, top-k without replacement, from a lognormal load for which
// the placement was planned. Held are both errors of the judgement: 2,000 looks raise no more false
// alarms than the stated rate, and an expert with four times the weight is found in 4,096 tokens,
// but not in 8. Too many alarms cost searches that find nothing; too few leave a hot expert where
// it is.
#include "online/evidence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace wideep::online {
namespace {

using Load = std::vector<double>;

constexpr int kTopK = 4;

// Tokens that choose kTopK different experts each, with probabilities of a lognormal load.
class Text {
 public:
  Text(int num_experts, unsigned seed) : random_(seed) {
    std::lognormal_distribution<double> popularity(0.0, 0.8);
    for (int e = 0; e < num_experts; ++e) log_.push_back(std::log(popularity(random_)));
  }

  Load tokens(int count) {
    Load rows(log_.size());
    for (int token = 0; token < count; ++token) add_token(&rows);
    return rows;
  }
  void quadruple_the_hottest() { *std::max_element(log_.begin(), log_.end()) += std::log(4.0); }

 private:
  // The kTopK greatest of log p + Gumbel noise: a draw without replacement.
  void add_token(Load* rows) {
    std::extreme_value_distribution<double> noise(0.0, 1.0);
    keys_.clear();
    for (size_t e = 0; e < log_.size(); ++e) keys_.push_back({log_[e] + noise(random_), e});
    std::partial_sort(keys_.begin(), keys_.begin() + kTopK, keys_.end(), std::greater<>());
    for (int i = 0; i < kTopK; ++i) (*rows)[keys_[static_cast<size_t>(i)].second] += 1.0;
  }

  std::mt19937_64 random_;
  Load log_;
  std::vector<std::pair<double, size_t>> keys_;
};

struct Setting {
  int num_experts;
  int ep_size;
  int num_slots;
  int tokens;  // of a look
};

class EvidenceTest : public testing::TestWithParam<Setting> {
 protected:
  EvidenceTest()
      : shape_{.num_experts = GetParam().num_experts,
               .ep_size = GetParam().ep_size,
               .num_slots = GetParam().num_slots},
        text_(shape_.num_experts, 11) {
    auto planner = balance::make_planner("wideep", shape_, {.split = balance::Split::kWeighted});
    planner.value()->plan(text_.tokens(50'000), &plan_);
  }

  int alarms(double rate, int looks) {
    Evidence evidence(rate, shape_, 1);
    int found = 0;
    for (int i = 0; i < looks; ++i) {
      found += evidence.look(0, plan_.placement, text_.tokens(GetParam().tokens)).significant;
    }
    return found;
  }

  balance::PlanShape shape_;
  Text text_;
  balance::LayerPlan plan_;
};

// The stated rate is an upper bound: on a load for which the placement is balanced there are no
// more false alarms. 2,000 looks at a rate of 0.05 are 100, and 3 standard deviations more are 129.
TEST_P(EvidenceTest, FalseAlarmsOnAStationaryLoad) {
  EXPECT_LE(alarms(0.05, 2000), 129);
  EXPECT_EQ(alarms(0.0, 50), 0);
}

TEST_P(EvidenceTest, FindsAHotExpert) {
  text_.quadruple_the_hottest();
  // What one look misses, more tokens show.
  Evidence evidence(1e-3, shape_, 1);
  const auto look = evidence.look(0, plan_.placement, text_.tokens(4096));
  EXPECT_TRUE(look.significant);
  EXPECT_GT(look.imbalance, 0.1);
  const auto few = evidence.look(0, plan_.placement, text_.tokens(8));
  EXPECT_FALSE(few.significant);
  EXPECT_GT(few.imbalance, 0.1);
}

// Without spare slots, where noise cannot be shared out, and with.
INSTANTIATE_TEST_SUITE_P(Shapes, EvidenceTest,
                         testing::Values(Setting{16, 4, 16, 24}, Setting{32, 8, 32, 128},
                                         Setting{32, 8, 40, 128}, Setting{64, 16, 64, 256},
                                         Setting{64, 16, 80, 64}));

TEST(Evidence, NoRowsAreNoEvidence) {
  const balance::PlanShape shape{.num_experts = 4, .ep_size = 2, .num_slots = 4};
  Evidence evidence(0.5, shape, 2);
  const auto placement = balance::default_placement(4, 2, 4).value();
  EXPECT_FALSE(evidence.look(1, placement, Load(4)).significant);
  // 20 rows, all of one rank: exp(-10 · h(1)) = 0.02 of each of two sets.
  const auto look = evidence.look(1, placement, Load{10, 10, 0, 0});
  EXPECT_TRUE(look.significant);
  EXPECT_DOUBLE_EQ(look.imbalance, 1.0);
}

}  // namespace
}  // namespace wideep::online
