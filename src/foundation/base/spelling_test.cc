// SPDX-License-Identifier: Apache-2.0
#include "base/spelling.h"

#include <gtest/gtest.h>

#include <string>

namespace wideep::base {
namespace {

TEST(EditDistance, CountsInsertionsRemovalsAndReplacements) {
  EXPECT_EQ(edit_distance("", "", 9), 0u);
  EXPECT_EQ(edit_distance("kitten", "sitting", 9), 3u);
  EXPECT_EQ(edit_distance("abc", "", 9), 3u);
  EXPECT_EQ(edit_distance("", "abc", 9), 3u);
  EXPECT_EQ(edit_distance("flaw", "lawn", 9), 2u);
}

TEST(EditDistance, CountsExchangedNeighboursOnce) {
  EXPECT_EQ(edit_distance("modle", "model", 9), 1u);
  EXPECT_EQ(edit_distance("modle", "model", 1), 1u);
  EXPECT_EQ(edit_distance("ba", "ab", 1), 1u);
  EXPECT_EQ(edit_distance("ca", "abc", 9), 3u);  // what was exchanged is not edited again
  EXPECT_EQ(edit_distance("badc", "abcd", 2), 2u);
  EXPECT_EQ(edit_distance("badc", "abcd", 1), 2u);
}

TEST(EditDistance, StopsAboveTheLimit) {
  EXPECT_EQ(edit_distance("kitten", "sitting", 3), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting", 2), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting", 0), 1u);
  EXPECT_EQ(edit_distance("a", "aaaaaaaa", 2), 3u);
}

TEST(ClosestWord, TakesTheNearest) {
  EXPECT_EQ(closest_word("layers.3.up", {"layers.2.down", "layers.2.up", "norm"}), "layers.2.up");
  EXPECT_EQ(closest_word("tp", {"tp", "pp"}), "tp");
}

TEST(ClosestWord, TakesTheFirstOfEquals) { EXPECT_EQ(closest_word("xp", {"tp", "pp"}), "tp"); }

TEST(ClosestWord, NoneWhenAllAreFar) {
  EXPECT_EQ(closest_word("hidden_size", {"vocab", "rope_theta"}), std::nullopt);
  EXPECT_EQ(closest_word("hidden_size", {}), std::nullopt);
  EXPECT_EQ(closest_word("", {"ab"}), std::nullopt);
}

TEST(ClosestWord, VeryLongWordsAreComparedByTheirBeginning) {
  const std::string word(100'000, 'a');
  EXPECT_EQ(closest_word(word, {word + "b"}), word + "b");
}

TEST(DidYouMean, IsAQuestionOrNothing) {
  EXPECT_EQ(did_you_mean("hiden_size", {"hidden_size"}), "; did you mean 'hidden_size'?");
  EXPECT_EQ(did_you_mean("hiden_size", {"rope_theta"}), "");
}

}  // namespace
}  // namespace wideep::base
