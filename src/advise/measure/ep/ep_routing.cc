// SPDX-License-Identifier: Apache-2.0
#include "measure/ep/ep_routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace wideep::measure {
namespace {

constexpr EpRouting kRoutings[] = {EpRouting::kRandom, EpRouting::kHot, EpRouting::kSpread};

// splitmix64 (Steele, Lea, Flood 2014): the same on every machine and standard library, unlike the
// distributions of <random>.
class Random {
 public:
  Random(const EpGroup& group, int rank, uint64_t stream)
      : state_(group.seed * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(rank) * 2 + stream) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int below(int bound) { return static_cast<int>(next() % static_cast<uint64_t>(bound)); }

 private:
  uint64_t state_;
};

// Moves top_k random experts to the front: the first top_k steps of a Fisher-Yates shuffle.
void shuffle_front(std::vector<int32_t>& experts, int top_k, Random& random) {
  const int size = static_cast<int>(experts.size());
  for (int k = 0; k < top_k; ++k) std::swap(experts[k], experts[k + random.below(size - k)]);
}

// The k-th expert of a spread token: its ranks start at a random one and are num_ranks / top_k
// apart. If there are fewer ranks than top_k, the ranks repeat with the next slot.
int32_t spread_expert(const EpGroup& group, int first, int k) {
  const int apart = std::max(1, group.num_ranks / group.top_k);
  const int rank = (first + k * apart) % group.num_ranks;
  return rank * group.slots_per_rank() + k / group.num_ranks;
}

}  // namespace

std::string_view routing_name(EpRouting routing) {
  if (routing == EpRouting::kRandom) return "random";
  return routing == EpRouting::kHot ? "hot" : "spread";
}

Result<EpRouting> routing_of(const std::string& name) {
  for (const EpRouting routing : kRoutings) {
    if (routing_name(routing) == name) return routing;
  }
  return invalid_input(
      fmt::format("--routing: expected random, hot or spread, found \"{}\"", name));
}

std::vector<int32_t> route_tokens(const EpGroup& group, int rank, int num_tokens) {
  WIDEEP_CHECK_LE(group.top_k, group.num_experts);
  Random random(group, rank, 0);
  std::vector<int32_t> experts(static_cast<size_t>(group.num_experts)), chosen;
  std::iota(experts.begin(), experts.end(), 0);
  for (int token = 0; token < num_tokens; ++token) {
    if (group.routing == EpRouting::kRandom) shuffle_front(experts, group.top_k, random);
    if (group.routing == EpRouting::kSpread) {
      const int first = random.below(group.num_ranks);
      for (int k = 0; k < group.top_k; ++k) experts[k] = spread_expert(group, first, k);
    }
    chosen.insert(chosen.end(), experts.begin(), experts.begin() + group.top_k);
  }
  return chosen;
}

std::vector<float> weigh_tokens(const EpGroup& group, int rank, int num_tokens) {
  Random random(group, rank, 1);
  std::vector<float> weights(static_cast<size_t>(num_tokens) * group.top_k);
  for (int token = 0; token < num_tokens; ++token) {
    float* row = weights.data() + static_cast<size_t>(token) * group.top_k;
    for (int k = 0; k < group.top_k; ++k) row[k] = static_cast<float>(1 + random.below(100));
    const float sum = std::accumulate(row, row + group.top_k, 0.0f);
    for (int k = 0; k < group.top_k; ++k) row[k] /= sum;
  }
  return weights;
}

}  // namespace wideep::measure
