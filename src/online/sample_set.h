// SPDX-License-Identifier: Apache-2.0
//
// One layer's samples of a load window with weights: the load that the layer is expected to have.
//
// Half of the weight goes to samples by their similarity to the newest: exp(−(d / 0.1)²) with the
// total variation distance d. Two samples of 2,048 tokens of the same kind are 0.02 to 0.07 apart,
// of two kinds of text 0.2 to 0.5. All samples share the other half equally, because kinds of load
// come back.
//
// Thread safety: plain value; allocates in the constructor only.
#pragma once

#include <span>
#include <vector>

#include "online/load_window.h"

namespace wideep::online {

class SampleSet {
 public:
  SampleSet(int num_experts, int max_samples);

  // Takes the layer's samples, except those without a token. Scales each to a mean rank load of 1.
  // drift_margin: increases a sample's distance from the mean of all samples by this part.
  void assign(const LoadWindow& window, int layer_idx, int num_ranks, double drift_margin);

  int size() const { return static_cast<int>(weight_.size()); }
  double weight(int sample) const { return weight_[static_cast<size_t>(sample)]; }  // sum 1
  std::span<const double> load(int sample) const;                                   // [E] sum R
  std::span<const double> expected() const { return expected_; }  // [E] weighted mean, no margin

 private:
  std::span<double> row(size_t sample);
  void add(std::span<const double> tokens);
  void weigh();
  void widen(double drift_margin);

  size_t num_experts_;
  double num_ranks_ = 1.0;
  std::vector<double> loads_;     // [size, E]
  std::vector<double> weight_;    // [size]
  std::vector<double> expected_;  // [E]
  std::vector<double> mean_;      // [E] unweighted
};

}  // namespace wideep::online
