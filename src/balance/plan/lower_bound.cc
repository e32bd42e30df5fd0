// SPDX-License-Identifier: Apache-2.0
//
// A proven lower bound for the imbalance of any placement. It distinguishes a poor planner from a
// load that no placement can balance better.
//
// Valid placements: every expert has a slot, every rank has K = S / R slots, no two replicas of an
// expert on one rank; with groups and nodes, G / N groups on each node. Let T = total / R, X = S −
// E the extra replicas, w_e the loads. All arguments take a level L and show that no placement
// keeps every rank at or below L; bisection finds the largest such L.
//
// Equal split. Expert e has r_e replicas of v_e = w_e / r_e, Σ r_e = S.
//   needs    A rank with a replica of e holds K − 1 others, which weigh ≥ s: r_e ≥ n_e =
//            ceil(w_e / (L − s)). If Σ (n_e − 1) > X, L is impossible. Of the extras x = X −
//            Σ (n_e − 1) remain, so for any price λ ≥ 0 per extra, k replicas of different experts
//            weigh ≥ (sum of the k smallest min_a [w_e / (n_e + a) + λ·a]) − λ·x =: light(k):
//            the loophole of making light replicas lighter is paid for. s = light(K − 1), repeated.
//   rules    A function φ with Σ φ(v) ≤ c over the replicas of any rank of load ≤ L gives
//            Σ_e r_e·φ(v_e) ≤ c·R. The left side is, for any λ, at least
//            Σ_e min_{r ≥ n_e} [r·φ(w_e / r) + λ·r] − λ·S. The rules:
//            crowding  φ = [v ≥ θ], c = m, where (m + 1)·θ + light(K − m − 1) > L: no m + 1 such
//                      replicas fit a rank.
//            pairing   φ = j·[v ≥ θ] − [v ≤ (L − θ) / (K − j)], c = 0, where two replicas ≥ θ do
//                      not fit a rank: with fewer than j replicas that small, the other K − j
//                      would weigh more than L − θ. For K = 2: each heavy replica needs a light
//                      partner.
//   X = 0    packing_bound.
//
// Weighted split. 0 when X ≥ R − 1: then every load can be balanced perfectly. Else:
//   needs       Σ (ceil(w_e / L) − 1) ≤ X.
//   components  Join ranks that share an expert. A component of m ranks contains ≥ m − 1 extras, so
//               the M ranks in components of two and more satisfy 2 ≤ M ≤ 2·X, and they hold all
//               the extras: M·K − X experts, whole. Among these are all experts H too heavy for a
//               rank alone (w_e + the K − 1 lightest others > L): w(H) + the lightest
//               (M·K − X − |H|) others ≤ M·L. The other R − M ranks are a packing of whole
//               experts, at best of the lightest. L is impossible if every M is.
//   partners    K = 2. Of the experts heavier than L − (the k-th lightest), each that is not in
//               those components needs one of the k − 1 lighter ones as its partner. So if only l of
//               these k − 1 are in components, at most k − 1 − l of the heavy ones are outside: the
//               lightest M·2 − X experts with so many heavy ones must weigh ≤ M·L.
//   X = 0       packing_bound.
//
// Groups that stay on one node (N > 1, G a multiple of N): the loads of groups packed into nodes,
// by packing_bound; with equal split also the extra replicas that the groups need, X / N per node.
//
// Dead ranks are no ranks: R, S and X are of the live ones. Unequal memory, K_r slots on rank r:
//   phantoms  Give every slot that is missing to K = max K_r, on its rank, to an expert of its own
//             that has no load. Each placement becomes one of equal ranks with the same rank loads,
//             so what no placement of the E + (R·K − Σ K_r) experts on R·K slots reaches is not
//             reached with unequal memory.
//   memory    The j ranks with least memory carry at most the k = K_1 + … + K_j heaviest experts,
//             whole, so the other R − j carry the rest: L ≥ (Σ w − the k heaviest) / (R − j).

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "plan/live_ranks.h"
#include "plan/packing_bound.h"
#include "wideep/balancer.h"

