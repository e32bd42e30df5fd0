// SPDX-License-Identifier: Apache-2.0
//
// A try must cost little, for a layer takes half a million of them. So windows lie side by side in
// vectors, and the cost of a rank is a sum over windows of the 32nd power of its load times a
// price. Prices are the slopes of the norms, computed anew after each 256 tries: in between, a try
// needs neither the maximum of a window nor a root. Where a move would be far too dear, the
// straight line is wrong, and the cost is bent back to the norm's curve (bend). A try touches only
// the two ranks of a swap, or the ranks of the two experts whose counts change.
#include "plan/window_counts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "plan/search/board.h"

// Vectors are passed between inlined functions only, so that no calling convention is involved.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace wideep::balance {
namespace {

// Windows side by side. The order of additions does not depend on the width of the registers, so
// that every machine finds the same plan.
constexpr size_t kWidth = 8;
using Lanes = float __attribute__((vector_size(4 * kWidth)));

constexpr int kNorm = 32;              // of the loads of ranks
constexpr int kTriesPerRefresh = 256;  // costs are linear in between
// Of the annealing, in mean rank loads: at first a move may cost what the few moves after it can
// bring back. That is more where there are few slots: each holds more of the load, and fewer moves
// lead around a bad one. In the end nothing.
constexpr double kFirstTemperature = 40.0;  // / (number of slots)²
constexpr double kLastTemperature = 5e-6, kMinCooling = 1e-3, kMaxCooling = 1e-2;
constexpr int kDrawsOfRank = 5;    // the hottest of so many ranks is to be cooled
constexpr int kDrawsOfDonor = 20;  // to find a slot whose expert has other replicas

}  // namespace

class CountSearch::Impl {
 public:
  Impl(const PlanShape& shape, size_t num_windows)
      : num_windows_(num_windows),
        row_((num_windows + kWidth - 1) / kWidth * kWidth),
        num_ranks_(static_cast<size_t>(shape.ep_size)),
        per_rank_(static_cast<size_t>(shape.slots_per_rank())),
        ranks_per_node_(shape.num_groups > 1 ? num_ranks_ / static_cast<size_t>(shape.num_nodes)
                                             : num_ranks_),
        expert_load_(static_cast<size_t>(shape.num_experts) * row_, 0.0f),
        rank_load_(num_ranks_ * row_, 0.0f),
        cost_(num_ranks_, 0.0f),
        per_unit_(row_, 0.0f),
        price_(row_, 0.0f),
        scratch_(2 * row_, 0.0f),
        ranks_of_(static_cast<size_t>(shape.num_experts)) {
    // As many as there can be, so that run() allocates nothing.
    slots_.reserve(static_cast<size_t>(shape.num_slots));
    best_slots_.reserve(static_cast<size_t>(shape.num_slots));
    for (std::vector<size_t>& ranks : ranks_of_) ranks.reserve(num_ranks_);
    touched_.reserve(2 * num_ranks_);
    touched_load_.reserve(2 * num_ranks_ * row_);
  }

  void run(std::span<const std::vector<double>> windows, const CountSearchOptions& options,
           LayerPlan* plan) {
    set_windows(windows);
    set_slots(plan->placement.slot_to_expert);
    search(options);
    plan->placement.slot_to_expert = best_slots_;
    write_equal_shares(plan);
  }

 private:
  // Mean rank load 1 in every window.
  void set_windows(std::span<const std::vector<double>> windows) {
    for (size_t w = 0; w < num_windows_; ++w) {
      const double total = std::accumulate(windows[w].begin(), windows[w].end(), 0.0);
      const double scale = total > 0.0 ? static_cast<double>(num_ranks_) / total : 0.0;
      for (size_t e = 0; e < windows[w].size(); ++e) {
        expert_load_[e * row_ + w] = static_cast<float>(windows[w][e] * scale);
      }
    }
  }

