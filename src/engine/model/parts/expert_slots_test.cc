// SPDX-License-Identifier: Apache-2.0
//
// Slots that become those of another placement. Records are filled with a number for each expert,
// so that their contents tell which one they are.
#include "model/parts/expert_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "weights/random_tensors.h"

namespace wideep::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kExperts = 8;
const std::vector<int> kLayers = {3, 5};  // their numbers in the model

std::byte number_of(int layer, int32_t expert) {
  return static_cast<std::byte>(16 * layer + expert);
}

// slots: [layers] of this rank, which is rank 0; rank 1 has as many slots, of whatever experts.
balance::ModelPlacement placement_of(const std::vector<std::vector<int32_t>>& slots) {
  balance::ModelPlacement placement;
  for (size_t i = 0; i < kLayers.size(); ++i) {
    balance::Placement& layer = placement.layers[kLayers[i]];
    layer = {.num_experts = kExperts, .ep_size = 2, .slot_to_expert = slots[i]};
    layer.slot_to_expert.insert(layer.slot_to_expert.end(), slots[i].size(), 0);
  }
  placement.num_slots = static_cast<int>(2 * slots[0].size());
  return placement;
}

class ExpertSlotsTest : public ::testing::Test {
 protected:
  ExpertSlotsTest() {
    for (size_t i = 0; i < kLayers.size(); ++i) {
      for (int32_t expert = 0; expert < kExperts; ++expert) {
        const weights::HostPool::Address at{static_cast<int>(i), expert};
        std::memset(pool_->record(at), static_cast<int>(number_of(kLayers[i], expert)), bytes());
        pool_->seal(at);
      }
    }
  }
  size_t bytes() const { return shape_.record_bytes(); }

  ExpertSlots slots_of(const std::vector<std::vector<int32_t>>& slots) {
    return ExpertSlots::copy(*pool_, placement_of(slots), 0, threads_).value();
  }
  // Returns the experts that had to be brought, layer by layer.
  std::vector<std::vector<int32_t>> rearrange(ExpertSlots& slots,
                                              const std::vector<std::vector<int32_t>>& wanted) {
    const balance::ModelPlacement placement = placement_of(wanted);
    std::vector<std::vector<int32_t>> brought(kLayers.size());
    const Status status =
        slots.rearrange(placement, 0, [&](std::span<const ExpertSlots::Missing> missing) {
          for (const ExpertSlots::Missing& each : missing) {
            const auto layer = std::ranges::find(kLayers, each.layer) - kLayers.begin();
            brought[static_cast<size_t>(layer)].push_back(each.expert);
          }
          return copy_experts(*pool_, placement, 0, missing, threads_);
        });
    EXPECT_TRUE(status.ok()) << status.message();
    expect_contents(slots, wanted);
    return brought;
  }
  static std::byte* record_of(ExpertSlots& slots, int layer, int slot) {
    const int32_t expert = slots.experts(layer)[static_cast<size_t>(slot)];
    std::byte* record = slots.exchange(layer, slot, expert, nullptr);
    slots.exchange(layer, slot, expert, record);
    return record;
  }
  // Every slot has a record of its own, with the expert that it says.
  void expect_contents(ExpertSlots& slots, const std::vector<std::vector<int32_t>>& wanted) const {
    std::set<std::byte*> records;
    for (size_t i = 0; i < kLayers.size(); ++i) {
      const auto experts = slots.experts(kLayers[i]);
      ASSERT_EQ(std::vector(experts.begin(), experts.end()), wanted[i]);
      for (size_t slot = 0; slot < experts.size(); ++slot) {
        std::byte* record = record_of(slots, kLayers[i], static_cast<int>(slot));
        EXPECT_TRUE(records.insert(record).second) << "two slots share a record";
        const std::byte number = number_of(kLayers[i], experts[slot]);
        EXPECT_TRUE(std::all_of(record, record + bytes(), [&](std::byte b) { return b == number; }))
            << "layer " << kLayers[i] << ", slot " << slot;
      }
    }
  }

  const weights::ExpertShape shape_{kernels::WeightFormat::kBf16, 32, 32};
  std::unique_ptr<weights::HostPool> pool_ =
      weights::HostPool::create(shape_, static_cast<int>(kLayers.size()), kExperts).value();
  base::ThreadPool threads_{1};
};

TEST_F(ExpertSlotsTest, BringsOnlyWhatIsNotHere) {
  ExpertSlots slots = slots_of({{0, 1, 2}, {4, 5, 6}});
  const std::byte* stays = record_of(slots, 3, 1);
  const uint64_t before = slots.total_bytes();
  EXPECT_THAT(rearrange(slots, {{2, 1, 7}, {4, 5, 6}}), ElementsAre(ElementsAre(7), IsEmpty()));
  EXPECT_EQ(record_of(slots, 3, 1), stays);
  EXPECT_EQ(slots.total_bytes(), before);
}

TEST_F(ExpertSlotsTest, MoreSlotsTakeMoreMemoryOnce) {
  ExpertSlots slots = slots_of({{0, 1}, {2, 3}});
  rearrange(slots, {{0, 1, 4}, {2, 3, 0}});
  EXPECT_EQ(slots.total_bytes(), 6 * bytes());
  EXPECT_THAT(rearrange(slots, {{1}, {3}}), ElementsAre(IsEmpty(), IsEmpty()));
  EXPECT_THAT(rearrange(slots, {{5, 1, 6}, {3, 7, 2}}),
              ElementsAre(ElementsAre(5, 6), ElementsAre(7, 2)));
  EXPECT_EQ(slots.total_bytes(), 6 * bytes());
}

