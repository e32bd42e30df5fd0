// SPDX-License-Identifier: Apache-2.0
#include "engine/rank_state.h"

#include <gtest/gtest.h>

#include <random>

namespace wideep::engine {
namespace {

RankState packed_and_unpacked(const RankState& state) {
  transport::AgreedWords words = {};
  pack(state, words);
  return unpack_rank_state(words);
}

TEST(RankState, IsWhatWasPacked) {
  std::minstd_rand random(7);
  const auto below = [&](uint64_t end) { return (uint64_t{random()} << 31 | random()) % end; };
  for (int i = 0; i < 1000; ++i) {
    const RankState state{
        .has_work = below(2) == 1,
        .stop_requested = below(2) == 1,
        .change_requested = below(2) == 1,
        .readiness = {.has_prompts = below(2) == 1,
                      .generates = below(2) == 1,
                      .has_room = below(2) == 1},
        .pass_rows = static_cast<int>(below(uint64_t{1} << 21)),
        .num_seen = below(uint64_t{1} << 37),
        .num_tokens = static_cast<int>(below((uint64_t{1} << 20) + 1)),
        .max_drafts = static_cast<int>(below(128)),
        .last_step_us = below(uint64_t{1} << 31),
        .last_step_had_prompts = below(2) == 1,
    };
    EXPECT_EQ(packed_and_unpacked(state), state);
  }
}

TEST(RankState, LargerValuesBecomeTheLargest) {
  EXPECT_EQ(packed_and_unpacked({.last_step_us = uint64_t{1} << 40}).last_step_us,
            (uint64_t{1} << 31) - 1);
  EXPECT_EQ(packed_and_unpacked({.max_drafts = 1000}).max_drafts, 127);
  EXPECT_FALSE(packed_and_unpacked({.last_step_us = ~uint64_t{0}}).last_step_had_prompts);
}

// Every field has bits of its own, and the words of online balancing stay as they are.
TEST(RankState, FieldsDoNotOverlap) {
  transport::AgreedWords words = {0, 0, 3, 4, 5, 6, 7, 8};
  pack({.has_work = true, .readiness = {.has_room = false}, .num_seen = 1, .num_tokens = 1}, words);
  EXPECT_EQ(words, (transport::AgreedWords{1 | uint64_t{1} << 27, 1, 3, 4, 5, 6, 7, 8}));
  pack({.readiness = {.has_room = true}, .pass_rows = 1, .max_drafts = 1, .last_step_us = 1},
       words);
  EXPECT_EQ(words[0], uint64_t{1} << 4 | uint64_t{1} << 6);
  EXPECT_EQ(words[1], uint64_t{1} << 21 | uint64_t{1} << 32);
  pack({.readiness = {.has_room = false}, .last_step_had_prompts = true}, words);
  EXPECT_EQ(words[0], 0u);
  EXPECT_EQ(words[1], uint64_t{1} << 63);
}

}  // namespace
}  // namespace wideep::engine
