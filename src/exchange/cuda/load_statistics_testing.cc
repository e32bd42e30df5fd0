// SPDX-License-Identifier: Apache-2.0
//
// Takes are launched before the iterations, on a stream of their own, so that chance decides when
// each comes. Whatever one has got must be the sum of exactly the iterations that follow those of
// the take before: none is lost and none counted twice. Three more takes at the end find what a
// hand-over came too early for, and then nothing. Ids that do not exist are among the tokens, and
// must not count. A failure means that experts are placed by loads that no tokens have made.
#include "cuda/load_statistics_testing.h"

#include <fmt/format.h>

#include <random>
#include <vector>

#include "base/try.h"
#include "cuda/load_statistics.h"

namespace wideep::cuda {
namespace {

int draw(std::mt19937_64& random, int min, int max) {
  return min + static_cast<int>(random() % static_cast<uint64_t>(max - min + 1));
}

std::vector<int32_t> random_ids(int count, int num_ids, std::mt19937_64& random) {
  std::vector<int32_t> ids;
  // Some do not exist, and are not counted.
  for (int i = 0; i < count; ++i) ids.push_back(draw(random, -1, num_ids));
  return ids;
}

Result<int32_t*> upload(Devices& devices, int rank, const std::vector<int32_t>& values) {
  const size_t num_bytes = values.size() * sizeof(int32_t);
  WIDEEP_TRY_ASSIGN(std::byte* const memory, devices.allocate(rank, num_bytes + 4, false));
  WIDEEP_TRY(devices.write(rank, memory, values.data(), num_bytes));
  return reinterpret_cast<int32_t*>(memory);
}

using Sums = std::vector<uint64_t>;  // as RankLoads::tokens

// A call's tokens on the device.
struct Call {
  const int32_t* num_tokens;
  const int32_t* experts;
  const int32_t* slots;
};

void add_plainly(const std::vector<int32_t>& ids, int num_ids, uint64_t* sums) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < num_ids) ++sums[id];
  }
}

// Uploads a call's tokens and adds them to the plain sums.
Result<Call> random_call(Devices& devices, const StatisticsCase& c, int layer, Sums* sums,
                         std::mt19937_64& random) {
  const int n = draw(random, 0, c.shape.max_tokens);
  const auto experts = random_ids(n * c.shape.top_k, c.shape.num_experts, random);
  const auto slots = random_ids(n * c.shape.top_k, c.shape.num_slots(), random);
  uint64_t* row = sums->data() + layer * (c.shape.num_experts + c.shape.num_slots());
  add_plainly(experts, c.shape.num_experts, row);
  add_plainly(slots, c.shape.num_slots(), row + c.shape.num_experts);
  Call call{};
  WIDEEP_TRY_ASSIGN(call.num_tokens, upload(devices, 0, {n}));
  WIDEEP_TRY_ASSIGN(call.experts, upload(devices, 0, experts));
  WIDEEP_TRY_ASSIGN(call.slots, upload(devices, 0, slots));
  return call;
}

// Adds what was taken to the iterations before, which have to follow one another.
Status check_taken(const RankLoads& loads, const std::vector<Sums>& iterations, int64_t* next) {
  if (loads.num_iterations == 0) return {};
  if (loads.first_iteration != *next) {
    return failed(
        fmt::format("taken from iteration {}, expected {}", loads.first_iteration, *next));
  }
  const int64_t end = *next + loads.num_iterations;
  Sums expected(loads.tokens.size());
  for (; *next < end; ++*next) {
    // Beyond the last there are iterations without tokens.
    if (*next >= static_cast<int64_t>(iterations.size())) continue;
    const Sums& iteration = iterations[static_cast<size_t>(*next)];
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += iteration[i];
  }
  if (loads.tokens != expected) {
    return failed(fmt::format("other sums, taken before iteration {}", *next));
  }
  return {};
}

}  // namespace

