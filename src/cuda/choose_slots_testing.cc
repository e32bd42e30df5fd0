// SPDX-License-Identifier: Apache-2.0
#include "cuda/choose_slots_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/try.h"
#include "ep/slot_choice.h"

namespace wideep::cuda {
namespace {

int draw(std::mt19937_64& random, int least, int most) {
  return least + static_cast<int>(random() % static_cast<uint64_t>(most - least + 1));
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

}  // namespace wideep::cuda
