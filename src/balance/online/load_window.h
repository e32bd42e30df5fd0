// SPDX-License-Identifier: Apache-2.0
//
// The recent load of every MoE layer, from which the online balancer plans.
//
// Two records of the same counts:
//
//   samples   tokens per expert of the last iterations, grouped until a group holds sample_tokens
//             tokens, as one large iteration would have, or until the text changes: an iteration
//             whose load differs from the open sample's begins a sample of its own, so that no
//             sample mixes two kinds of text, and the new kind is seen from its first tokens on.
//             An engine that decodes 32 tokens of one kind at a time gets a sample every 64
//             iterations.
//   decayed   load · decay + counts, each iteration: TensorRT-LLM's expertLoadFactor. It is set to
//             zero (forget_decayed) when a layer has been planned from it.
//
//   LoadWindow window({.num_layers = 24, .num_experts = 32, .top_k = 4}, {});
//   for (int layer = 0; layer < 24; ++layer) window.add(layer, counts[layer]);  // all ranks' sum
//   window.end_iteration();
//
// Allocates in the constructor only. Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace wideep::online {

struct LoadShape {
  int num_layers = 0;   // MoE layers, ≥ 1
  int num_experts = 0;  // E, ≥ 1
  int top_k = 0;        // experts per token, ≥ 1
};

// A text has changed if its load differs by this much at least (chi-square divergence, the expected
// noise subtracted, mean over layers), and by more than noise does. Iterations of 512 tokens of one
// kind of text are 0 to 0.25 apart, of two kinds 0.55 to 1.2 (DeepSeek-V2-Lite, reference model).
inline constexpr double kOtherText = 0.3;
// Standard deviations of noise: a false alarm in 30,000 iterations of one kind of load.
inline constexpr double kOtherTextNoise = 4.0;

struct WindowOptions {
  int64_t sample_tokens = 2048;  // ≥ 1
  int num_samples = 32;          // that are kept, ≥ 1
  double decay = 0.9;            // per iteration, in [0, 1]
};

class LoadWindow {
 public:
  LoadWindow(const LoadShape& shape, const WindowOptions& options);

  // Adds tokens per expert, [E], ≥ 0, of a layer in the present iteration; several calls for one
  // layer add up.
  void add(int layer_idx, std::span<const int64_t> counts);
  void add(int layer_idx, std::span<const int32_t> counts);

  // Ends the iteration and adds its counts to both records. One without a token changes nothing.
  void end_iteration();

  const LoadShape& shape() const { return shape_; }
  int64_t num_iterations() const { return num_iterations_; }  // that had tokens

  int num_samples() const;                                          // complete, ≤ the options'
  std::span<const double> sample(int layer_idx, int age) const;     // [E] tokens; age 0: the newest
  double sample_tokens(int age) const;                              // fewer where the text changed
  int64_t samples_completed() const { return samples_completed_; }  // ever

  // The sample that is not complete.
  std::span<const double> open(int layer_idx) const;  // [E] tokens
  double open_tokens() const { return open_tokens_; }
  // It is the first since the text changed.
  bool open_is_new_text() const { return new_text_; }

  std::span<const double> decayed(int layer_idx) const;  // [E]
  void forget_decayed(int layer_idx);

 private:
  template <typename Count>
  void add_counts(int layer_idx, std::span<const Count> counts);
  size_t row(int layer_idx) const;
  std::span<double> open_sample();
  size_t index_of(int age) const;
  bool text_changed() const;
  void close_sample();

  LoadShape shape_;
  WindowOptions options_;
  size_t model_;                   // L · E
  std::vector<double> iteration_;  // [L, E] of the present iteration
  std::vector<double> samples_;    // [num_samples + 1, L, E] a ring: one of them is open
  std::vector<double> decayed_;    // [L, E]
  std::vector<double> tokens_;     // [num_samples + 1] of each sample
  size_t open_ = 0;                // index of the open sample
  double open_tokens_ = 0.0;
  bool new_text_ = false;
  int64_t samples_completed_ = 0;
  int64_t num_iterations_ = 0;
};

}  // namespace wideep::online