namespace wideep::balance {
namespace {

// Far above the rounding of all sums here: proofs hold for levels lower by this, relative.
constexpr double kMargin = 1e-9;

bool groups_stay_on_nodes(const PlanShape& shape) {
  return shape.num_nodes > 1 && shape.num_groups % shape.num_nodes == 0;
}

// Sums over the experts of each group.
std::vector<double> sum_groups(std::span<const double> values, int num_groups) {
  std::vector<double> sums(static_cast<size_t>(num_groups), 0.0);
  const size_t size = values.size() / sums.size();
  for (size_t i = 0; i < values.size(); ++i) sums[i / size] += values[i];
  return sums;
}

// Shows that levels are impossible with equal split; S > E.
class EqualSplitProof {
 public:
  EqualSplitProof(std::span<const double> load, const PlanShape& shape)
      : load_(load.begin(), load.end()),
        shape_(shape),
        max_replicas_(groups_stay_on_nodes(shape) ? shape.ep_size / shape.num_nodes
                                                  : shape.ep_size),
        others_(static_cast<size_t>(std::min(shape.slots_per_rank(), shape.num_experts) - 1)),
        need_(load.size()),
        priced_(load.size()) {
    std::vector<double> sorted = load_;
    std::sort(sorted.begin(), sorted.end());
    if (others_ > 0) price_unit_ = sorted[others_ - 1];
  }

  bool impossible(double level) {
    return !find_needs(level) || node_too_full() || crowded(level) || unpaired(level);
  }

 private:
  // Weight big_value for replicas ≥ big, −small_value for those ≤ small.
  struct Rule {
    double big, small;
    int big_value, small_value;
    int capacity;  // per rank
  };

  // False: the level is impossible.
  bool find_needs(double level) {
    light_.assign(others_ + 1, 0.0);
    constexpr int kRounds = 6;  // any number is sound; the sums hardly grow after the third
    for (int round = 0; round < kRounds; ++round) {
      const double before = light_[others_];
      if (!count_needs(level - before)) return false;
      weigh_light_replicas();
      if (light_[others_] <= before * (1.0 + kMargin)) break;
    }
    return true;
  }

  bool count_needs(double largest_replica) {
    spare_ = shape_.num_slots - shape_.num_experts;
    for (size_t e = 0; e < load_.size(); ++e) {
      const double need = std::ceil(load_[e] / largest_replica);
      if (load_[e] > 0.0 && !(largest_replica > 0.0 && need <= max_replicas_)) return false;
      need_[e] = load_[e] > 0.0 ? std::max(1, static_cast<int>(need)) : 1;
      spare_ -= need_[e] - 1;
    }
    return spare_ >= 0;
  }

  // light(k) for all k, with the best of a few prices for an extra replica: what the second, third,
  // … replica of a light expert takes off one.
  void weigh_light_replicas() {
    if (spare_ == 0) return weigh_light_replicas(0.0);
    for (int replicas = 1; replicas <= 5; ++replicas) {
      weigh_light_replicas(price_unit_ / (replicas * (replicas + 1)));
    }
  }

  void weigh_light_replicas(double price) {
    for (size_t e = 0; e < load_.size(); ++e) priced_[e] = cheapest(load_[e], need_[e], price);
    const auto end = priced_.begin() + static_cast<std::ptrdiff_t>(others_);
    std::partial_sort(priced_.begin(), end, priced_.end());
    double sum = -price * spare_;
    for (size_t k = 0; k < others_; ++k) {
      sum += priced_[k];
      light_[k + 1] = std::max(light_[k + 1], sum);
    }
  }

  // min over 0 ≤ a ≤ spare of load / (need + a) + price·a: convex in a, so beside its real minimum.
  double cheapest(double load, int need, double price) const {
    if (spare_ == 0) return load / need;
    const double real = price > 0.0 ? std::sqrt(load / price) - need : spare_;
    const double below = std::clamp(std::floor(real), 0.0, static_cast<double>(spare_));
    const double above = std::min(below + 1.0, static_cast<double>(spare_));
    return std::min(load / (need + below) + price * below, load / (need + above) + price * above);
  }

