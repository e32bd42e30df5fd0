// SPDX-License-Identifier: Apache-2.0
//
// Predicts how long a step with so many tokens takes, from the steps before it.
//
//   time(N) = a + b · D(N) + c · N + d · M(N)
//
// D(N) is the expected number of distinct experts that N tokens choose in a MoE layer: a step that
// verifies drafts reads more experts than one that does not, which is most of its price where
// weights are read from memory. It follows from the experts' loads, as measured lately.
//
// M(N) is how many of them are not in memory and have to be read from a disk: d is the price of a
// miss. It is counted in each step, and expected to be m · D(N), with the mean m of late. So when
// memory has filled, or a new text chooses other experts, all lengths cost at once what they do
// now; without M(N) those that do not run would be expected to cost what they did. The true M(N)
// grows a little faster than D(N), since longer steps choose rarer experts. To learn how much,
// steps of all lengths would have to be tried for its sake.
//
// a to d are fitted to the measured times by recursive least squares with directional forgetting
// (Kulhavý 1987, "Restricted exponential forgetting in real-time identification"), starting with
// values that follow from the sizes of the weights.
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

  // misses: of the distinct experts that the step chose, those that were not in memory, mean over
  // the MoE layers.
  void observe(int tokens, double seconds, double misses = 0.0);
  bool has_observed() const { return num_observed_ > 0; }
  // Seconds; REQUIRES: has_observed().
  double predict(int tokens) const;

 private:
  using Vector = std::array<double, 4>;
  Vector features(int tokens, double misses) const;

  const ExpertSpread& spread_;
  StepTimeOptions options_;
  Vector parameters_ = {};
  std::array<Vector, 4> covariance_ = {};
  double miss_share_ = 0.0;  // m, of late
  int64_t num_observed_ = 0;
};

}  // namespace wideep::engine
