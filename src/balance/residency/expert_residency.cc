// SPDX-License-Identifier: Apache-2.0
//
// Worths are those of each layer's last visit: all layers see the same iterations, so what one
// layer is ahead of another is one iteration at most, and a visit need not look at the others. The
// least worth of each layer is kept, so that the least of all is found without looking at every
// record.
#include "residency/expert_residency.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace wideep::residency {

ExpertResidency::ExpertResidency(ResidencyShape shape, const ResidencyOptions& options)
    : shape_(std::move(shape)), options_(options) {
  const auto layers = static_cast<size_t>(shape_.num_layers);
  const auto experts = static_cast<size_t>(shape_.num_experts);
  WIDEEP_CHECK(shape_.owned.empty() || shape_.owned.size() == layers * experts);
  for (std::vector<double>* values : {&popularity_, &window_, &recency_, &worth_}) {
    values->resize(layers * experts);
  }
  resident_.resize(layers * experts);
  lost_.resize(layers * experts);
  chosen_.resize(experts);
  lowest_.assign(layers, -1);
  num_came_.resize(layers);
  demands_.reserve(experts);
}

size_t ExpertResidency::index_of(const ExpertPlace& place) const {
  return static_cast<size_t>(place.layer_idx) * static_cast<size_t>(shape_.num_experts) +
         static_cast<size_t>(place.expert);
}

int ExpertResidency::num_resident(int layer_idx) const {
  const auto begin = resident_.begin() + static_cast<std::ptrdiff_t>(index_of({layer_idx, 0}));
  return static_cast<int>(std::count(begin, begin + shape_.num_experts, uint8_t{1}));
}

// However long the last run was, it counts no more than windows of this run will.
void ExpertResidency::start_from(std::span<const double> load, double num_tokens) {
  WIDEEP_CHECK_EQ(load.size(), popularity_.size());
  const double most =
      static_cast<double>(options_.window_tokens) / std::max(1e-6, 1 - options_.decay);
  popularity_tokens_ = std::min(num_tokens, most);
  for (size_t i = 0; i < load.size(); ++i) {
    worth_[i] = recency_[i] = load[i] / num_tokens;
    popularity_[i] = worth_[i] * popularity_tokens_;
  }
}

void ExpertResidency::begin_iteration(int64_t num_tokens) {
  if (window_tokens_ >= options_.window_tokens) end_window();
  if (deviation_ > 0.0) recency_weight_ = std::clamp(foretold_ / deviation_, 0.0, 1.0);
  iteration_tokens_ = num_tokens;
  window_tokens_ += num_tokens;
}

void ExpertResidency::end_window() {
  for (size_t i = 0; i < window_.size(); ++i) {
    popularity_[i] = popularity_[i] * options_.decay + std::exchange(window_[i], 0.0);
  }
  popularity_tokens_ =
      popularity_tokens_ * options_.decay + static_cast<double>(std::exchange(window_tokens_, 0));
  foretold_ *= options_.decay;
  deviation_ *= options_.decay;
}

void ExpertResidency::measure_recency(size_t index, double share, double popularity) {
  const double deviation = recency_[index] - popularity;
  foretold_ += deviation * (share - popularity);
  deviation_ += deviation * deviation;
}

template <typename Count>
void ExpertResidency::update_worth(int layer_idx, std::span<const Count> counts) {
  const auto of_iteration = static_cast<double>(iteration_tokens_);
  const double of_windows = popularity_tokens_ + static_cast<double>(window_tokens_);
  const double before = of_windows - of_iteration;
  size_t i = index_of({layer_idx, 0});
  for (size_t e = 0; e < counts.size(); ++e, ++i) {
    const bool counted = counts[e] > 0 && owns(i);
    const double tokens = counted ? static_cast<double>(counts[e]) : 0.0;
    const double share = tokens / of_iteration;
    // Before, recency and popularity are both of few tokens and say the same.
    if (popularity_tokens_ > 0.0) measure_recency(i, share, (popularity_[i] + window_[i]) / before);
    chosen_[e] = counted ? 1 : 0;
    window_[i] += tokens;
    recency_[i] += options_.recency_rate * (share - recency_[i]);
    const double popularity = (popularity_[i] + window_[i]) / of_windows;
    worth_[i] = popularity + recency_weight_ * (recency_[i] - popularity);
  }
}