  bool node_too_full() const {
    if (!groups_stay_on_nodes(shape_)) return false;
    std::vector<double> extras;
    for (int need : need_) extras.push_back(need - 1);
    const int per_node = (shape_.num_slots - shape_.num_experts) / shape_.num_nodes;
    return packing_bound(sum_groups(extras, shape_.num_groups), shape_.num_nodes) > per_node + 0.5;
  }

  bool crowded(double level) const {
    for (size_t m = 1; m <= others_; ++m) {
      const double big = (level - light_[others_ - m]) / static_cast<double>(m + 1);
      if (broken({big * (1.0 + kMargin), 0.0, 1, 0, static_cast<int>(m)})) return true;
    }
    return false;
  }

  bool unpaired(double level) const {
    const int per_rank = shape_.slots_per_rank();
    if (static_cast<size_t>(per_rank) != others_ + 1) return false;
    for (double big : candidates_for_big(level)) {
      // 1, 2, 3 and K − 1 light partners.
      for (int j = 1; j < per_rank; j = j < 3 ? j + 1 : std::max(j + 1, per_rank - 1)) {
        if (broken({big, (level - big) / (per_rank - j), j, 1, 0})) return true;
      }
    }
    return false;
  }

  // Sizes that replicas can have of which no two fit a rank.
  std::vector<double> candidates_for_big(double level) const {
    std::vector<double> sizes;
    if (others_ == 0) return sizes;
    const double min = (level - light_[others_ - 1]) / 2 * (1.0 + kMargin);
    for (size_t e = 0; e < load_.size(); ++e) {
      for (int replicas : {need_[e], need_[e] + 1}) {
        if (load_[e] / replicas > min) sizes.push_back(load_[e] / replicas);
      }
    }
    return sizes;
  }

  // More weight than the ranks can hold, whatever the replica counts? The minimum over counts r of
  // r·φ(w / r) + price·r is at the first r of each of the three cases, for price ≥ small_value.
  bool broken(const Rule& rule) const {
    const double prices[] = {1.0, 1.5, 2.0, 3.0, rule.big_value + 1.0};
    double sums[std::size(prices)] = {};
    for (size_t e = 0; e < load_.size(); ++e) {
      const double load = load_[e];
      const int need = need_[e], max = std::min(max_replicas_, need + spare_);
      const int counts[] = {need, first_below(load, rule.big, need, max),
                            first_at_most(load, rule.small, need, max)};
      double values[3];
      for (int i = 0; i < 3; ++i) values[i] = counts[i] * weight(rule, load / counts[i]);
      for (size_t p = 0; p < std::size(prices); ++p) {
        const auto cost = [&](int i) { return values[i] + prices[p] * counts[i]; };
        sums[p] += std::min({cost(0), cost(1), cost(2)});
      }
    }
    const double room = static_cast<double>(rule.capacity) * shape_.ep_size + 1e-6;
    for (size_t p = 0; p < std::size(prices); ++p) {
      if (sums[p] - prices[p] * shape_.num_slots > room) return true;
    }
    return false;
  }

  static double weight(const Rule& rule, double replica) {
    if (replica >= rule.big) return rule.big_value;
    return replica <= rule.small ? -rule.small_value : 0;
  }

  // The first count r in need … most with load / r < size; need if there is none.
  static int first_below(double load, double size, int need, int max) {
    return first_that(std::less<>(), load, size, need, max);
  }

  // ... with load / r ≤ size.
  static int first_at_most(double load, double size, int need, int max) {
    return first_that(std::less_equal<>(), load, size, need, max);
  }

  // Decides by the quotient that weight() sees: load / size may be on the other side of an integer.
  template <typename Compare>
  static int first_that(Compare holds, double load, double size, int need, int max) {
    if (holds(load / need, size)) return need;
    double r = std::max<double>(need, std::floor(load / size));
    while (r <= max && !holds(load / r, size)) r += 1.0;
    return r > max ? need : static_cast<int>(r);
  }

  std::vector<double> load_;
  PlanShape shape_;
  int max_replicas_;
  size_t others_;            // on a rank beside one replica, of different experts: K − 1
  double price_unit_ = 0.0;  // the K − 1-th lightest load