StatisticsCase random_statistics(uint64_t seed) {
  std::mt19937_64 random(seed);
  StatisticsCase c;
  c.seed = seed;
  c.shape = {.ep_size = draw(random, 1, 3),
             .num_experts = draw(random, 1, 40),
             .slots_per_rank = draw(random, 1, 20),
             .max_tokens = draw(random, 1, 20),
             .row_bytes = 16,
             .result_bytes = 16};
  c.shape.top_k = draw(random, 1, std::min(c.shape.num_slots(), 6));
  c.num_layers = draw(random, 1, 3);
  c.num_iterations = draw(random, 1, 8);
  c.num_takes = draw(random, 0, 8);
  c.num_threads = kWarpSize * draw(random, 1, 2);
  return c;
}

Status play_statistics(Devices& devices, const StatisticsCase& c) {
  std::mt19937_64 random(c.seed + 1);
  const int balancer = c.shape.ep_size;
  WIDEEP_TRY_ASSIGN(const std::vector<DispatchCombine> ranks,
                    DispatchCombine::create_all(devices, c.shape, {}));
  WIDEEP_TRY_ASSIGN(LoadStatistics statistics, LoadStatistics::create(devices, ranks[0].exchange(),
                                                                      c.num_layers, c.num_threads));
  std::vector<Sums> iterations;
  std::vector<std::vector<Call>> calls;  // [num_iterations, num_layers · 2]
  for (int i = 0; i < c.num_iterations; ++i) {
    iterations.emplace_back(
        static_cast<size_t>(c.num_layers * (c.shape.num_experts + c.shape.num_slots())));
    calls.emplace_back();
    for (int call = 0; call < 2 * c.num_layers; ++call) {
      WIDEEP_TRY_ASSIGN(const Call made,
                        random_call(devices, c, call % c.num_layers, &iterations.back(), random));
      calls.back().push_back(made);
    }
  }
  std::vector<LoadStatistics::Taken> taken;
  for (int i = 0; i < c.num_takes + 3; ++i) {
    WIDEEP_TRY_ASSIGN(const LoadStatistics::Taken to, statistics.allocate_taken());
    taken.push_back(to);
    // A take without news has to say so.
    const TakenLoads old{.first_iteration = 0, .num_iterations = 7};
    WIDEEP_TRY(devices.write(balancer, to.loads, &old, sizeof(old)));
  }
  for (int i = 0; i < c.num_takes; ++i) {
    WIDEEP_TRY(statistics.take(balancer, taken[static_cast<size_t>(i)]));
  }
  for (const std::vector<Call>& iteration : calls) {
    for (int call = 0; call < 2 * c.num_layers; ++call) {
      const Call& tokens = iteration[static_cast<size_t>(call)];
      WIDEEP_TRY(
          statistics.count(tokens.num_tokens, tokens.experts, tokens.slots, call % c.num_layers));
    }
    WIDEEP_TRY(statistics.end_iteration());
  }
  WIDEEP_TRY(devices.finish());
  // What is left, even what the last hand-over came too early for; then there is nothing more.
  for (size_t i = static_cast<size_t>(c.num_takes); i < taken.size(); ++i) {
    WIDEEP_TRY(statistics.take(balancer, taken[i]));
    WIDEEP_TRY(devices.finish());
    if (i + 2 < taken.size()) WIDEEP_TRY(statistics.end_iteration());
    WIDEEP_TRY(devices.finish());
  }
  int64_t next = 0;
  for (const LoadStatistics::Taken& each : taken) {
    WIDEEP_TRY_ASSIGN(const RankLoads loads, statistics.read(balancer, each));
    WIDEEP_TRY(check_taken(loads, iterations, &next));
  }
  // One iteration ends after the last ones have been taken.
  if (next != c.num_iterations + 1) {
    return failed(fmt::format("{} iterations taken, expected {}", next, c.num_iterations + 1));
  }
  return {};
}

}  // namespace wideep::cuda
