// SPDX-License-Identifier: Apache-2.0
#include "online/load_window.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace wideep::online {

LoadWindow::LoadWindow(const LoadShape& shape, const WindowOptions& options)
    : shape_(shape),
      options_(options),
      model_(static_cast<size_t>(shape.num_layers) * static_cast<size_t>(shape.num_experts)),
      iteration_(model_),
      samples_(model_ * (static_cast<size_t>(options.num_samples) + 1)),
      decayed_(model_) {}

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

// The ring has one sample more than it keeps, so that the open one never replaces a complete one.
void LoadWindow::close_sample() {
  ++samples_completed_;
  open_ = (open_ + 1) % (static_cast<size_t>(options_.num_samples) + 1);
  open_tokens_ = 0.0;
  const std::span<double> sample = open_sample();
  std::fill(sample.begin(), sample.end(), 0.0);
}

int LoadWindow::num_samples() const {
  return static_cast<int>(std::min<int64_t>(samples_completed_, options_.num_samples));
}

std::span<const double> LoadWindow::sample(int layer_idx, int age) const {
  const size_t count = static_cast<size_t>(options_.num_samples) + 1;
  const size_t index = (open_ + count - 1 - static_cast<size_t>(age)) % count;
  return std::span<const double>(samples_).subspan(index * model_ + row(layer_idx),
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
