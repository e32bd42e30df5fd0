// SPDX-License-Identifier: Apache-2.0
//
// Simulated annealing on the 32-norm of the loads per rank, since most moves leave the maximum as
// it is and would look equally good. A try costs two powers and no sorting: components keep their
// load and cost, which are computed anew after each 256 tries so that rounding does not add up.
// The hot side of a try is the hottest of five draws. A short search first says whether a long one
// can beat what there is; usually it cannot, and time is spent only where it can.
#include "plan/placement_components.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace wideep::balance {
namespace {

// The search sees the 32-norm of loads per rank: most moves leave the maximum as it is.
constexpr double kNorm = 32.0;
// Time is bounded: 200 tries a slot take three times as long as 60 and bring 0.3 of 11.5 % more
// (144 ranks of two slots); the short search takes a tenth of that, and on 72 ranks of four finds
// that no component plan is near what there is (2.0 against 0.15 %).
constexpr int64_t kMinTries = 20000, kTriesPerSlot = 60;
constexpr int64_t kShortTries = 2000, kShortTriesPerSlot = 8;
// A long search lowers what a short one leaves by a tenth, hardly ever by more than a fifth.
constexpr double kHopeful = 1.25;
constexpr int kTriesPerRefresh = 256;
// As in window_counts.cc.
constexpr double kFirstTemperature = 40.0;  // / (number of slots)²
constexpr double kLastTemperature = 5e-6, kMinCooling = 0.01;
constexpr double kPerfect = 1e-9;
constexpr int kDrawsOfHot = 5;

double power(double x) {
  for (int i = 0; i < 5; ++i) x *= x;
  return x;
}

PlanShape shape_of_component(int ranks, const PlanShape& shape) {
  const int per_rank = shape.slots_per_rank();
  return {
      .num_experts = ranks * (per_rank - 1) + 1, .ep_size = ranks, .num_slots = ranks * per_rank};
}

}  // namespace

ComponentPlacer::ComponentPlacer(const PlanShape& shape)
    : shape_(shape),
      per_rank_(static_cast<size_t>(shape.slots_per_rank())),
      load_(static_cast<size_t>(shape.num_experts)),
      by_load_(load_.size()),
      components_(static_cast<size_t>(shape.ep_size - (shape.num_slots - shape.num_experts))),
      exact_(shape_of_component(shape.num_slots - shape.num_experts + 1, shape)) {
  WIDEEP_CHECK(components_are_needed(shape));
  // As many as there can be, so that place() does not allocate after its first call.
  part_load_.reserve(load_.size());
  part_.placement.slot_to_expert.reserve(static_cast<size_t>(shape.num_slots));
  part_.shares.reserve(static_cast<size_t>(shape.num_slots));
  for (Component& component : components_) component.experts.reserve(load_.size());
  best_ = components_;
  for (Component& component : best_) component.experts.reserve(load_.size());
}

bool ComponentPlacer::place(std::span<const double> load, LayerPlan* plan, double to_beat) {
  set_load(load);
  if (to_beat < std::numeric_limits<double>::infinity()) {
    start();
    const double left = search(std::max(kShortTries, kShortTriesPerSlot * shape_.num_slots)) - 1.0;
    if (left > kHopeful * to_beat) return false;
  }
  start();
  search(std::max(kMinTries, kTriesPerSlot * shape_.num_slots));
  write(load, plan);
  return true;
}

void ComponentPlacer::set_load(std::span<const double> load) {
  const double total = std::accumulate(load.begin(), load.end(), 0.0);
  const double scale = total > 0.0 ? shape_.ep_size / total : 0.0;
  for (size_t e = 0; e < load.size(); ++e) load_[e] = load[e] * scale;
  std::iota(by_load_.begin(), by_load_.end(), 0);
  std::sort(by_load_.begin(), by_load_.end(), [&](int32_t a, int32_t b) {
    const double load_a = load_[static_cast<size_t>(a)], load_b = load_[static_cast<size_t>(b)];
    return load_a != load_b ? load_a > load_b : a < b;
  });
}

// The heaviest experts, one in each component, decide how many ranks it has; the others follow,
// heaviest first, to the component whose free places must carry most each.
void ComponentPlacer::start() {
  for (size_t c = 0; c < components_.size(); ++c) {
    components_[c].experts.assign(1, by_load_[c]);
    components_[c].ranks = 1;
    components_[c].load = load_[static_cast<size_t>(by_load_[c])];
  }
  for (int extra = shape_.num_experts; extra < shape_.num_slots; ++extra) {
    const auto hottest = std::max_element(
        components_.begin(), components_.end(),
        [](const Component& a, const Component& b) { return a.load * b.ranks < b.load * a.ranks; });
    ++hottest->ranks;
  }
  const auto lacks = [&](const Component& component) {
    const size_t places = static_cast<size_t>(component.ranks) * (per_rank_ - 1) + 1;
    const auto free = static_cast<double>(places - component.experts.size());
    return free > 0.0 ? (component.ranks - component.load) / free
                      : -std::numeric_limits<double>::infinity();
  };
  for (size_t i = components_.size(); i < by_load_.size(); ++i) {
    const auto best = std::max_element(
        components_.begin(), components_.end(),
        [&](const Component& a, const Component& b) { return lacks(a) < lacks(b); });
    best->experts.push_back(by_load_[i]);
    best->load += load_[static_cast<size_t>(by_load_[i])];
  }
}