  void set_slots(const std::vector<int32_t>& slots) {
    slots_ = slots;
    for (std::vector<size_t>& ranks : ranks_of_) ranks.clear();
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot] >= 0) ranks_of(slots_[slot]).push_back(slot / per_rank_);
    }
  }

  void search(const CountSearchOptions& options) {
    random_ = 88172645463325252u;
    refresh();
    best_ = mean_of_hottest();
    best_slots_ = slots_;
    for (int time = 0; time < options.times && best_ > 1.0 + options.tolerance; ++time) {
      if (time > 0) set_slots(best_slots_);
      anneal(options);
    }
  }

  void anneal(const CountSearchOptions& options) {
    const int64_t tries = std::max<int64_t>(
        options.min_tries, options.tries_per_slot * static_cast<int64_t>(slots_.size()));
    const auto slots = static_cast<double>(slots_.size());
    double temperature = kFirstTemperature / (slots * slots);
    const double cooling =
        std::pow(std::clamp(kLastTemperature / temperature, kMinCooling, kMaxCooling),
                 static_cast<double>(kTriesPerRefresh) / static_cast<double>(tries));
    refresh();
    for (int64_t done = 0; done < tries && best_ > 1.0 + options.tolerance;
         done += kTriesPerRefresh) {
      set_temperature(temperature);
      for (int i = 0; i < kTriesPerRefresh; ++i) try_move();
      refresh();
      if (const double now = mean_of_hottest(); now < best_) {
        best_ = now;
        best_slots_ = slots_;
      }
      temperature *= cooling;
    }
  }

  void write_equal_shares(LayerPlan* plan) {
    set_slots(best_slots_);
    plan->shares.resize(slots_.size());
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      plan->shares[slot] =
          slots_[slot] < 0 ? 0.0 : 1.0 / static_cast<double>(ranks_of(slots_[slot]).size());
    }
  }

  float* row_of(search::AlignedVector<float>& rows, size_t i) { return rows.data() + i * row_; }
  static Lanes& at(float* row, size_t window) { return *reinterpret_cast<Lanes*>(row + window); }
  std::vector<size_t>& ranks_of(int32_t expert) { return ranks_of_[static_cast<size_t>(expert)]; }
  bool holds(size_t rank, int32_t expert) const {
    const auto first = slots_.begin() + static_cast<std::ptrdiff_t>(rank * per_rank_);
    const auto last = first + static_cast<std::ptrdiff_t>(per_rank_);
    return std::find(first, last, expert) != last;
  }

  // Xorshift, seeded with a constant: the same plan each time.
  size_t draw(size_t below) {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return ((random_ >> 32) * below) >> 32;
  }

  // Loads and costs anew, so that neither rounding nor the linear costs add up.
  void refresh() {
    std::fill(rank_load_.begin(), rank_load_.end(), 0.0f);
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot] >= 0) add(row_of(rank_load_, slot / per_rank_), slots_[slot], 1, 0);
    }
    set_prices();
    for (size_t rank = 0; rank < num_ranks_; ++rank) cost_[rank] = cost(row_of(rank_load_, rank));
  }

  // The norm of a window is u·(Σ (l / u)^p)^(1/p), u its hottest rank, which keeps the powers in
  // range. Its derivative by a term of the sum is the price of that term.
  void set_prices() {
    for (size_t w = 0; w < num_windows_; ++w) {
      float max = 0.0f;
      for (size_t rank = 0; rank < num_ranks_; ++rank) {
        max = std::max(max, rank_load_[rank * row_ + w]);
      }
      per_unit_[w] = max > 0.0f ? 1.0f / max : 0.0f;
      double sum = 0.0;
      for (size_t rank = 0; rank < num_ranks_; ++rank) {
        sum += std::pow(static_cast<double>(rank_load_[rank * row_ + w] * per_unit_[w]), kNorm);
      }
      const double slope = sum > 0.0 ? std::pow(sum, 1.0 / kNorm - 1.0) / kNorm : 0.0;
      price_[w] = static_cast<float>(max * slope / static_cast<double>(num_windows_));
    }
  }

  double mean_of_hottest() const {
    double sum = 0.0;
    for (size_t w = 0; w < num_windows_; ++w) {
      if (per_unit_[w] > 0.0f) sum += 1.0 / static_cast<double>(per_unit_[w]);
    }
    return sum / static_cast<double>(num_windows_);
  }

  float cost(float* load) {
    Lanes sum{};
    for (size_t w = 0; w < row_; w += kWidth) {
      const Lanes min = Lanes{} + 0.1f;  // the 32nd power of less is subnormal, which is slow
      Lanes x = at(load, w) * at(per_unit_.data(), w);
      x = x < min ? min : x;
      for (int power = 1; power < kNorm; power *= 2) x *= x;
      sum += x * at(price_.data(), w);
    }
    float total = 0.0f;
    for (size_t i = 0; i < kWidth; ++i) total += sum[i];
    return total;
  }

  // Adds (sign 1) or takes off (−1) the load of one replica of the expert, if it had so many more
  // replicas than at present.
  void add(float* load, int32_t expert, int sign, int more_replicas) {
    const float factor =
        static_cast<float>(sign) /
        static_cast<float>(static_cast<int>(ranks_of(expert).size()) + more_replicas);
    const float* of_expert = row_of(expert_load_, static_cast<size_t>(expert));
    for (size_t w = 0; w < row_; ++w) load[w] += factor * of_expert[w];
  }

  // Prices are the slopes at the last refresh. Far above it the norm bends: as a move that is much
  // too dear is so in one window, take it as the change of that window's sum.
  double bend(double change) const {
    const auto windows = static_cast<double>(num_windows_);
    return (std::pow(1.0 + change * kNorm * windows, 1.0 / kNorm) - 1.0) / windows;
  }
  double unbend(double bent) const {
    const auto windows = static_cast<double>(num_windows_);
    return (std::pow(1.0 + bent * windows, kNorm) - 1.0) / (kNorm * windows);
  }

  void set_temperature(double temperature) {
    constexpr double kNever = 15.0;  // e^-15 is less than what draw() can tell from 0
    temperature_ = temperature;
    refused_from_ = static_cast<float>(unbend(kNever * temperature));
  }

  bool accept(float change) {
    if (change <= 0.0f) return true;
    if (!(change < refused_from_)) return false;  // most, and infinity
    const double steps = bend(static_cast<double>(change)) / temperature_;
    return static_cast<double>(draw(1u << 20)) < std::exp(-steps) * (1u << 20);
  }

  void try_move() {
    const size_t hot = draw_hot_rank();
    // Two of three: a change of counts is worth more, but most are refused.
    if (draw(3) != 0) {
      try_swap(hot);
    } else {
      try_count(hot);
    }
  }

  size_t draw_hot_rank() {
    const size_t window = draw(num_windows_);
    size_t hot = draw(num_ranks_);
    for (int i = 1; i < kDrawsOfRank; ++i) {
      const size_t rank = draw(num_ranks_);
      if (rank_load_[rank * row_ + window] > rank_load_[hot * row_ + window]) hot = rank;
    }
    return hot;
  }

  size_t draw_rank_of_node(size_t rank) {
    return rank / ranks_per_node_ * ranks_per_node_ + draw(ranks_per_node_);
  }

  void try_swap(size_t rank) {
    const size_t other = draw_rank_of_node(rank);
    const size_t slot = rank * per_rank_ + draw(per_rank_);
    const size_t with = other * per_rank_ + draw(per_rank_);
    const int32_t leaves = slots_[slot], comes = slots_[with];
    if (rank == other || leaves == comes || leaves < 0 || comes < 0) return;
    if (ranks_of(leaves).size() > 1 && holds(other, leaves)) return;
    if (ranks_of(comes).size() > 1 && holds(rank, comes)) return;
    float* load = row_of(scratch_, 0);
    float* other_load = row_of(scratch_, 1);
    exchange(rank, other, leaves, comes);
    const float cost_here = cost(load), cost_there = cost(other_load);
    if (!accept(cost_here + cost_there - cost_[rank] - cost_[other])) return;
    set_load(rank, load, cost_here);
    set_load(other, other_load, cost_there);
    std::swap(slots_[slot], slots_[with]);
    std::replace(ranks_of(leaves).begin(), ranks_of(leaves).end(), rank, other);
    std::replace(ranks_of(comes).begin(), ranks_of(comes).end(), other, rank);
  }

  void exchange(size_t rank, size_t other, int32_t leaves, int32_t comes) {
    const float count = static_cast<float>(ranks_of(leaves).size());
    const float with_count = static_cast<float>(ranks_of(comes).size());
    for (size_t w = 0; w < row_; w += kWidth) {
      const Lanes moved = at(row_of(expert_load_, static_cast<size_t>(leaves)), w) / count -
                          at(row_of(expert_load_, static_cast<size_t>(comes)), w) / with_count;
      at(row_of(scratch_, 0), w) = at(row_of(rank_load_, rank), w) - moved;
      at(row_of(scratch_, 1), w) = at(row_of(rank_load_, other), w) + moved;
    }
  }

  void set_load(size_t rank, const float* load, float cost_of_load) {
    std::copy_n(load, row_, row_of(rank_load_, rank));
    cost_[rank] = cost_of_load;
  }

  // A slot of the rank's node whose expert has other replicas.
  bool draw_donor(size_t rank, size_t* slot) {
    for (int i = 0; i < kDrawsOfDonor; ++i) {
      *slot = draw_rank_of_node(rank) * per_rank_ + draw(per_rank_);
      if (slots_[*slot] >= 0 && ranks_of(slots_[*slot]).size() > 1) return true;
    }
    return false;
  }

  // One more replica of an expert of the hot rank, in the slot of another expert's replica. One
  // time in four of any expert: a light one makes room too.
  void try_count(size_t hot) {
    const size_t from = draw(4) == 0 ? draw_rank_of_node(hot) : hot;
    const int32_t grows = slots_[from * per_rank_ + draw(per_rank_)];
    size_t slot = 0;
    if (grows < 0 || !draw_donor(hot, &slot)) return;
    const int32_t shrinks = slots_[slot];
    const size_t rank = slot / per_rank_;
    if (shrinks == grows || holds(rank, grows)) return;
    const float change = load_with_counts(grows, shrinks, rank);
    if (!accept(change)) return;
    for (size_t i = 0; i < touched_.size(); ++i) {
      float* load = row_of(touched_load_, i);
      set_load(touched_[i], load, cost(load));
    }
    slots_[slot] = grows;
    std::vector<size_t>& old = ranks_of(shrinks);
    old.erase(std::find(old.begin(), old.end(), rank));
    ranks_of(grows).push_back(rank);
  }

  // Writes the loads of all ranks that one more replica of `grows` on `rank` instead of one of
  // `shrinks` would change; returns the change of their costs.
  float load_with_counts(int32_t grows, int32_t shrinks, size_t rank) {
    touched_.clear();
    touched_load_.resize((ranks_of(grows).size() + ranks_of(shrinks).size()) * row_);
    float change = 0.0f;
    const auto touch = [&](size_t touched, bool has_grows, bool has_shrinks) {
      float* load = row_of(touched_load_, touched_.size());
      std::copy_n(row_of(rank_load_, touched), row_, load);
      if (has_grows) add(load, grows, -1, 0);
      if (has_grows || touched == rank) add(load, grows, 1, 1);
      if (has_shrinks) add(load, shrinks, -1, 0);
      if (has_shrinks && touched != rank) add(load, shrinks, 1, -1);
      change += cost(load) - cost_[touched];
      touched_.push_back(touched);
    };
    for (const size_t each : ranks_of(grows)) touch(each, true, holds(each, shrinks));
    for (const size_t each : ranks_of(shrinks)) {
      if (!holds(each, grows)) touch(each, false, true);
    }
    return change;
  }

  size_t num_windows_, row_, num_ranks_, per_rank_, ranks_per_node_;
  std::vector<int32_t> slots_, best_slots_;
  // Rows of windows, padded to whole vectors; mean rank load 1 in every window.
  search::AlignedVector<float> expert_load_;   // [E][row]
  search::AlignedVector<float> rank_load_;     // [R][row]
  std::vector<float> cost_;                    // [R]
  search::AlignedVector<float> per_unit_;      // [row] 1 / the load of the hottest rank
  search::AlignedVector<float> price_;         // [row] what a rank's power costs
  search::AlignedVector<float> scratch_;       // [2][row]
  std::vector<std::vector<size_t>> ranks_of_;  // [E]
  std::vector<size_t> touched_;                // ranks
  search::AlignedVector<float> touched_load_;  // [touched][row]
  double best_ = 0.0;                          // mean of the hottest
  double temperature_ = 0.0;
  float refused_from_ = 0.0f;  // changes that are never accepted
  uint64_t random_ = 0;
};

CountSearch::CountSearch(const PlanShape& shape, size_t num_windows)
    : impl_(std::make_unique<Impl>(shape, num_windows)) {}
CountSearch::~CountSearch() = default;
CountSearch::CountSearch(CountSearch&&) noexcept = default;
CountSearch& CountSearch::operator=(CountSearch&&) noexcept = default;

void CountSearch::run(std::span<const std::vector<double>> windows,
                      const CountSearchOptions& options, LayerPlan* plan) {
  impl_->run(windows, options, plan);
}

void search_counts_for_windows(std::span<const std::vector<double>> windows, const PlanShape& shape,
                               const CountSearchOptions& options, LayerPlan* plan) {
  CountSearch(shape, windows.size()).run(windows, options, plan);
}

}  // namespace wideep::balance
