// SPDX-License-Identifier: Apache-2.0
//
// Whether the text has changed takes two conditions, because each alone is wrong at one end: with
// few tokens noise looks like a large divergence, and with many tokens a divergence that does not
// matter is far beyond noise. The counts are compared before they are added, so that the open
// sample stays of one kind. Samples form a ring with one place more than is kept: the open sample
// never overwrites a complete one.
#include "online/load_window.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace wideep::online {
namespace {

// A closed sample of fewer tokens than 1 / 16 of a full one is not worth its place: it is dropped.
constexpr double kMinKept = 1.0 / 16.0;

// The chi-square statistic of two samples of counts and its degrees of freedom: by noise alone the
// statistic is about as large as the degrees, ± sqrt(2 · degrees). Divided by `scale` it is the
// divergence of the loads, sum over experts of (p − q)² / mean of both.
struct ChiSquare {
  double statistic = 0.0;
  double degrees = 0.0;
  double scale = 0.0;
};

ChiSquare compare(std::span<const double> a, std::span<const double> b) {
  const double rows_a = std::accumulate(a.begin(), a.end(), 0.0);
  const double rows_b = std::accumulate(b.begin(), b.end(), 0.0);
  if (rows_a == 0.0 || rows_b == 0.0) return {};
  ChiSquare result{.degrees = -1.0, .scale = rows_a * rows_b / (rows_a + rows_b)};
  for (size_t e = 0; e < a.size(); ++e) {
    const double both = a[e] + b[e];
    if (both == 0.0) continue;
    const double difference = a[e] / rows_a - b[e] / rows_b;
    result.statistic += result.scale * (rows_a + rows_b) * difference * difference / both;
    result.degrees += 1.0;
  }
  return result;
}

// How unlikely it is by noise alone, in standard deviations of a normal distribution (Wilson and
// Hilferty: the cube root of a chi-square variable is nearly normal).
double deviations(const ChiSquare& found) {
  if (found.degrees <= 0.0) return 0.0;
  const double part = 2.0 / (9.0 * found.degrees);
  return (std::cbrt(found.statistic / found.degrees) - (1.0 - part)) / std::sqrt(part);
}

}  // namespace

LoadWindow::LoadWindow(const LoadShape& shape, const WindowOptions& options)
    : shape_(shape),
      options_(options),
      model_(static_cast<size_t>(shape.num_layers) * static_cast<size_t>(shape.num_experts)),
      iteration_(model_),
      samples_(model_ * (static_cast<size_t>(options.num_samples) + 1)),
      decayed_(model_),
      tokens_(static_cast<size_t>(options.num_samples) + 1) {}

size_t LoadWindow::row(int layer_idx) const {
  return static_cast<size_t>(layer_idx) * static_cast<size_t>(shape_.num_experts);
}

template <typename Count>
void LoadWindow::add_counts(int layer_idx, std::span<const Count> counts) {
  WIDEEP_CHECK_EQ(counts.size(), static_cast<size_t>(shape_.num_experts));
  double* load = iteration_.data() + row(layer_idx);
  for (size_t e = 0; e < counts.size(); ++e) load[e] += static_cast<double>(counts[e]);
}

void LoadWindow::add(int layer_idx, std::span<const int64_t> counts) {
  add_counts(layer_idx, counts);
}
void LoadWindow::add(int layer_idx, std::span<const int32_t> counts) {
  add_counts(layer_idx, counts);
}

std::span<double> LoadWindow::open_sample() {
  return std::span<double>(samples_).subspan(open_ * model_, model_);
}

void LoadWindow::end_iteration() {
  const double rows = std::accumulate(iteration_.begin(), iteration_.end(), 0.0);
  if (rows == 0.0) return;
  if (text_changed()) {
    close_sample();
    new_text_ = true;
  }
  const std::span<double> sample = open_sample();
  for (size_t i = 0; i < model_; ++i) {
    sample[i] += iteration_[i];
    decayed_[i] = decayed_[i] * options_.decay + iteration_[i];
  }
  std::fill(iteration_.begin(), iteration_.end(), 0.0);
  ++num_iterations_;
  // Each token has top_k rows in every layer.
  open_tokens_ += rows / (shape_.num_layers * shape_.top_k);
  if (open_tokens_ >= static_cast<double>(options_.sample_tokens)) close_sample();
}

// All layers together: one layer's counts in a small iteration show little.
bool LoadWindow::text_changed() const {
  if (open_tokens_ == 0.0) return false;
  ChiSquare sum;
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    const ChiSquare one =
        compare(std::span(iteration_).subspan(row(layer), static_cast<size_t>(shape_.num_experts)),
                open(layer));
    sum.statistic += one.statistic;
    sum.degrees += one.degrees;
    sum.scale += one.scale;
  }
  return sum.statistic - sum.degrees > kOtherText * sum.scale && deviations(sum) > kOtherTextNoise;
}

// The ring has one sample more than it keeps, so that the open one never replaces a complete one.
void LoadWindow::close_sample() {
  if (open_tokens_ >= kMinKept * static_cast<double>(options_.sample_tokens)) {
    tokens_[open_] = open_tokens_;
    ++samples_completed_;
    open_ = (open_ + 1) % (static_cast<size_t>(options_.num_samples) + 1);
  }
  open_tokens_ = 0.0;
  new_text_ = false;
  const std::span<double> sample = open_sample();
  std::fill(sample.begin(), sample.end(), 0.0);
}

int LoadWindow::num_samples() const {
  return static_cast<int>(std::min<int64_t>(samples_completed_, options_.num_samples));
}

size_t LoadWindow::index_of(int age) const {
  const size_t count = static_cast<size_t>(options_.num_samples) + 1;
  return (open_ + count - 1 - static_cast<size_t>(age)) % count;
}

std::span<const double> LoadWindow::sample(int layer_idx, int age) const {
  return std::span<const double>(samples_).subspan(index_of(age) * model_ + row(layer_idx),
                                                   static_cast<size_t>(shape_.num_experts));
}

double LoadWindow::sample_tokens(int age) const { return tokens_[index_of(age)]; }

std::span<const double> LoadWindow::open(int layer_idx) const {
  return std::span<const double>(samples_).subspan(open_ * model_ + row(layer_idx),
                                                   static_cast<size_t>(shape_.num_experts));
}

std::span<const double> LoadWindow::decayed(int layer_idx) const {
  return std::span<const double>(decayed_).subspan(row(layer_idx),
                                                   static_cast<size_t>(shape_.num_experts));
}

void LoadWindow::forget_decayed(int layer_idx) {
  std::fill_n(decayed_.begin() + static_cast<std::ptrdiff_t>(row(layer_idx)), shape_.num_experts,
              0.0);
}

}  // namespace wideep::online
