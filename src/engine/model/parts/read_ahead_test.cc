// SPDX-License-Identifier: Apache-2.0
#include "model/parts/read_ahead.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace wideep::model {
namespace {

constexpr int kExperts = 64;

class ReadAheadTest : public ::testing::Test {
 protected:
  // Calls of layers, whose guesses give two experts a weight of 0.6 and two of 0.1, which are right
  // with these probabilities. Returns the last that were worth reading.
  std::vector<int> run(int num_calls, double of_heavy, double of_light) {
    std::bernoulli_distribution heavy(of_heavy), light(of_light);
    std::vector<int> worth;
    for (int i = 0; i < num_calls; ++i) {
      if (!read_ahead_.is_due()) continue;
      ++num_guesses_;
      std::vector<float> weights(kExperts, 0.0F);
      std::vector<int32_t> counts(kExperts, 0);
      for (const int expert : {40, 7}) {
        weights[expert] = 0.6F;
        counts[expert] = heavy(rng_) ? 1 : 0;
      }
      for (const int expert : {3, 50}) {
        weights[expert] = 0.1F;
        counts[expert] = light(rng_) ? 1 : 0;
      }
      read_ahead_.guess(i % 8, weights);
      worth.assign(read_ahead_.worth_reading().begin(), read_ahead_.worth_reading().end());
      read_ahead_.learn(i % 8, counts);
    }
    return worth;
  }

  ReadAhead read_ahead_;
  std::mt19937 rng_{11};
  int num_guesses_ = 0;
};

TEST_F(ReadAheadTest, LearnsWhichGuessesAreWorthARead) {
  EXPECT_EQ(run(1000, 0.9, 0.9), (std::vector<int>{7, 40, 3, 50}));
  EXPECT_EQ(run(1000, 0.9, 0.3), (std::vector<int>{7, 40}));
  EXPECT_EQ(run(1000, 0.3, 0.9), (std::vector<int>{3, 50}));
}

TEST_F(ReadAheadTest, GuessesSeldomWhereNoneIsWorthIt) {
  EXPECT_EQ(run(2000, 0.3, 0.2), std::vector<int>{});
  num_guesses_ = 0;
  run(1600, 0.3, 0.2);
  EXPECT_EQ(num_guesses_, 100);
  // And finds out that they have become better.
  EXPECT_EQ(run(20'000, 0.9, 0.2), (std::vector<int>{7, 40}));
}

// Of rows that an expert was lost of.
TEST_F(ReadAheadTest, WeightsThatAreNoNumbersAreNoGuesses) {
  EXPECT_EQ(run(1000, 0.9, 0.3), (std::vector<int>{7, 40}));
  std::vector<float> weights(kExperts, std::numeric_limits<float>::quiet_NaN());
  weights[7] = 0.6F;
  weights[8] = std::numeric_limits<float>::infinity();
  for (int i = 0; i < 100; ++i) {
    read_ahead_.guess(2, weights);
    EXPECT_EQ(
        std::vector<int>(read_ahead_.worth_reading().begin(), read_ahead_.worth_reading().end()),
        std::vector<int>{7});
    read_ahead_.learn(2, std::vector<int32_t>(kExperts, 1));
  }
}

TEST_F(ReadAheadTest, LearnsOnlyFromTheLayerOfTheGuess) {
  const std::vector<float> weights(kExperts, 1.0F);
  const std::vector<int32_t> all(kExperts, 1);
  for (int i = 0; i < 100; ++i) {
    read_ahead_.guess(2, weights);
    read_ahead_.learn(3, all);
    read_ahead_.learn(2, all);  // whose guess is forgotten
  }
  read_ahead_.guess(2, weights);
  EXPECT_TRUE(read_ahead_.worth_reading().empty());
  read_ahead_.learn(2, all);
  read_ahead_.guess(2, weights);
  EXPECT_EQ(read_ahead_.worth_reading().size(), static_cast<size_t>(kExperts));
}

}  // namespace
}  // namespace wideep::model
