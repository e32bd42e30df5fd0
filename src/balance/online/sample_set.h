// SPDX-License-Identifier: Apache-2.0
//
// One layer's samples of a load window with weights: the load that the layer is expected to have.
//
// Half of the weight goes to samples by their similarity to the newest: exp(−(d / 0.1)²) with the
// total variation distance d. Two samples of 2,048 tokens of the same kind are 0.02 to 0.07 apart,
// of two kinds of text 0.2 to 0.5. All samples share the other half by their tokens, because kinds
// of load come back.
//
// The newest may be the window's open sample. It has few tokens, so its distances are taken without
// the part that noise alone would explain, and what is left of its own load is its distance from
// the mean of the others as far as noise does not explain it (James and Stein's estimate): a load
// that was seen before is recognised from few tokens, and noise moves no experts.
//
// With 128 experts or more, samples whose loads differ by no more than noise are merged into one of
// their weight, and others with those that they resemble most, until at most 16 are left: size() is
// the number of kinds.
//
// Thread safety: plain value; allocates in the constructor only.
#pragma once

#include <span>
#include <vector>

#include "online/load_window.h"

namespace wideep::online {

class SampleSet {
 public:
  // memory: multiplies the part of the weight that all samples share, in (0, 1].
  SampleSet(int num_experts, int max_samples, double memory = 1.0);

  // Takes the layer's samples, except those without a token. Scales each to a mean rank load of 1.
  // drift_margin: increases a sample's distance from the mean of all samples by this part.
  // with_open: the open sample is the newest one.
  void assign(const LoadWindow& window, int layer_idx, int num_ranks, double drift_margin,
              bool with_open = false);

  int size() const { return static_cast<int>(weight_.size()); }
  double weight(int sample) const { return weight_[static_cast<size_t>(sample)]; }  // sum 1
  std::span<const double> load(int sample) const;                                   // [E] sum R
  std::span<const double> expected() const { return expected_; }  // [E] weighted mean, no margin

 private:
  std::span<double> row(size_t sample);
  void add(std::span<const double> tokens, double sample_tokens);
  void weigh();
  void shrink_newest();
  double divergence(size_t sample, size_t kind) const;
  void merge();
  void join(size_t sample, size_t kind);
  void widen(double drift_margin);

  size_t num_experts_;
  double memory_;
  double num_ranks_ = 1.0;
  bool open_ = false;             // row 0 is the open sample
  std::vector<double> loads_;     // [size, E]
  std::vector<double> weight_;    // [size]
  std::vector<double> tokens_;    // [size]
  std::vector<double> rows_;      // [size] tokens in experts
  std::vector<double> expected_;  // [E]
  std::vector<double> mean_;      // [E] unweighted
};

}  // namespace wideep::online
