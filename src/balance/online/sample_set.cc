// SPDX-License-Identifier: Apache-2.0
//
// assign() works in an order that matters:
//
//   add     scale every sample to a mean rank load of 1
//   weigh   by likeness to the newest and by tokens
//   shrink  an open sample towards the mean of the others, as far as noise explains it
//   sum     expected() and the plain mean, from the loads as they are
//   merge   samples of one kind, whose weights add up
//   widen   by the margin, for the search only
//
// Weights come before the shrinking, which needs them for the mean of the others. The sums come
// before the margin, so that reports and shares use what was really seen. Distances of an open
// sample are taken without their expected noise: few tokens are far from everything.
#include "online/sample_set.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace wideep::online {
namespace {

// Part of the weight that all samples share by their tokens. An open sample is only taken where
// there is evidence that the placement does not fit the present load: then that matters most.
constexpr double kMemory = 0.5;
constexpr double kMemoryBesideOpen = 0.3;

// Samples are merged into kinds of load: as long as their loads differ by less than noise and this
// (chi-square divergence), and until so few are left, where a layer has many experts: there the
// samples are mostly noise, and each costs time. In a small layer every sample is its own kind.
constexpr size_t kManyExperts = 128;
constexpr double kSameKind = 0.01;
constexpr size_t kMaxKinds = 16;

constexpr double kSimilarDistance = 0.1;  // total variation distance at which similarity is 1 / e

// REQUIRES: a positive sum.
void scale_to(double sum, std::span<double> load) {
  const double scale = sum / std::accumulate(load.begin(), load.end(), 0.0);
  for (double& tokens : load) tokens *= scale;
}

double similarity(double distance) {
  const double x = distance / kSimilarDistance;
  return std::exp(-x * x);
}

double total_variation(std::span<const double> a, std::span<const double> b, double sum) {
  double distance = 0.0;
  for (size_t e = 0; e < a.size(); ++e) distance += std::abs(a[e] - b[e]);
  return distance / (2.0 * sum);
}

// The total variation distance to expect of two samples of the same load: each difference is
// normally distributed, and the mean of its absolute value is sqrt(2 / π) standard deviations.
double noise_distance(std::span<const double> a, std::span<const double> b, double sum,
                      double per_row) {
  double roots = 0.0;
  for (size_t e = 0; e < a.size(); ++e) roots += std::sqrt((a[e] + b[e]) / (2.0 * sum) * per_row);
  return roots * std::sqrt(2.0 / 3.14159265358979) / 2.0;
}

}  // namespace

SampleSet::SampleSet(int num_experts, int max_samples, double memory)
    : num_experts_(static_cast<size_t>(num_experts)),
      memory_(memory),
      loads_(num_experts_ * (static_cast<size_t>(max_samples) + 1)),
      expected_(num_experts_),
      mean_(num_experts_) {
  weight_.reserve(static_cast<size_t>(max_samples) + 1);
}

std::span<double> SampleSet::row(size_t sample) {
  return std::span<double>(loads_).subspan(sample * num_experts_, num_experts_);
}

std::span<const double> SampleSet::load(int sample) const {
  return std::span<const double>(loads_).subspan(static_cast<size_t>(sample) * num_experts_,
                                                 num_experts_);
}

void SampleSet::add(std::span<const double> tokens, double sample_tokens) {
  // A layer may have no token in a sample; it could not be scaled.
  const double rows = std::accumulate(tokens.begin(), tokens.end(), 0.0);
  if (rows == 0.0) return;
  rows_.push_back(rows);
  tokens_.push_back(sample_tokens);
  const std::span<double> load = row(weight_.size());
  std::copy(tokens.begin(), tokens.end(), load.begin());
  scale_to(num_ranks_, load);
  weight_.push_back(0.0);
}

void SampleSet::weigh() {
  double sum = 0.0;
  for (size_t i = 0; i < weight_.size(); ++i) {
    double distance = i == 0 ? 0.0 : total_variation(row(0), row(i), num_ranks_);
    if (open_ && i > 0) {
      const double noise =
          noise_distance(row(0), row(i), num_ranks_, 1.0 / rows_[0] + 1.0 / rows_[i]);
      distance = std::sqrt(std::max(0.0, distance * distance - noise * noise));
    }
    // Row 0 is the newest sample, whose similarity is 1: the sum is positive.
    sum += weight_[i] = similarity(distance) * tokens_[i];
  }
  const double tokens = std::accumulate(tokens_.begin(), tokens_.end(), 0.0);
  const double memory = memory_ * (open_ ? kMemoryBesideOpen : kMemory);
  for (size_t i = 0; i < weight_.size(); ++i) {
    weight_[i] = (1.0 - memory) * weight_[i] / sum + memory * tokens_[i] / tokens;
  }
}