  std::vector<int> need_;      // [E]
  int spare_ = 0;              // extra replicas that no expert needs
  std::vector<double> light_;  // [K] least weight of k replicas of different experts
  std::vector<double> priced_;
};

// Shows that levels are impossible with weighted split; 1 ≤ X < R − 1.
class WeightedSplitProof {
 public:
  WeightedSplitProof(std::span<const double> load, const PlanShape& shape)
      : load_(load.begin(), load.end()), shape_(shape), light_{0.0} {
    std::sort(load_.begin(), load_.end());
    for (double load_of_expert : load_) light_.push_back(light_.back() + load_of_expert);
  }

  bool impossible(double level) const {
    const int extra = shape_.num_slots - shape_.num_experts;
    double needed = 0.0;
    for (double load : load_) needed += std::max(0.0, std::ceil(load / level) - 1.0);
    if (needed > extra) return true;
    const int max = std::min(2 * extra, shape_.ep_size);
    for (int joined = 2; joined <= max; ++joined) {
      if (fits(level, joined)) return false;
    }
    return true;
  }

 private:
  // Can `joined` ranks be those that share experts?
  bool fits(double level, int joined) const {
    const int per_rank = shape_.slots_per_rank();
    const int extra = shape_.num_slots - shape_.num_experts;
    const int whole = joined * per_rank - extra;
    const int heavy = num_heavy(level);
    if (whole < heavy || whole > shape_.num_experts) return false;
    const double heavy_load = light_.back() - light_[load_.size() - static_cast<size_t>(heavy)];
    if (heavy_load + light_[static_cast<size_t>(whole - heavy)] > level * joined) return false;
    if (per_rank == 2 && partners_lack(level, joined)) return false;
    if (joined == shape_.ep_size) return true;
    const std::vector<double> alone(load_.begin(), load_.end() - whole);
    return packing_bound(alone, shape_.ep_size - joined) <= level;
  }

  // "partners" above, for some of the k: any are sound.
  bool partners_lack(double level, int joined) const {
    constexpr size_t kMaxTried = 40;
    const size_t experts = load_.size();
    size_t pairs = 0;
    while (pairs < experts && load_[pairs] <= level / 2) ++pairs;
    const size_t step = std::max<size_t>(1, pairs / kMaxTried);
    for (size_t k = 0; k < pairs; k += step) {
      const auto first_heavy = std::upper_bound(load_.begin(), load_.end(), level - load_[k]);
      const auto heavy = static_cast<size_t>(load_.end() - first_heavy);
      if (heavy <= k) continue;
      if (min_joined(level, joined, k, heavy) > level * joined * (1.0 + kMargin)) return true;
    }
    return false;
  }

  // The least weight of the joined experts: l of the k lightest, n of the heavy ones, the rest of
  // those in between. Infinite if there are no such experts.
  double min_joined(double level, int joined, size_t k, size_t heavy) const {
    const size_t experts = load_.size(), between = experts - heavy - k;
    const auto whole = static_cast<size_t>(2 * joined - (shape_.num_slots - shape_.num_experts));
    const auto must = static_cast<size_t>(num_heavy(level));
    const double must_weigh = light_[experts] - light_[experts - must];
    double min = std::numeric_limits<double>::infinity();
    for (size_t l = 0; l <= k; ++l) {
      size_t n = std::max(heavy - k + l, must);
      if (l + n > whole) break;
      n += std::max(whole - l - n, between) - between;
      if (n > heavy) continue;
      const size_t rest = whole - l - n;
      const double weight = light_[l] + light_[k + rest] - light_[k] + must_weigh +
                            light_[experts - heavy + n - must] - light_[experts - heavy];
      min = std::min(min, weight);
    }
    return min;
  }

  // Experts too heavy for a rank with the K − 1 lightest others.
  int num_heavy(double level) const {
    const auto others = static_cast<size_t>(shape_.slots_per_rank() - 1);
    int heavy = 0;
    for (size_t i = load_.size(); i > others && load_[i - 1] + light_[others] > level; --i) ++heavy;
    return heavy;
  }

