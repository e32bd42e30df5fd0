// SPDX-License-Identifier: Apache-2.0
#include "online/sample_set.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace wideep::online {
namespace {

constexpr double kSimilarDistance = 0.1;  // total variation distance at which similarity is 1 / e
constexpr double kMemory = 0.5;           // part of the weight that all samples share equally

// REQUIRES: a positive sum.
void scale_to(double sum, std::span<double> load) {
  const double scale = sum / std::accumulate(load.begin(), load.end(), 0.0);
  for (double& tokens : load) tokens *= scale;
}

double similarity(std::span<const double> a, std::span<const double> b, double sum) {
  double distance = 0.0;
  for (size_t e = 0; e < a.size(); ++e) distance += std::abs(a[e] - b[e]);
  const double x = distance / (2.0 * sum) / kSimilarDistance;
  return std::exp(-x * x);
}

}  // namespace

SampleSet::SampleSet(int num_experts, int max_samples)
    : num_experts_(static_cast<size_t>(num_experts)),
      loads_(num_experts_ * static_cast<size_t>(max_samples)),
      expected_(num_experts_),
      mean_(num_experts_) {
  weight_.reserve(static_cast<size_t>(max_samples));
}

std::span<double> SampleSet::row(size_t sample) {
  return std::span<double>(loads_).subspan(sample * num_experts_, num_experts_);
}

std::span<const double> SampleSet::load(int sample) const {
  return std::span<const double>(loads_).subspan(static_cast<size_t>(sample) * num_experts_,
                                                 num_experts_);
}

void SampleSet::add(std::span<const double> tokens) {
  // A layer may have no token in a sample; it could not be scaled.
  if (std::accumulate(tokens.begin(), tokens.end(), 0.0) == 0.0) return;
  const std::span<double> load = row(weight_.size());
  std::copy(tokens.begin(), tokens.end(), load.begin());
  scale_to(num_ranks_, load);
  weight_.push_back(0.0);
}

void SampleSet::weigh() {
  double sum = 0.0;
  for (size_t i = 0; i < weight_.size(); ++i) {
    // Row 0 is the newest sample, whose similarity is 1: the sum is positive.
    sum += weight_[i] = similarity(row(0), row(i), num_ranks_);
  }
  const double alike = kMemory / static_cast<double>(weight_.size());
  for (double& weight : weight_) weight = (1.0 - kMemory) * weight / sum + alike;
}

void SampleSet::widen(double drift_margin) {
  for (size_t i = 0; i < weight_.size(); ++i) {
    const std::span<double> load = row(i);
    for (size_t e = 0; e < num_experts_; ++e) {
      // Where the load has moved away from the mean it is likely to move further.
      load[e] = std::max(0.0, load[e] + drift_margin * (load[e] - mean_[e]));
    }
    scale_to(num_ranks_, load);
  }
}

void SampleSet::assign(const LoadWindow& window, int layer_idx, int num_ranks,
                       double drift_margin) {
  num_ranks_ = num_ranks;
  weight_.clear();
  for (int age = 0; age < window.num_samples(); ++age) add(window.sample(layer_idx, age));
  if (size() > 0) weigh();
  std::fill(expected_.begin(), expected_.end(), 0.0);
  std::fill(mean_.begin(), mean_.end(), 0.0);
  for (size_t i = 0; i < weight_.size(); ++i) {
    const std::span<const double> load = row(i);
    for (size_t e = 0; e < num_experts_; ++e) {
      expected_[e] += weight_[i] * load[e];
      mean_[e] += load[e] / static_cast<double>(weight_.size());
    }
  }
  if (drift_margin > 0.0) widen(drift_margin);
}

}  // namespace wideep::online