// What is being computed cannot leave.
void ExpertResidency::find_lowest(int layer_idx) {
  const size_t begin = index_of({layer_idx, 0});
  const bool is_computed = layer_idx == visiting_;
  int& lowest = lowest_[static_cast<size_t>(layer_idx)];
  lowest = -1;
  for (int e = 0; e < shape_.num_experts; ++e) {
    const size_t i = begin + static_cast<size_t>(e);
    if (resident_[i] == 0 || (is_computed && chosen_[static_cast<size_t>(e)] != 0)) continue;
    if (lowest < 0 || worth_[i] < worth_[begin + static_cast<size_t>(lowest)]) lowest = e;
  }
}

// Decides whether the expert stays, and which one leaves for it.
void ExpertResidency::keep(int layer_idx, Demand* demand) {
  const size_t wanted = index_of({layer_idx, demand->expert});
  if (num_resident_ < shape_.num_records) {
    ++num_resident_;
  } else {
    ExpertPlace least{.layer_idx = -1};
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      const ExpertPlace place{layer, lowest_[static_cast<size_t>(layer)]};
      if (place.expert < 0) continue;
      if (least.layer_idx < 0 || worth_[index_of(place)] < worth_[index_of(least)]) least = place;
    }
    if (least.layer_idx < 0) return;
    if (worth_[wanted] <= worth_[index_of(least)] + options_.hysteresis) return;
    resident_[index_of(least)] = 0;
    find_lowest(least.layer_idx);
    demand->leaves = least;
  }
  resident_[wanted] = 1;
  lost_[wanted] = 0;
  ++num_came_[static_cast<size_t>(layer_idx)];
  demand->stays = true;
}

template <typename Count>
std::span<const Demand> ExpertResidency::visit_layer(int layer_idx, std::span<const Count> counts) {
  WIDEEP_CHECK_EQ(counts.size(), chosen_.size());
  WIDEEP_CHECK(iteration_tokens_ > 0);
  visiting_ = layer_idx;
  update_worth(layer_idx, counts);
  const size_t begin = index_of({layer_idx, 0});
  demands_.clear();
  for (int e = 0; e < shape_.num_experts; ++e) {
    const auto at = static_cast<size_t>(e);
    if (chosen_[at] != 0 && resident_[begin + at] == 0) demands_.push_back({.expert = e});
  }
  std::sort(demands_.begin(), demands_.end(), [&](const Demand& a, const Demand& b) {
    const double worth_a = worth_[begin + static_cast<size_t>(a.expert)];
    const double worth_b = worth_[begin + static_cast<size_t>(b.expert)];
    return worth_a != worth_b ? worth_a > worth_b : a.expert < b.expert;
  });
  find_lowest(layer_idx);
  for (Demand& demand : demands_) keep(layer_idx, &demand);
  visiting_ = -1;
  find_lowest(layer_idx);
  return demands_;
}

std::span<const Demand> ExpertResidency::visit(int layer_idx, std::span<const int64_t> counts) {
  return visit_layer(layer_idx, counts);
}
std::span<const Demand> ExpertResidency::visit(int layer_idx, std::span<const int32_t> counts) {
  return visit_layer(layer_idx, counts);
}

double ExpertResidency::popularity(const ExpertPlace& place) const {
  const double tokens = popularity_tokens_ + static_cast<double>(window_tokens_);
  const size_t i = index_of(place);
  // A layer may be visited several times in an iteration, as those that predict are.
  return tokens > 0.0 ? std::min(1.0, (popularity_[i] + window_[i]) / tokens) : 0.0;
}

std::optional<ExpertPlace> ExpertResidency::next_to_fill() const {
  if (num_resident_ >= shape_.num_records) return {};
  std::optional<ExpertPlace> best;
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    for (int e = 0; e < shape_.num_experts; ++e) {
      const ExpertPlace place{layer, e};
      const size_t i = index_of(place);
      if (resident_[i] != 0 || lost_[i] != 0 || !owns(i) || worth_[i] <= 0.0) continue;
      if (!best || worth_[i] > worth_[index_of(*best)]) best = place;
    }
  }
  return best;
}

void ExpertResidency::fill(const ExpertPlace& place) {
  WIDEEP_CHECK(!is_resident(place) && num_resident_ < shape_.num_records);
  resident_[index_of(place)] = 1;
  ++num_came_[static_cast<size_t>(place.layer_idx)];
  ++num_resident_;
  find_lowest(place.layer_idx);
}

void ExpertResidency::lose(const ExpertPlace& place) {
  WIDEEP_CHECK(is_resident(place));
  resident_[index_of(place)] = 0;
  lost_[index_of(place)] = 1;
  --num_resident_;
  find_lowest(place.layer_idx);
}

}  // namespace wideep::residency
