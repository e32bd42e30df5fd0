// SPDX-License-Identifier: Apache-2.0
//
// Functions of the balancer that an engine calls in every iteration allocate nothing after their
// first call: a replaced operator new counts allocations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "wideep/balancer.h"

namespace {

int64_t allocations = 0;

void* allocate(size_t size, size_t alignment) {
  ++allocations;
  const size_t whole = (size + alignment - 1) / alignment * alignment;
  void* found = std::aligned_alloc(alignment, whole == 0 ? alignment : whole);
  if (found == nullptr) std::abort();
  return found;
}

}  // namespace

// noinline: if gcc inlined only one of new and delete, it would warn that they do not match.
[[gnu::noinline]] void* operator new(size_t size) {
  return allocate(size, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, alignof(std::max_align_t));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace wideep::balance {
namespace {

// Calm and skewed loads, ties, zeros: plans with few links between ranks and with many.
std::vector<std::vector<double>> loads_of(int num_experts) {
  std::mt19937 random(1);
  std::vector<std::vector<double>> loads;
  for (int i = 0; i < 24; ++i) {
    std::lognormal_distribution<double> tokens(6.0, 0.1 * i);
    auto& load = loads.emplace_back();
    for (int e = 0; e < num_experts; ++e) load.push_back(std::floor(tokens(random)));
    if (i % 8 == 7) load.assign(load.size(), 5.0);
    if (i % 8 == 6) std::fill_n(load.begin(), load.size() / 2, 0.0);
  }
  return loads;
}

// Allocations of call(i) for i = 1, 2, ...; the first one is free to allocate.
template <typename Call>
int64_t allocations_after_first(size_t calls, Call call) {
  call(size_t{0});
  const int64_t before = allocations;
  for (size_t i = 1; i < calls; ++i) call(i);
  return allocations - before;
}

const std::vector<PlanShape>& shapes() {
  static const std::vector<PlanShape> all = {
      {.num_experts = 64, .ep_size = 8, .num_slots = 72},   // a ring
      {.num_experts = 64, .ep_size = 8, .num_slots = 128},  // many laps
      {.num_experts = 64, .ep_size = 8, .num_slots = 64},   // no spare slot
      {.num_experts = 20, .ep_size = 16, .num_slots = 32},  // two slots per rank
      {.num_experts = 40, .ep_size = 16, .num_slots = 48},  // few slots, components of ranks
      {.num_experts = 64, .ep_size = 24, .num_slots = 72},  // components of ranks
      {.num_experts = 8, .ep_size = 1, .num_slots = 8},
  };
  return all;
}

TEST(NoAllocation, PlannerWideep) {
  for (const PlanShape& shape : shapes()) {
    for (const Split split : {Split::kEqual, Split::kWeighted}) {
      const auto planner = make_planner("wideep", shape, {.split = split}).value();
      const auto loads = loads_of(shape.num_experts);
      LayerPlan plan;
      EXPECT_EQ(
          allocations_after_first(loads.size(), [&](size_t i) { planner->plan(loads[i], &plan); }),
          0)
          << shape.num_slots << " slots on " << shape.ep_size;
    }
  }
}

TEST(NoAllocation, ResplitAndResetForPlacementsOfTheSameSizes) {
  for (const PlanShape& shape : shapes()) {
    const auto planner = make_planner("wideep", shape, {}).value();
    const auto loads = loads_of(shape.num_experts);
    std::vector<LayerPlan> plans(loads.size());
    for (size_t i = 0; i < loads.size(); ++i) planner->plan(loads[i], &plans[i]);
    Resplitter resplitter;
    std::vector<double> shares(static_cast<size_t>(shape.num_slots));
    EXPECT_EQ(allocations_after_first(loads.size(),
                                      [&](size_t i) {
                                        resplitter.reset(plans[i].placement);
                                        resplitter.resplit(loads[loads.size() - 1 - i], shares);
                                      }),
              0)
        << shape.num_slots << " slots on " << shape.ep_size;
  }
}

TEST(NoAllocation, Repair) {
  for (const PlanShape& shape : shapes()) {
    const auto planner = make_planner("wideep", shape, {}).value();
    const auto loads = loads_of(shape.num_experts);
    std::vector<LayerPlan> plans(loads.size());
    for (size_t i = 0; i < loads.size(); ++i) planner->plan(loads[i], &plans[i]);
    for (const Split split : {Split::kEqual, Split::kWeighted}) {
      const auto repairer = make_repairer(shape, {.split = split, .tolerance = 0.0}).value();
      LayerPlan repaired;
      EXPECT_EQ(allocations_after_first(loads.size(),
                                        [&](size_t i) {
                                          const auto& later = loads[(i + 1) % loads.size()];
                                          repairer->repair(later, plans[i], &repaired);
                                        }),
                0)
          << shape.num_slots << " slots on " << shape.ep_size
          << (split == Split::kEqual ? ", equal" : ", weighted");
    }
  }
}

}  // namespace
}  // namespace wideep::balance
