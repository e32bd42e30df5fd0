// SPDX-License-Identifier: Apache-2.0
//
// Each state is filled with a number of its own, so that a slot given twice, or a snapshot that
// follows its original, shows. Random work is held against a list in the order of use, and against
// slots of no bytes, as of a stage without recurrent layers: both must choose the same slots, or
// stages disagree. A failure goes on from the state of another text.
#include "schedule/state_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace wideep::engine {
namespace {

using SlotId = StateSlots::SlotId;
using Prefix = StateSlots::Prefix;

constexpr size_t kBytes = 128;

void fill(StateSlots& slots, SlotId slot, int value) {
  std::fill_n(slots.bytes(slot), kBytes, static_cast<std::byte>(value));
}

bool holds(StateSlots& slots, SlotId slot, int value) {
  return std::all_of(slots.bytes(slot), slots.bytes(slot) + kBytes,
                     [&](std::byte each) { return each == static_cast<std::byte>(value); });
}

TEST(StateSlots, StatesBeginWithZeros) {
  StateSlots slots(kBytes, 1);
  for (int i = 0; i < 2; ++i) {
    const SlotId slot = slots.take(StateSlots::kNoTokens);
    EXPECT_TRUE(holds(slots, slot, 0));
    fill(slots, slot, 7);
    slots.release(slot);
  }
}

TEST(StateSlots, SnapshotsAreCopies) {
  StateSlots slots(kBytes, 3);
  const SlotId first = slots.take(StateSlots::kNoTokens);
  fill(slots, first, 1);
  EXPECT_TRUE(slots.keep(first, 11));
  fill(slots, first, 2);
  const SlotId second = slots.take(11);
  EXPECT_TRUE(holds(slots, second, 1));
  fill(slots, second, 3);
  slots.restore(first, 11);
  EXPECT_TRUE(holds(slots, first, 1));
  EXPECT_EQ(slots.num_states(), 2);
  EXPECT_EQ(slots.num_snapshots(), 1);
}

TEST(StateSlots, OneSnapshotOfAPrefixIsEnough) {
  StateSlots slots(kBytes, 4);
  const SlotId state = slots.take(StateSlots::kNoTokens);
  EXPECT_TRUE(slots.keep(state, 1));
  EXPECT_TRUE(slots.keep(state, 2));
  EXPECT_FALSE(slots.keep(state, 1));  // which is now the last one used
  EXPECT_TRUE(slots.keep(state, 3));
  EXPECT_TRUE(slots.keep(state, 4));
  EXPECT_TRUE(slots.knows(3));
  EXPECT_TRUE(slots.knows(1));
  EXPECT_FALSE(slots.knows(2));
}

TEST(StateSlots, RunningSequencesTakeTheSlotsOfSnapshots) {
  StateSlots slots(kBytes, 3);
  const SlotId first = slots.take(StateSlots::kNoTokens);
  fill(slots, first, 1);
  EXPECT_TRUE(slots.keep(first, 11));
  fill(slots, first, 2);
  EXPECT_TRUE(slots.keep(first, 22));
  const SlotId second = slots.take(11);  // in the place of the other snapshot, though older
  EXPECT_TRUE(holds(slots, second, 1));
  EXPECT_FALSE(slots.knows(22));
  const SlotId third = slots.take(11);  // the snapshot itself
  EXPECT_TRUE(holds(slots, third, 1));
  EXPECT_FALSE(slots.knows(11));
  EXPECT_FALSE(slots.keep(first, 33));  // no slot is left
  EXPECT_EQ(slots.num_snapshots(), 0);
  slots.release(second);
  EXPECT_TRUE(slots.keep(first, 33));
  EXPECT_TRUE(holds(slots, first, 2));
}

TEST(StateSlots, DroppedSnapshotsMakeRoom) {
  StateSlots slots(kBytes, 2);
  const SlotId state = slots.take(StateSlots::kNoTokens);
  EXPECT_TRUE(slots.keep(state, 1));
  slots.drop(1);
  slots.drop(1);  // no effect
  EXPECT_FALSE(slots.knows(1));
  EXPECT_TRUE(slots.keep(state, 2));
  EXPECT_TRUE(slots.knows(2));
}

TEST(StateSlots, AVersionChangesBeforeASnapshotIsOverwritten) {
  StateSlots slots(kBytes, 3);
  const SlotId state = slots.take(StateSlots::kNoTokens);
  const auto seen = [&](Prefix prefix) {
    const Version& version = slots.version(slots.snapshot(prefix));
    return KeptBytes{.head = {}, .version = &version, .seen = version.now()};
  };
  ASSERT_TRUE(slots.keep(state, 11));
  const KeptBytes first = seen(11);
  ASSERT_TRUE(slots.keep(state, 22));
  const KeptBytes second = seen(22);
  const SlotId other = slots.take(22);  // in the place of the first
  EXPECT_FALSE(first.is_intact());
  EXPECT_TRUE(second.is_intact());
  slots.drop(22);
  EXPECT_TRUE(second.is_intact());
  slots.release(other);
  slots.take(StateSlots::kNoTokens);
  slots.take(StateSlots::kNoTokens);
  EXPECT_FALSE(second.is_intact());
}

TEST(StateSlots, ReservedSlotsBecomeSnapshots) {
  StateSlots slots(kBytes, 2);
  const SlotId state = slots.take(StateSlots::kNoTokens);
  ASSERT_TRUE(slots.keep(state, 11));
  const SlotId reserved = slots.reserve();  // in the place of the snapshot
  EXPECT_FALSE(slots.knows(11));
  EXPECT_EQ(slots.num_states(), 2);
  EXPECT_FALSE(slots.keep(state, 11));  // no slot is left
  fill(slots, reserved, 5);
  EXPECT_TRUE(slots.adopt(reserved, 22));
  EXPECT_EQ(slots.num_states(), 1);
  EXPECT_EQ(slots.snapshot(22), reserved);
  EXPECT_TRUE(holds(slots, slots.take(22), 5));
}

TEST(StateSlots, OneOfTwoSnapshotsOfAPrefixIsFreeAgain) {
  StateSlots slots(kBytes, 3);
  const SlotId state = slots.take(StateSlots::kNoTokens);
  ASSERT_TRUE(slots.keep(state, 11));
  const SlotId reserved = slots.reserve();
  EXPECT_FALSE(slots.adopt(reserved, 11));
  EXPECT_NE(slots.snapshot(11), reserved);
  EXPECT_EQ(slots.num_states(), 1);
  EXPECT_EQ(slots.take(StateSlots::kNoTokens), reserved);
  EXPECT_TRUE(slots.knows(11));
}

// A stage without recurrent layers keeps the same books as one with them; random work compares both
// with a list that is searched from the front.
TEST(StateSlots, AgreesWithASlowModelUnderRandomWork) {
  std::mt19937 rng(3);
  for (int round = 0; round < 40; ++round) {
    const int max_slots = 1 + static_cast<int>(rng() % 6);
    StateSlots slots(kBytes, max_slots), empty(0, max_slots);
    std::map<SlotId, int> states;                   // and what each holds
    std::vector<std::pair<Prefix, int>> snapshots;  // the least recently used first
    const auto find = [&](Prefix prefix) {
      return std::ranges::find_if(snapshots, [&](auto& each) { return each.first == prefix; });
    };
    const auto make_room = [&](size_t wanted) {
      while (states.size() + snapshots.size() + wanted > static_cast<size_t>(max_slots)) {
        snapshots.erase(snapshots.begin());
      }
    };
    int value = 0;
    for (int step = 0; step < 300; ++step) {
      const Prefix prefix = 1 + rng() % 5;
      const auto known = find(prefix);
      const bool is_known = known != snapshots.end();
      ASSERT_EQ(slots.knows(prefix), is_known);
      auto state = states.begin();
      if (!states.empty()) std::advance(state, rng() % states.size());
      switch (rng() % 5) {
        case 0: {  // take
          if (static_cast<int>(states.size()) == max_slots) break;
          int content = 0;
          if (is_known) {
            content = known->second;
            std::rotate(known, known + 1, snapshots.end());
          }
          make_room(1);
          const Prefix from = is_known ? prefix : StateSlots::kNoTokens;
          const SlotId slot = slots.take(from);
          ASSERT_EQ(empty.take(from), slot);
          ASSERT_TRUE(holds(slots, slot, content));
          ASSERT_TRUE(states.emplace(slot, content).second);
          break;
        }
        case 1: {  // keep what the state has come to
          if (states.empty()) break;
          state->second = ++value % 250;
          fill(slots, state->first, state->second);
          const bool has_room = static_cast<int>(states.size()) < max_slots;
          if (is_known) {
            std::rotate(known, known + 1, snapshots.end());
          } else if (has_room) {
            make_room(1);
            snapshots.emplace_back(prefix, state->second);
          }
          ASSERT_EQ(slots.keep(state->first, prefix), !is_known && has_room);
          ASSERT_EQ(empty.keep(state->first, prefix), !is_known && has_room);
          break;
        }
        case 2: {  // restore
          if (states.empty() || !is_known) break;
          state->second = known->second;
          std::rotate(known, known + 1, snapshots.end());
          slots.restore(state->first, prefix);
          empty.restore(state->first, prefix);
          break;
        }
        case 3: {  // release
          if (states.empty()) break;
          slots.release(state->first);
          empty.release(state->first);
          states.erase(state);
          break;
        }
        default: {
          if (is_known) snapshots.erase(known);
          slots.drop(prefix);
          empty.drop(prefix);
        }
      }
      ASSERT_EQ(slots.num_states(), static_cast<int>(states.size()));
      ASSERT_EQ(slots.num_snapshots(), static_cast<int>(snapshots.size()));
      for (const auto& [slot, content] : states) ASSERT_TRUE(holds(slots, slot, content));
    }
  }
}

}  // namespace
}  // namespace wideep::engine
