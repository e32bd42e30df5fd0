// SPDX-License-Identifier: Apache-2.0
//
// What rounding leaves goes from call to call, so that a case has several calls: given shares need
// many until tokens are taken back from a replica. For the choice by counts some experts are hot on
// all ranks, and half of the placements join the ranks in rings, some with a part of many cycles,
// where shares are hardest to find. No combine ends a call there: the device's count of calls is
// written by hand, since its kernels go by it.
#include "cuda/choose_slots_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/try.h"
#include "cuda/counted_replicas.h"
#include "ep/slot_choice.h"

namespace wideep::cuda {
namespace {

int draw(std::mt19937_64& random, int min, int max) {
  return min + static_cast<int>(random() % static_cast<uint64_t>(max - min + 1));
}

std::vector<int32_t> random_experts(const ChoiceCase& c, int num_tokens, std::mt19937_64& random) {
  std::vector<int32_t> all(static_cast<size_t>(c.shape.num_experts)), chosen;
  std::iota(all.begin(), all.end(), 0);
  for (int t = 0; t < num_tokens; ++t) {
    if (t % 3 != 0) std::shuffle(all.begin(), all.end(), random);  // some tokens are hot
    chosen.insert(chosen.end(), all.begin(), all.begin() + c.shape.top_k);
  }
  return chosen;
}

// Enough that tokens have to be taken back from a replica (ep::round_with_credit).
constexpr int kCalls = 12;

// One call: what the CPU chooses, and where the device writes its choice.
struct Call {
  std::vector<int32_t> expected;
  int32_t* slots = nullptr;
};

Result<int32_t*> upload(Devices& devices, int rank, const std::vector<int32_t>& values) {
  const size_t num_bytes = values.size() * sizeof(int32_t);
  WIDEEP_TRY_ASSIGN(std::byte* const memory, devices.allocate(rank, num_bytes + 4, false));
  WIDEEP_TRY(devices.write(rank, memory, values.data(), num_bytes));
  return reinterpret_cast<int32_t*>(memory);
}

Result<Call> launch_call(Devices& devices, const ChoiceCase& c, ep::SlotChooser& chooser,
                         DispatchCombine& me, const ReplicaTable& table, std::mt19937_64& random) {
  const int n = draw(random, 0, c.shape.max_tokens);
  const std::vector<int32_t> experts = random_experts(c, n, random);
  std::vector<int32_t> counts(static_cast<size_t>(c.shape.num_experts));
  for (const int32_t expert : experts) ++counts[static_cast<size_t>(expert)];
  Call call;
  call.expected.resize(experts.size());
  chooser.split_by_given_shares(0, counts);
  chooser.choose(0, experts, call.expected);
  WIDEEP_TRY_ASSIGN(const int32_t* const num_tokens, upload(devices, c.rank, {n}));
  WIDEEP_TRY_ASSIGN(const int32_t* const on_device, upload(devices, c.rank, experts));
  WIDEEP_TRY_ASSIGN(call.slots, upload(devices, c.rank, std::vector<int32_t>(experts.size())));
  devices.forget(call.slots, experts.size() * sizeof(int32_t));
  WIDEEP_TRY(me.choose_slots(table, num_tokens, on_device, call.slots));
  return call;
}

}  // namespace

ChoiceCase random_choice(uint64_t seed) {
  std::mt19937_64 random(seed);
  ChoiceCase c;
  c.seed = seed;
  c.shape = {.ep_size = draw(random, 1, 5),
             .slots_per_rank = draw(random, 1, 6),
             .row_bytes = 16,
             .result_bytes = 16};
  const int num_slots = c.shape.num_slots();
  c.shape.num_experts = draw(random, 1, random() % 2 == 0 ? num_slots : (num_slots + 7) / 8);
  c.shape.top_k = draw(random, 1, std::min(c.shape.num_experts, 8));
  c.shape.max_tokens = draw(random, 1, random() % 2 == 0 ? 60 : 3);
  c.rank = draw(random, 0, c.shape.ep_size - 1);
  c.num_index_threads = kWarpSize * draw(random, 1, 3);
  c.placement.num_experts = c.shape.num_experts;
  c.placement.ep_size = c.shape.ep_size;
  std::vector<int32_t>& experts = c.placement.slot_to_expert;
  for (int slot = 0; slot < num_slots; ++slot) {
    experts.push_back(slot < c.shape.num_experts ? slot : draw(random, 0, c.shape.num_experts - 1));
  }
  std::shuffle(experts.begin(), experts.end(), random);
  // The shares of an expert's replicas have the sum 1.
  std::vector<double> sums(static_cast<size_t>(c.shape.num_experts));
  for (const int32_t expert : experts) {
    const double share = draw(random, 1, 10);
    c.shares.push_back(share * share * share * share);  // some replicas get nearly nothing
    sums[static_cast<size_t>(expert)] += c.shares.back();
  }
  for (size_t slot = 0; slot < experts.size(); ++slot) {
    c.shares[slot] /= sums[static_cast<size_t>(experts[slot])];
  }
  return c;
}

Status play_choice(Devices& devices, const ChoiceCase& c) {
  std::mt19937_64 random(c.seed + 1);
  ep::SlotChooser chooser({.ep_size = c.shape.ep_size,
                           .num_experts = c.shape.num_experts,
                           .slots_per_rank = c.shape.slots_per_rank,
                           .top_k = c.shape.top_k,
                           .max_tokens = c.shape.max_tokens},
                          c.rank);
  chooser.set_placement(0, c.placement, c.shares);
  WIDEEP_TRY_ASSIGN(
      std::vector<DispatchCombine> ranks,
      DispatchCombine::create_all(
          devices, c.shape, {.num_threads = kWarpSize, .num_index_threads = c.num_index_threads}));
  DispatchCombine& me = ranks[static_cast<size_t>(c.rank)];
  WIDEEP_TRY_ASSIGN(const ReplicaTable table, me.upload(chooser.replica_table(0)));
  // Several calls: what rounding leaves goes on to the next one.
  std::vector<Call> calls;
  for (int call = 0; call < kCalls; ++call) {
    WIDEEP_TRY_ASSIGN(Call launched, launch_call(devices, c, chooser, me, table, random));
    calls.push_back(std::move(launched));
  }
  WIDEEP_TRY(devices.finish());
  for (size_t call = 0; call < calls.size(); ++call) {
    const std::vector<int32_t>& expected = calls[call].expected;
    std::vector<int32_t> found(expected.size());
    const size_t num_bytes = found.size() * sizeof(int32_t);
    if (!devices.is_written(calls[call].slots, num_bytes)) return failed("a token without slot");
    WIDEEP_TRY(devices.read(c.rank, found.data(), calls[call].slots, num_bytes));
    if (found != expected)
      return failed(fmt::format("choice {}: other slots in call {}", c.seed, call));
  }
  return {};
}

namespace {

ep::DispatchShape cpu_shape(const ChoiceCase& c) {
  return {.ep_size = c.shape.ep_size,
          .num_experts = c.shape.num_experts,
          .slots_per_rank = c.shape.slots_per_rank,
          .top_k = c.shape.top_k,
          .max_tokens = c.shape.max_tokens,
          .num_nodes = c.shape.ep_size / c.ranks_per_node};
}

balance::Placement random_placement(int ep_size, std::mt19937_64& random) {
  const int num_slots = ep_size * draw(random, 1, 5);
  balance::Placement placement{.num_experts = draw(random, std::max(1, num_slots / 4), num_slots),
                               .ep_size = ep_size,
                               .slot_to_expert = {}};
  // With few experts for the other slots, components with many cycles.
  const int max = random() % 2 == 0 ? placement.num_experts : (placement.num_experts + 3) / 4;
  for (int slot = 0; slot < num_slots; ++slot) {
    const bool is_first = slot < placement.num_experts;
    placement.slot_to_expert.push_back(is_first ? slot : draw(random, 0, max - 1));
    if (!is_first && random() % 8 == 0) placement.slot_to_expert.back() = balance::kUnusedSlot;
  }
  std::shuffle(placement.slot_to_expert.begin(), placement.slot_to_expert.end(), random);
  return placement;
}

// Every rank has an expert of its own, and one together with the next rank around a ring. Maybe
// three more ranks have the same two experts, so that their part of the graph has many cycles.
balance::Placement placement_of_rings(int ep_size, std::mt19937_64& random) {
  const int others = ep_size > 4 && random() % 2 == 0 ? 3 : 0;
  const int ring = ep_size - others;
  balance::Placement placement{.num_experts = 2 * ring + others + (others > 0 ? 2 : 0),
                               .ep_size = ep_size,
                               .slot_to_expert = {}};
  for (int rank = 0; rank < ep_size; ++rank) {
    const bool is_other = rank >= ring;
    const std::vector<int32_t> experts =
        is_other ? std::vector{2 * ring + rank - ring, 2 * ring + others, 2 * ring + others + 1}
                 : std::vector{rank, ring + rank, ring + (rank + 1) % ring};
    placement.slot_to_expert.insert(placement.slot_to_expert.end(), experts.begin(), experts.end());
  }
  return placement;
}

// One rank that chooses by counts, on the CPU and on its device.
struct CountingRank {
  ep::SlotChooser chooser;
  DispatchCombine& device;
  CountedReplicas replicas;
  // Of a call, at last on the device.
  std::vector<int32_t> experts;
  const int32_t* num_tokens = nullptr;
  const int32_t* experts_on_device = nullptr;
  int32_t* slots = nullptr;
};

// Most tokens of a call choose the same experts on all ranks, so that some ranks are hot.
std::vector<int32_t> skewed_experts(const ChoiceCase& c, int num_tokens,
                                    const std::vector<int32_t>& hot, std::mt19937_64& random) {
  std::vector<int32_t> all = hot, chosen;
  for (int t = 0; t < num_tokens; ++t) {
    if (random() % 4 == 0) {
      std::shuffle(all.begin(), all.end(), random);
    } else {
      all = hot;
    }
    chosen.insert(chosen.end(), all.begin(), all.begin() + c.shape.top_k);
  }
  return chosen;
}

// All ranks' tokens of a call, their counts, and the launches. All is written first: kernels that
// wait for other ranks would hold up the host.
Result<std::vector<int32_t>> launch_counted(Devices& devices, const ChoiceCase& c,
                                            std::vector<CountingRank>& ranks,
                                            std::mt19937_64& random) {
  const auto num_experts = static_cast<size_t>(c.shape.num_experts);
  std::vector<int32_t> counts(ranks.size() * num_experts);
  const bool few = random() % 4 == 0, is_skewed = random() % 2 == 0;
  std::vector<int32_t> hot(num_experts);
  std::iota(hot.begin(), hot.end(), 0);
  std::shuffle(hot.begin(), hot.end(), random);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const int n = few ? draw(random, 0, 1) : draw(random, 0, c.shape.max_tokens);
    CountingRank& me = ranks[rank];
    me.experts = is_skewed ? skewed_experts(c, n, hot, random) : random_experts(c, n, random);
    for (const int32_t expert : me.experts) ++counts[rank * num_experts + size_t(expert)];
    const auto at = static_cast<int>(rank);
    WIDEEP_TRY_ASSIGN(me.num_tokens, upload(devices, at, {n}));
    WIDEEP_TRY_ASSIGN(me.experts_on_device, upload(devices, at, me.experts));
    WIDEEP_TRY_ASSIGN(me.slots, upload(devices, at, me.experts));
    devices.forget(me.slots, me.experts.size() * sizeof(int32_t));
  }
  for (CountingRank& me : ranks) {
    WIDEEP_TRY(me.device.prepare(me.num_tokens, me.experts_on_device, 0));
    WIDEEP_TRY(me.device.choose_slots_by_counts(me.replicas, me.num_tokens, me.experts_on_device,
                                                me.slots));
  }
  return counts;
}

Status compare_slots(Devices& devices, const ChoiceCase& c, int rank, int call, CountingRank& me,
                     const std::vector<int32_t>& counts) {
  std::vector<int32_t> expected(me.experts.size()), found(expected.size());
  me.chooser.split_by_counts(0, counts);
  me.chooser.choose(0, me.experts, expected);
  const size_t num_bytes = found.size() * sizeof(int32_t);
  if (!devices.is_written(me.slots, num_bytes)) return failed("a token without slot");
  WIDEEP_TRY(devices.read(rank, found.data(), me.slots, num_bytes));
  if (found == expected) return {};
  return failed(
      fmt::format("choice by counts {}: other slots in call {} on rank {}", c.seed, call, rank));
}

}  // namespace

