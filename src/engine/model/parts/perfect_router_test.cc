// SPDX-License-Identifier: Apache-2.0
//
// The logits go through the real selection of every method, and the rows of each rank are counted:
// groups and weights of a method must not undo the balance. All numbers of groups, groups of a
// token, choices and ranks that models of up to 256 experts may have are tried: exactly even with
// any number of tokens, or never above the bound that runs print. A failure means that a run which
// is to show the speed without imbalance has some.
#include "model/parts/perfect_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "model/parts/router.h"

namespace wideep::model {
namespace {

using ::testing::HasSubstr;

// All ranks of a layer, each with its router.
class RoutedLayer {
 public:
  RoutedLayer(const RoutingConfig& routing, int ep_size)
      : routing_(routing), ranks_(ep_size, 0), experts_(routing.num_experts, 0) {
    for (int rank = 0; rank < ep_size; ++rank) routers_.emplace_back(routing, ep_size, rank);
  }

  // Every rank's next token. Returns whether the method chose what the logits mark.
  bool route() {
    std::vector<int32_t> chosen(routing_.top_k);
    std::vector<float> weights(routing_.top_k);
    bool marked = true;
    for (PerfectRouter& router : routers_) {
      const float* logits = router.logits(tokens_ + 1) + size_t(tokens_) * routing_.num_experts;
      select_experts(routing_, logits, router.zero_bias(), chosen.data(), weights.data());
      for (const int32_t expert : chosen) {
        marked = marked && logits[expert] == 10.0f;
        ++experts_[expert];
        ++ranks_[expert / (routing_.num_experts / num_ranks())];
      }
      marked = marked && std::set(chosen.begin(), chosen.end()).size() == chosen.size();
    }
    ++tokens_;
    return marked;
  }

  int num_ranks() const { return static_cast<int>(routers_.size()); }
  // Rows of a rank above the mean.
  double excess() const {
    return *std::ranges::max_element(ranks_) - static_cast<double>(tokens_) * routing_.top_k;
  }
  int spread_of_experts() const {
    const auto [min, max] = std::ranges::minmax(experts_);
    return max - min;
  }

