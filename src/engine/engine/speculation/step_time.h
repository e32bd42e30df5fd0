// SPDX-License-Identifier: Apache-2.0
//
// Predicts how long a step with so many tokens takes, from the steps before it.
//
//   time(N) = a + b · D(N) + c · N
//
// D(N) is the expected number of distinct experts that N tokens choose in a MoE layer: a step that
// verifies drafts reads more experts than one that does not, which is most of its price where
// weights are read from memory. It follows from the experts' loads, as measured lately. a, b and c
// are fitted to the measured times by recursive least squares with directional forgetting (Kulhavý
// 1987, "Restricted exponential forgetting in real-time identification"), starting with values that
// follow from the sizes of the weights.
//
// Deterministic: ranks that observe the same predict the same. Not thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace wideep::engine {

// Expected distinct experts of a layer, mean over the MoE layers.
class ExpertSpread {
 public:
  // REQUIRES: 1 ≤ top_k ≤ num_experts.
  ExpertSpread(int num_experts, int top_k);

  // The tokens of an iteration per expert, of the MoE layer with this index.
  void add(int layer, std::span<const int32_t> counts);
  // Takes over what was added; call it now and then.
  void update();
  // Without counts: as if all experts were chosen equally often.
  double distinct(int tokens) const;

 private:
  static constexpr int kPoints = 11;  // of the curve: 1, 2, 4 … 1024 tokens
  int num_experts_, top_k_;
  std::vector<std::vector<double>> loads_;  // [layers][experts], decaying
  std::array<double, kPoints> curve_ = {};
};

struct StepTimeOptions {
  // Of a step with one token: the share of the time that reads weights which all tokens use.
  double dense_share = 0.5;
  // What a token adds where no weight is read, as a share of that time.
  double token_share = 0.02;
};

class StepTime {
 public:
  // REQUIRES: spread outlives this.
  StepTime(const ExpertSpread& spread, const StepTimeOptions& options);

  void observe(int tokens, double seconds);
  bool has_observed() const { return num_observed_ > 0; }
  // Seconds; REQUIRES: has_observed().
  double predict(int tokens) const;

 private:
  using Vector = std::array<double, 3>;
  Vector features(int tokens) const;

  const ExpertSpread& spread_;
  StepTimeOptions options_;
  Vector parameters_ = {};
  std::array<Vector, 3> covariance_ = {};
  int64_t num_observed_ = 0;
};

}  // namespace wideep::engine