ChoiceCase random_choice_by_counts(uint64_t seed) {
  std::mt19937_64 random(seed);
  ChoiceCase c;
  c.seed = seed;
  c.shape = {.ep_size = draw(random, 1, 8), .row_bytes = 16, .result_bytes = 16};
  c.placement = seed % 2 == 0 ? placement_of_rings(c.shape.ep_size, random)
                              : random_placement(c.shape.ep_size, random);
  c.shape.num_experts = c.placement.num_experts;
  c.shape.slots_per_rank = c.placement.slots_per_rank();
  c.shape.top_k = draw(random, 1, std::min(c.shape.num_experts, seed % 3 == 0 ? 6 : 2));
  c.shape.max_tokens = draw(random, 1, random() % 2 == 0 ? 40 : 4);
  c.num_index_threads = kWarpSize * draw(random, 1, 2);
  while (c.shape.ep_size % (c.ranks_per_node = draw(random, 1, c.shape.ep_size)) != 0) {
  }
  return c;
}

Status play_choice_by_counts(Devices& devices, const ChoiceCase& c) {
  std::mt19937_64 random(c.seed + 1);
  WIDEEP_TRY_ASSIGN(
      std::vector<DispatchCombine> exchanges,
      DispatchCombine::create_all(
          devices, c.shape, {.num_threads = kWarpSize, .num_index_threads = c.num_index_threads}));
  std::vector<CountingRank> ranks;
  for (int rank = 0; rank < c.shape.ep_size; ++rank) {
    WIDEEP_TRY_ASSIGN(const CountedReplicas replicas,
                      upload_replicas(devices, rank, c.shape, c.placement, c.ranks_per_node));
    ranks.push_back({.chooser = ep::SlotChooser(cpu_shape(c), rank),
                     .device = exchanges[static_cast<size_t>(rank)],
                     .replicas = replicas,
                     .experts = {}});
    ranks.back().chooser.set_placement(0, c.placement, {});
  }
  for (uint32_t call = 1; call <= 4; ++call) {
    WIDEEP_TRY_ASSIGN(const std::vector<int32_t> counts, launch_counted(devices, c, ranks, random));
    WIDEEP_TRY(devices.finish());
    for (int rank = 0; rank < c.shape.ep_size; ++rank) {
      CountingRank& me = ranks[static_cast<size_t>(rank)];
      WIDEEP_TRY(me.device.failure());
      WIDEEP_TRY(compare_slots(devices, c, rank, static_cast<int>(call), me, counts));
      // As if combine had ended the call.
      WIDEEP_TRY(devices.write(rank, &me.device.exchange().state->calls_done, &call, sizeof(call)));
    }
  }
  return {};
}

}  // namespace wideep::cuda