// Returns the load per rank of the hottest component; the mean is 1.
double ComponentPlacer::search(int64_t tries) {
  random_ = 88172645463325252u;
  refresh();
  best_ = components_;
  double min = unit_;
  const auto slots = static_cast<double>(shape_.num_slots);
  temperature_ = kFirstTemperature / (slots * slots);
  const double cooling =
      std::pow(std::min(kMinCooling, kLastTemperature / temperature_),
               static_cast<double>(kTriesPerRefresh) / static_cast<double>(tries));
  for (int64_t done = 0; done < tries && min > 1.0 + kPerfect; done += kTriesPerRefresh) {
    for (int i = 0; i < kTriesPerRefresh; ++i) {
      Component& hot = components_[draw_hot()];
      Component& other = components_[draw(components_.size())];
      if (&hot == &other) continue;
      if (draw(4) != 0) {
        try_swap(hot, other);
      } else {
        try_rank(hot, other);
      }
    }
    refresh();
    if (unit_ < min) {
      min = unit_;
      best_ = components_;
    }
    temperature_ *= cooling;
  }
  return min;
}

// Sums and costs anew, so that rounding does not add up.
void ComponentPlacer::refresh() {
  for (Component& component : components_) {
    component.load = 0.0;
    for (const int32_t expert : component.experts) {
      component.load += load_[static_cast<size_t>(expert)];
    }
  }
  unit_ = hottest();
  sum_ = 0.0;
  for (Component& component : components_) {
    component.cost = cost(component.load, component.ranks);
    sum_ += component.cost;
  }
}

double ComponentPlacer::hottest() const {
  double max = 0.0;
  for (const Component& component : components_) {
    max = std::max(max, component.load / component.ranks);
  }
  return max;
}

double ComponentPlacer::cost(double load, int ranks) const {
  return unit_ > 0.0 ? power(load / (ranks * unit_)) : 0.0;
}

bool ComponentPlacer::accept(double change) {
  if (change > 0.0) {
    const double steps = (std::pow(1.0 + change / sum_, 1.0 / kNorm) - 1.0) / temperature_;
    constexpr double kOne = 1u << 20;
    if (!(static_cast<double>(draw(1u << 20)) < std::exp(-steps) * kOne)) return false;
  }
  sum_ += change;
  return true;
}

// Xorshift.
size_t ComponentPlacer::draw(size_t below) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return ((random_ >> 32) * below) >> 32;
}

size_t ComponentPlacer::draw_hot() {
  size_t hot = draw(components_.size());
  for (int i = 1; i < kDrawsOfHot; ++i) {
    const size_t c = draw(components_.size());
    if (components_[c].cost > components_[hot].cost) hot = c;
  }
  return hot;
}

void ComponentPlacer::try_swap(Component& hot, Component& other) {
  int32_t& leaves = hot.experts[draw(hot.experts.size())];
  int32_t& comes = other.experts[draw(other.experts.size())];
  const double moved = load_[static_cast<size_t>(leaves)] - load_[static_cast<size_t>(comes)];
  const double hot_cost = cost(hot.load - moved, hot.ranks);
  const double other_cost = cost(other.load + moved, other.ranks);
  if (!accept(hot_cost + other_cost - hot.cost - other.cost)) return;
  std::swap(leaves, comes);
  hot.load -= moved;
  other.load += moved;
  hot.cost = hot_cost;
  other.cost = other_cost;
}

// The other component gives a rank and K - 1 experts, drawn to the end of its list.
void ComponentPlacer::try_rank(Component& hot, Component& other) {
  if (other.ranks == 1) return;
  const size_t moving = per_rank_ - 1, count = other.experts.size();
  double moved = 0.0;
  for (size_t i = 1; i <= moving; ++i) {
    std::swap(other.experts[draw(count - i + 1)], other.experts[count - i]);
    moved += load_[static_cast<size_t>(other.experts[count - i])];
  }
  const double hot_cost = cost(hot.load + moved, hot.ranks + 1);
  const double other_cost = cost(other.load - moved, other.ranks - 1);
  if (!accept(hot_cost + other_cost - hot.cost - other.cost)) return;
  const auto first = other.experts.end() - static_cast<std::ptrdiff_t>(moving);
  hot.experts.insert(hot.experts.end(), first, other.experts.end());
  other.experts.erase(first, other.experts.end());
  ++hot.ranks;
  --other.ranks;
  hot.load += moved;
  other.load -= moved;
  hot.cost = hot_cost;
  other.cost = other_cost;
}

void ComponentPlacer::write(std::span<const double> load, LayerPlan* plan) {
  plan->placement.num_experts = shape_.num_experts;
  plan->placement.ep_size = shape_.ep_size;
  plan->placement.slot_to_expert.resize(static_cast<size_t>(shape_.num_slots));
  plan->shares.resize(static_cast<size_t>(shape_.num_slots));
  size_t slot = 0;
  for (const Component& component : best_) {
    write(component, load, slot, plan);
    slot += static_cast<size_t>(component.ranks) * per_rank_;
  }
}

void ComponentPlacer::write(const Component& component, std::span<const double> load, size_t slot,
                            LayerPlan* plan) {
  exact_.set_shape(shape_of_component(component.ranks, shape_));
  part_load_.clear();
  for (const int32_t expert : component.experts) {
    part_load_.push_back(load[static_cast<size_t>(expert)]);
  }
  exact_.place(part_load_, &part_);
  for (size_t i = 0; i < part_.shares.size(); ++i, ++slot) {
    const auto expert = static_cast<size_t>(part_.placement.slot_to_expert[i]);
    plan->placement.slot_to_expert[slot] = component.experts[expert];
    plan->shares[slot] = part_.shares[i];
  }
}

}  // namespace wideep::balance