TEST_F(ExpertSlotsTest, ReplicasOnOneRank) {
  ExpertSlots slots = slots_of({{2, 2}, {0, 1}});
  EXPECT_THAT(rearrange(slots, {{2, 5}, {1, 1}}), ElementsAre(ElementsAre(5), ElementsAre(1)));
  EXPECT_THAT(rearrange(slots, {{2, 2}, {1, 0}}), ElementsAre(ElementsAre(2), ElementsAre(0)));
}

// A slot whose expert never came counts as empty when the group changes again.
TEST_F(ExpertSlotsTest, ASlotThatWasNotFilledIsFilledTheNextTime) {
  ExpertSlots slots = slots_of({{0, 1}, {2, 3}});
  const Status status = slots.rearrange(
      placement_of({{0, 4, 5}, {2, 3, 6}}), 0,
      [](std::span<const ExpertSlots::Missing>) { return failed("the disk is gone"); });
  EXPECT_EQ(status.message(), "the disk is gone");
  EXPECT_THAT(slots.experts(3), ElementsAre(0, balance::kUnusedSlot, balance::kUnusedSlot));
  EXPECT_THAT(slots.experts(5), ElementsAre(2, 3, balance::kUnusedSlot));
  const uint64_t before = slots.total_bytes();
  EXPECT_THAT(rearrange(slots, {{5, 0, 4}, {3, 2, 6}}),
              ElementsAre(ElementsAre(5, 4), ElementsAre(6)));
  EXPECT_EQ(slots.total_bytes(), before);
}

// As after an iteration of online balancing: records of the balancer are in slots.
TEST_F(ExpertSlotsTest, TakesInRecordsOfOthers) {
  ExpertSlots slots = slots_of({{0, 1}, {2, 3}});
  {
    base::AlignedBytes foreign(2 * bytes());
    std::memset(foreign.data(), static_cast<int>(number_of(3, 6)), bytes());
    std::memset(foreign.data() + bytes(), static_cast<int>(number_of(5, 7)), bytes());
    slots.exchange(3, 1, 6, foreign.data());
    slots.exchange(5, 0, 7, foreign.data() + bytes());
    slots.take_in();
    std::memset(foreign.data(), 0xff, foreign.size());
  }
  expect_contents(slots, {{0, 6}, {7, 3}});
  slots.take_in();  // nothing to do
  EXPECT_THAT(rearrange(slots, {{6, 1}, {3, 7}}), ElementsAre(ElementsAre(1), IsEmpty()));
}

// ---- the host pool ----

class MayChange : public weights::RandomTensors {
 public:
  MayChange() : RandomTensors(1) {}
  Status check_unchanged() const override { return changed ? failed("changed") : Status(); }
  bool changed = false;
};

// Ranks that follow the one that has read a part copy from it, and read nothing that would show
// that the file is another one.
TEST_F(ExpertSlotsTest, APartOfFilesThatChangeIsNotFinished) {
  MayChange tensors;
  const weights::WeightLoader loader(tensors, kernels::WeightFormat::kBf16);
  tensors.changed = true;
  EXPECT_EQ(fill_host_pool(kLayers, loader, 0, threads_, *pool_).message(), "changed");
  EXPECT_FALSE(pool_->is_filled());
  pool_->release(0);
  const auto again = pool_->take(1);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->index, 0);
  pool_->release(1);
  tensors.changed = false;
  EXPECT_TRUE(fill_host_pool(kLayers, loader, 1, threads_, *pool_).ok());
  EXPECT_TRUE(pool_->is_filled());
}

// ---- any sequence ----

// Whatever comes after whatever: contents are right, and nothing comes that is here.
TEST_F(ExpertSlotsTest, AnyPlacementAfterAnyOther) {
  std::mt19937 random(3);
  const auto draw = [&](int max) { return std::uniform_int_distribution(0, max)(random); };
  std::vector<std::vector<int32_t>> now = {{0, 1}, {2, 3}};
  ExpertSlots slots = slots_of(now);
  size_t max_slots = 2;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<int32_t>> wanted(kLayers.size());
    const auto count = static_cast<size_t>(1 + draw(5));
    max_slots = std::max(max_slots, count);
    for (auto& layer : wanted) {
      for (size_t i = 0; i < count; ++i) layer.push_back(draw(kExperts - 1));
    }
    const auto brought = rearrange(slots, wanted);
    for (size_t i = 0; i < kLayers.size(); ++i) {
      for (int32_t expert = 0; expert < kExperts; ++expert) {
        const auto lacking = std::max<std::ptrdiff_t>(
            std::ranges::count(wanted[i], expert) - std::ranges::count(now[i], expert), 0);
        ASSERT_EQ(std::ranges::count(brought[i], expert), lacking);
      }
    }
    ASSERT_LE(slots.total_bytes(), 2 * max_slots * bytes());
    now = wanted;
  }
}

}  // namespace
}  // namespace wideep::model