// Towards the weighted mean of the others, those that resemble it first.
void SampleSet::shrink_newest() {
  if (weight_.size() < 2) return;
  const std::span<double> newest = row(0);
  std::fill(mean_.begin(), mean_.end(), 0.0);
  const double others = 1.0 - weight_[0];
  for (size_t i = 1; i < weight_.size(); ++i) {
    const std::span<const double> load = row(i);
    for (size_t e = 0; e < num_experts_; ++e) mean_[e] += weight_[i] / others * load[e];
  }
  double distance = 0.0, noise = 0.0;
  for (size_t e = 0; e < num_experts_; ++e) {
    const double both = (newest[e] + mean_[e]) / 2.0;
    if (both == 0.0) continue;
    distance += (newest[e] - mean_[e]) * (newest[e] - mean_[e]) / both / num_ranks_;
    noise += 1.0 / rows_[0];
  }
  const double own = distance > noise ? 1.0 - noise / distance : 0.0;
  for (size_t e = 0; e < num_experts_; ++e) {
    newest[e] = mean_[e] + own * (newest[e] - mean_[e]);
  }
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

// The divergence of a sample and a kind, without what noise explains.
double SampleSet::divergence(size_t sample, size_t kind) const {
  const double* a = loads_.data() + sample * num_experts_;
  const double* b = loads_.data() + kind * num_experts_;
  double sum = 0.0, experts = 0.0;
  for (size_t e = 0; e < num_experts_; ++e) {
    const double both = a[e] + b[e];
    const bool any = both > 0.0;
    sum += any ? (a[e] - b[e]) * (a[e] - b[e]) / both : 0.0;
    experts += any ? 1.0 : 0.0;
  }
  return 2.0 * sum / num_ranks_ - experts * (1.0 / rows_[sample] + 1.0 / rows_[kind]);
}

// Greedy, newest first: a sample joins the kind that it resembles most, or begins another.
void SampleSet::merge() {
  size_t kinds = 0;
  for (size_t i = 0; i < weight_.size(); ++i) {
    size_t nearest = kinds;
    double min = std::numeric_limits<double>::infinity();
    for (size_t kind = 0; kind < kinds; ++kind) {
      const double found = divergence(i, kind);
      if (found < min) min = found, nearest = kind;
    }
    if (nearest < kinds && (min < kSameKind || kinds == kMaxKinds)) {
      join(i, nearest);
      continue;
    }
    std::copy_n(row(i).begin(), num_experts_, row(kinds).begin());
    weight_[kinds] = weight_[i];
    rows_[kinds] = rows_[i];
    ++kinds;
  }
  weight_.resize(kinds);
}

void SampleSet::join(size_t sample, size_t kind) {
  const double sum = weight_[kind] + weight_[sample];
  const std::span<double> to = row(kind), from = row(sample);
  for (size_t e = 0; e < num_experts_; ++e) {
    to[e] = (weight_[kind] * to[e] + weight_[sample] * from[e]) / sum;
  }
  weight_[kind] = sum;
  rows_[kind] += rows_[sample];
}

void SampleSet::assign(const LoadWindow& window, int layer_idx, int num_ranks, double drift_margin,
                       bool with_open) {
  num_ranks_ = num_ranks;
  weight_.clear();
  tokens_.clear();
  rows_.clear();
  if (with_open) add(window.open(layer_idx), window.open_tokens());
  open_ = size() > 0;
  for (int age = 0; age < window.num_samples(); ++age) {
    add(window.sample(layer_idx, age), window.sample_tokens(age));
  }
  if (size() > 0) weigh();
  if (open_) shrink_newest();
  std::fill(expected_.begin(), expected_.end(), 0.0);
  std::fill(mean_.begin(), mean_.end(), 0.0);
  for (size_t i = 0; i < weight_.size(); ++i) {
    const std::span<const double> load = row(i);
    for (size_t e = 0; e < num_experts_; ++e) {
      expected_[e] += weight_[i] * load[e];
      mean_[e] += load[e] / static_cast<double>(weight_.size());
    }
  }
  if (num_experts_ >= kManyExperts) merge();
  if (drift_margin > 0.0) widen(drift_margin);
}

}  // namespace wideep::online
