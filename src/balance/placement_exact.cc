// SPDX-License-Identifier: Apache-2.0
#include "balance/placement_exact.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace wideep::balance {
namespace {

constexpr int32_t kEmpty = -1;

struct Item {
  double load;  // of the expert, what no rank has taken yet
  int32_t expert;
};

bool lighter(const Item& a, const Item& b) {
  return a.load != b.load ? a.load < b.load : a.expert < b.expert;
}

// What a slot carries, in tokens.
struct Part {
  int32_t expert;
  double load;
};

// The items that no rank has taken, ascending.
class Pile {
 public:
  Pile(std::span<const double> load, size_t num_items) {
    items_.assign(num_items, Item{0.0, kEmpty});
    for (size_t e = 0; e < load.size(); ++e) items_[e] = {load[e], static_cast<int32_t>(e)};
    std::sort(items_.begin(), items_.end(), lighter);
  }

  // Fills a rank to `target` with `whole` whole items and a part of the heaviest.
  void take_rank(size_t whole, double target, std::vector<Part>* parts) {
    const size_t first = window(whole, target);
    double sum = 0;
    for (size_t i = first; i < first + whole; ++i) {
      parts->push_back({items_[i].expert, items_[i].load});
      sum += items_[i].load;
    }
    Item heaviest = items_.back();
    const double part = std::clamp(target - sum, 0.0, heaviest.load);
    parts->push_back({heaviest.expert, part});
    items_.pop_back();
    items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(first),
                 items_.begin() + static_cast<std::ptrdiff_t>(first + whole));
    heaviest.load -= part;
    items_.insert(std::upper_bound(items_.begin(), items_.end(), heaviest, lighter), heaviest);
  }

  void take_all(std::vector<Part>* parts) {
    for (const Item& item : items_) parts->push_back({item.expert, item.load});
  }

 private:
  // The first run of `whole` items that reaches the target together with the heaviest.
  size_t window(size_t whole, double target) const {
    const double wanted = target - items_.back().load;
    double sum = 0;
    for (size_t i = 0; i < whole; ++i) sum += items_[i].load;
    size_t first = 0;
    while (sum < wanted && first + whole + 1 < items_.size()) {
      sum += items_[first + whole].load - items_[first].load;
      ++first;
    }
    return first;
  }

  std::vector<Item> items_;
};

std::vector<Part> split_exactly(std::span<const double> load, const PlanShape& shape) {
  const auto ranks = static_cast<size_t>(shape.ep_size);
  const auto whole = static_cast<size_t>(shape.slots_per_rank() - 1);
  const double total = std::accumulate(load.begin(), load.end(), 0.0);
  Pile pile(load, ranks * whole + 1);
  std::vector<Part> parts;  // [S]
  for (size_t rank = 0; rank + 1 < ranks; ++rank) {
    pile.take_rank(whole, total / static_cast<double>(ranks), &parts);
  }
  pile.take_all(&parts);
  return parts;
}

// The heaviest expert that the rank lacks.
int32_t expert_for_empty_slot(std::span<const Part> rank, std::span<const int32_t> by_load) {
  const auto lacks = [&](int32_t expert) {
    return std::none_of(rank.begin(), rank.end(),
                        [&](const Part& p) { return p.expert == expert; });
  };
  return *std::find_if(by_load.begin(), by_load.end(), lacks);
}

void fill_empty_slots(std::span<const double> load, size_t slots_per_rank,
                      std::vector<Part>* parts) {
  std::vector<int32_t> by_load(load.size());
  std::iota(by_load.begin(), by_load.end(), 0);
  std::sort(by_load.begin(), by_load.end(), [&](int32_t a, int32_t b) {
    const double load_a = load[static_cast<size_t>(a)], load_b = load[static_cast<size_t>(b)];
    return load_a != load_b ? load_a > load_b : a < b;
  });
  for (size_t slot = 0; slot < parts->size(); ++slot) {
    if ((*parts)[slot].expert != kEmpty) continue;
    const size_t first = slot / slots_per_rank * slots_per_rank;
    (*parts)[slot].expert =
        expert_for_empty_slot(std::span(*parts).subspan(first, slots_per_rank), by_load);
  }
}

}  // namespace

void place_exact(std::span<const double> load, const PlanShape& shape, LayerPlan* plan) {
  WIDEEP_CHECK(exact_placement_exists(shape));
  std::vector<Part> parts = split_exactly(load, shape);
  fill_empty_slots(load, static_cast<size_t>(shape.slots_per_rank()), &parts);
  plan->placement = {shape.num_experts, shape.ep_size, {}};
  for (const Part& part : parts) plan->placement.slot_to_expert.push_back(part.expert);
  plan->shares = equal_shares(plan->placement);  // for experts without load
  for (size_t slot = 0; slot < parts.size(); ++slot) {
    const double tokens = load[static_cast<size_t>(parts[slot].expert)];
    if (tokens > 0.0) plan->shares[slot] = parts[slot].load / tokens;
  }
}

}  // namespace wideep::balance