 private:
  RoutingConfig routing_;
  std::vector<PerfectRouter> routers_;
  std::vector<int> ranks_, experts_;
  int tokens_ = 0;
};

std::string text_of(const RoutingConfig& routing, int ep_size) {
  return testing::PrintToString(routing.num_experts) + " experts, " +
         testing::PrintToString(routing.num_groups) + " groups of which " +
         testing::PrintToString(routing.top_k_groups) + ", top " +
         testing::PrintToString(routing.top_k) + ", " + testing::PrintToString(ep_size) +
         " ranks, method " + testing::PrintToString(static_cast<int>(routing.method));
}

// Ranks and groups begin together at every rank or at every group.
bool fits(const RoutingConfig& routing, int ep_size) {
  return ep_size % routing.num_groups == 0 || routing.num_groups % ep_size == 0;
}

std::vector<int> divisors(int of, int max) {
  std::vector<int> result;
  for (int i = 1; i <= std::min(of, max); ++i) {
    if (of % i == 0) result.push_back(i);
  }
  return result;
}

// Calls `with` for all models of these experts, and all numbers of ranks.
void for_all_groups(const std::vector<int>& groups, const std::vector<int>& group_sizes,
                    const std::function<void(const RoutingConfig&, int)>& with) {
  for (const int num_groups : groups) {
    for (const int size : group_sizes) {
      RoutingConfig routing{.num_experts = num_groups * size, .num_groups = num_groups};
      for (routing.top_k_groups = 1; routing.top_k_groups <= num_groups; ++routing.top_k_groups) {
        const int max = std::min(10, routing.top_k_groups * size);
        for (routing.top_k = 1; routing.top_k <= max; ++routing.top_k) {
          for (const int ranks : divisors(routing.num_experts, 64)) with(routing, ranks);
        }
      }
    }
  }
}

constexpr RoutingMethod kFlatMethods[] = {
    RoutingMethod::kDefault,       RoutingMethod::kRenormalize, RoutingMethod::kRenormalizeNaive,
    RoutingMethod::kDeepseekV3,    RoutingMethod::kDeepseekV2,  RoutingMethod::kLlama4,
    RoutingMethod::kSigmoidRenorm, RoutingMethod::kMinimax2,    RoutingMethod::kErnie,
    RoutingMethod::kSparseMixer};

TEST(PerfectRouter, EveryMethodWithoutGroupsIsEvenAfterEveryToken) {
  for (RoutingMethod method : kFlatMethods) {
    for (const int experts : {8, 16, 60, 64, 128, 160, 384, 512}) {
      for (const int top_k : {1, 2, 3, 4, 6, 8}) {
        for (const int ranks : divisors(experts, 64)) {
          const RoutingConfig routing{.method = method, .num_experts = experts, .top_k = top_k};
          RoutedLayer layer(routing, ranks);
          for (int token = 0; token < 5; ++token) {
            ASSERT_TRUE(layer.route()) << text_of(routing, ranks);
            ASSERT_EQ(layer.excess(), 0.0) << text_of(routing, ranks) << ", token " << token;
          }
        }
      }
    }
  }
}

// As TensorRT-LLM writes it: slot s of the stream of tokens and choices goes to GPU (s + rank) mod
// R, and there to the expert ⌊(s + rank) / R⌋ mod E/R.
TEST(PerfectRouter, WithoutGroupsTheExpertsAreTensorRtLlms) {
  for (const auto& [experts, top_k, ranks] :
       {std::tuple(64, 8, 4), std::tuple(16, 3, 8), std::tuple(12, 5, 6), std::tuple(128, 1, 1)}) {
    for (int rank = 0; rank < ranks; ++rank) {
      PerfectChoices choices({.num_experts = experts, .top_k = top_k}, ranks, rank);
      for (int token = 0; token < 3 * experts; ++token) {
        const std::vector<int32_t>& chosen = choices.next();
        for (int k = 0; k < top_k; ++k) {
          const int s = token * top_k + k + rank;
          ASSERT_EQ(chosen[k], s % ranks * (experts / ranks) + s / ranks % (experts / ranks)) << s;
        }
      }
    }
  }
}

// Where ranks and groups fit each other: several groups on a rank, a group on several ranks, one
// on each.
TEST(PerfectRouter, GroupsThatFitTheRanksAreEvenAfterEveryToken) {
  int cases = 0;
  for_all_groups(
      {2, 3, 4, 5, 6, 8, 16}, {1, 2, 3, 4, 6, 8, 16, 32}, [&](RoutingConfig routing, int ranks) {
        if (!fits(routing, ranks) || routing.num_experts > 256) return;
        routing.method = ++cases % 2 == 0 ? RoutingMethod::kDeepseekV3 : RoutingMethod::kDeepseekV2;
        EXPECT_EQ(PerfectChoices::evenness(routing, ranks).max_excess, 0.0);
        RoutedLayer layer(routing, ranks);
        for (int token = 0; token < 4; ++token) {
          ASSERT_TRUE(layer.route()) << text_of(routing, ranks);
          ASSERT_EQ(layer.excess(), 0.0) << text_of(routing, ranks) << ", " << token;
        }
      });
  EXPECT_GT(cases, 5000);
}

// Others: the bound holds after every token and is reached, and after a period all is even.
TEST(PerfectRouter, OtherGroupsAreEvenAfterAPeriodAndNeverAboveTheBound) {
  int cases = 0, uneven = 0;
  for_all_groups({2, 3, 4, 5, 6, 8}, {1, 2, 3, 4, 6}, [&](RoutingConfig routing, int ranks) {
    if (fits(routing, ranks)) return;
    routing.method = RoutingMethod::kDeepseekV3;
    ++cases;
    const Evenness bound = PerfectChoices::evenness(routing, ranks);
    RoutedLayer layer(routing, ranks);
    double max_excess = 0.0;
    for (int64_t token = 0; token < 2 * bound.period; ++token) {
      ASSERT_TRUE(layer.route()) << text_of(routing, ranks);
      max_excess = std::max(max_excess, layer.excess());
      if ((token + 1) % bound.period == 0) {
        ASSERT_EQ(layer.excess(), 0.0) << text_of(routing, ranks);
      }
    }
    ASSERT_DOUBLE_EQ(max_excess, bound.max_excess) << text_of(routing, ranks);
    ASSERT_LE(bound.max_excess, routing.top_k) << text_of(routing, ranks);
    if (bound.max_excess > 0.0) ++uneven;
  });
  EXPECT_GT(cases, 500);
  EXPECT_GT(uneven, 100);  // or the bound is not tested
}

// Published models, at the numbers of ranks that they are served with.
TEST(PerfectRouter, PublishedModelsAreEven) {
  const auto of = [](RoutingMethod method, int experts, int top_k, int groups, int top_k_groups) {
    return RoutingConfig{.method = method,
                         .num_experts = experts,
                         .top_k = top_k,
                         .num_groups = groups,
                         .top_k_groups = top_k_groups,
                         .selection_bias = true};
  };
  const std::vector<RoutingConfig> models = {
      of(RoutingMethod::kDeepseekV3, 256, 8, 8, 4),   // DeepSeek-V3, -R1, -V3.2
      of(RoutingMethod::kDeepseekV2, 160, 6, 8, 3),   // DeepSeek-V2
      of(RoutingMethod::kDeepseekV3, 256, 1, 8, 4),   // one choice
      of(RoutingMethod::kDeepseekV3, 256, 7, 2, 1),   // odd choices of two groups
      of(RoutingMethod::kDeepseekV3, 384, 8, 1, 1),   // Kimi K2
      of(RoutingMethod::kDeepseekV3, 160, 8, 1, 1),   // GLM-4.5
      of(RoutingMethod::kMinimax2, 256, 8, 1, 1),     // MiniMax-M2
      of(RoutingMethod::kErnie, 64, 6, 1, 1),         // ERNIE 4.5
      of(RoutingMethod::kLlama4, 128, 1, 1, 1),       // Llama 4 Maverick
      of(RoutingMethod::kLlama4, 16, 1, 1, 1),        // Llama 4 Scout
      of(RoutingMethod::kRenormalize, 512, 10, 1, 1)  // Qwen3-Next
  };
  for (const RoutingConfig& model : models) {
    for (const int ranks : {1, 2, 4, 8, 16, 32, 64}) {
      if (model.num_experts % ranks != 0) continue;
      RoutedLayer layer(model, ranks);
      for (int token = 0; token < 64; ++token) {
        ASSERT_TRUE(layer.route());
        ASSERT_EQ(layer.excess(), 0.0) << text_of(model, ranks) << ", token " << token;
      }
      EXPECT_LE(layer.spread_of_experts(), 2 * ranks) << text_of(model, ranks);
    }
  }
}

// Ranks with different numbers of tokens: each rank's own tokens use all ranks about equally.
TEST(PerfectRouter, EachRanksOwnTokensAreNearlyEven) {
  for_all_groups({2, 4, 8}, {4, 8, 16, 32}, [&](RoutingConfig routing, int ranks) {
    if (!fits(routing, ranks)) return;
    for (const int rank : {0, ranks - 1}) {
      PerfectChoices choices(routing, ranks, rank);
      std::vector<int> rows(ranks, 0);
      constexpr int kTokens = 200;
      for (int token = 0; token < kTokens; ++token) {
        for (const int32_t expert : choices.next()) {
          ++rows[expert / (routing.num_experts / ranks)];
        }
      }
      const double mean = static_cast<double>(kTokens) * routing.top_k / ranks;
      ASSERT_LE(*std::ranges::max_element(rows) - mean, 2.0 * routing.top_k)
          << text_of(routing, ranks);
    }
  });
}

// 12 experts in 3 groups on 4 ranks, each token one whole group: of the 81 ways to choose a token's
// group on each rank, none is even, so a bound above 0 is no fault of the order. A rank of 3 experts
// gets 3 rows from a token or fewer; one row above the mean is the least.
TEST(PerfectRouter, SomeCannotBeEven) {
  const RoutingConfig routing{.method = RoutingMethod::kDeepseekV3,
                              .num_experts = 12,
                              .top_k = 4,
                              .num_groups = 3,
                              .top_k_groups = 1};
  double least = 100.0;
  for (int way = 0; way < 81; ++way) {
    std::vector<int> rows(4, 0);
    for (int token = 0, rest = way; token < 4; ++token, rest /= 3) {
      for (int expert = rest % 3 * 4; expert < rest % 3 * 4 + 4; ++expert) ++rows[expert / 3];
    }
    least = std::min(least, *std::ranges::max_element(rows) - 4.0);
  }
  EXPECT_EQ(least, 1.0);
  RoutedLayer layer(routing, 4);
  EXPECT_TRUE(layer.route());
  EXPECT_GE(layer.excess(), least);
  const Evenness bound = PerfectChoices::evenness(routing, 4);
  EXPECT_EQ(bound.period, 3);
  EXPECT_EQ(bound.max_imbalance(5, 4), bound.max_excess / 20.0);
}

TEST(PerfectRouter, MoreTokensRepeatTheFirst) {
  const RoutingConfig routing{.num_experts = 16, .top_k = 3};
  PerfectRouter router(routing, 4, 1);
  const std::vector<float> few(router.logits(5), router.logits(5) + 5 * 16);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), router.logits(100)));
  EXPECT_TRUE(std::equal(few.begin(), few.end(), router.logits(5)));
}

TEST(PerfectRouter, RanksThatDoNotDivideTheExpertsAreRefused) {
  EXPECT_TRUE(PerfectRouter::check({.num_experts = 64, .top_k = 8}, 8).ok());
  EXPECT_THAT(PerfectRouter::check({.num_experts = 64, .top_k = 8}, 6).message(),
              HasSubstr("divides the 64 experts, found 6"));
}

}  // namespace
}  // namespace wideep::model