  std::vector<double> load_;  // ascending
  PlanShape shape_;
  std::vector<double> light_;  // [E + 1] sums of the lightest
};

// The largest level that is shown impossible, from a level that all placements reach. A proof need
// not be monotone in the level: the result is a level that was itself proved impossible, or the
// mean, so the bound holds in any case.
template <typename Proof>
double largest_impossible(Proof proof, double mean) {
  if (!proof.impossible(mean * (1.0 + kMargin))) return mean;
  double low = mean, high = 2.0 * mean;
  for (int doubling = 0; doubling < 64 && proof.impossible(high); ++doubling) {
    low = high;
    high *= 2.0;
  }
  constexpr int kHalvings = 30;
  for (int i = 0; i < kHalvings; ++i) {
    const double level = (low + high) / 2;
    (proof.impossible(level) ? low : high) = level;
  }
  return low;
}

double largest_impossible_level(std::span<const double> load, const PlanShape& shape, Split split,
                                double mean) {
  const int extra = shape.num_slots - shape.num_experts;
  if (extra == 0) return packing_bound({load.begin(), load.end()}, shape.ep_size);
  if (split == Split::kEqual) return largest_impossible(EqualSplitProof(load, shape), mean);
  if (extra >= shape.ep_size - 1) return mean;
  return largest_impossible(WeightedSplitProof(load, shape), mean);
}

// Every slot usable.
double bound_of_equal_ranks(std::span<const double> load, const PlanShape& shape, Split split) {
  const double total = std::accumulate(load.begin(), load.end(), 0.0);
  if (total <= 0.0) return 0.0;
  const double mean = total / shape.ep_size;
  double bound = largest_impossible_level(load, shape, split, mean) / mean;
  if (groups_stay_on_nodes(shape)) {
    const double node = packing_bound(sum_groups(load, shape.num_groups), shape.num_nodes) *
                        shape.num_nodes / total;
    bound = std::max(bound, node);
  }
  return std::max(0.0, bound * (1.0 - kMargin) - 1.0);
}

// "phantoms" above.
double phantom_bound(std::span<const double> load, const PlanShape& shape, Split split) {
  const int missing = shape.num_slots - shape.num_usable_slots();
  std::vector<double> padded(load.begin(), load.end());
  padded.resize(padded.size() + static_cast<size_t>(missing), 0.0);
  return bound_of_equal_ranks(padded,
                              {.num_experts = shape.num_experts + missing,
                               .ep_size = shape.ep_size,
                               .num_slots = shape.num_slots},
                              split);
}

// "memory" above. The ranks with least memory leave first, and each takes the heaviest experts that
// are left: no rank can take more.
double memory_bound(std::span<const double> load, const PlanShape& shape) {
  std::vector<double> left(load.begin(), load.end());
  std::sort(left.begin(), left.end());
  std::vector<int> slots = shape.rank_slots;
  std::sort(slots.begin(), slots.end(), std::greater<>());
  const double total = std::accumulate(left.begin(), left.end(), 0.0);
  double level = 0.0;
  while (!slots.empty() && total > 0.0) {
    const double rest = std::accumulate(left.begin(), left.end(), 0.0);
    level = std::max(level, rest / static_cast<double>(slots.size()));
    const auto carried = static_cast<size_t>(slots.back());
    left.resize(left.size() - std::min(left.size(), carried));
    slots.pop_back();
  }
  return total > 0.0 ? level * (1.0 - kMargin) * shape.ep_size / total - 1.0 : 0.0;
}

}  // namespace

double imbalance_lower_bound(std::span<const double> load, const PlanShape& shape, Split split) {
  WIDEEP_CHECK_EQ(load.size(), static_cast<size_t>(shape.num_experts));
  if (shape.rank_slots.empty()) return bound_of_equal_ranks(load, shape, split);
  const PlanShape live = LiveRanks(shape).shape();
  if (live.rank_slots.empty()) return bound_of_equal_ranks(load, live, split);
  return std::max(phantom_bound(load, live, split), memory_bound(load, live));
}

}  // namespace wideep::balance
