// SPDX-License-Identifier: Apache-2.0
//
// A gated delta net (arXiv:2412.06464) as in Qwen3-Next: linear attention whose state has the same
// size for any context.
//
//   q, k, v, z, b, a = projections of h
//   q, k, v          = silu(causal convolution over the tokens)
//   q, k             = l2-normalised per head; q · key_dim^-½. Value head i uses key head
//                      i / (value heads / key heads)
//   beta, decay      = σ(b), exp(−exp(A_log) · softplus(a + dt_bias))
//   o                = the gated delta rule (kernels/delta_rule.h)
//   out              = out_proj(rms_norm(o) · silu(z))
//
// Always token after token from the state of the sequence (state_layout.h), never by chunks, so
// that bits do not depend on how a prompt is cut.
#pragma once

#include <memory>
#include <vector>

#include "model/parts/part_cost.h"
#include "model/parts/state_mixer.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class GatedDeltaNet : public StateMixer {
 public:
  static Result<std::unique_ptr<Mixer>> load(const ModelConfig& config, int layer,
                                             const weights::WeightLoader& loader);

 protected:
  Output output() const override {
    return {.units = units_.units,
            .unit_columns = options_.value_width() / options_.num_key_heads,
            .hidden_size = config_.hidden_size,
            .matrix = o_.packed};
  }
  void advance(const MixerCall& call, const StateRows& rows) const override;

 private:
  GatedDeltaNet(const ModelConfig& config, int layer)
      : config_(config),
        options_(config.delta_net),
        layer_(layer),
        units_(delta_net_cost(config).units) {}
  Status load_projections(const weights::WeightLoader& loader, const std::string& prefix);
  Status load_convolution(const weights::WeightLoader& loader, const std::string& prefix);

  // The heads of this rank, and where a unit of the state has what.
  struct Heads {
    int first_key = 0, num_keys = 0;
    int first_value = 0, num_values = 0;
    int group = 1;          // value heads of a key head
    int unit_channels = 0;  // of the convolution
    int unit_floats = 0;
  };
  Heads heads_of(const StateRows& rows) const;
  // What the recurrence takes of each token. Only the columns of own heads are computed.
  struct Inputs {
    float* mixed = nullptr;  // [num_tokens, convolved_width] queries, keys, values
    float* z = nullptr;      // [num_tokens, value_width]
    float* beta = nullptr;   // [num_tokens, num_value_heads]; before prepare_heads(): b
    float* decay = nullptr;  // [num_tokens, num_value_heads]; before: a
  };
  // What all steps of a layer read.
  struct Step {
    const MixerCall& call;
    const StateRows& rows;
    Heads heads;
    Inputs inputs;
  };
  Inputs inputs(const MixerCall& call, const StateRows& rows, const Heads& heads) const;
  void project_fused(const MixerCall& call, const StateRows& rows, const Heads& heads,
                     const Inputs& inputs) const;
  void separate(const Step& step, const float* fused, const float* gates) const;
  void convolve(const Step& step) const;
  void prepare_heads(const Step& step) const;
  void recur(const Step& step) const;
  void gate(const Step& step) const;

  const ModelConfig& config_;
  const DeltaNetConfig& options_;
  int layer_;
  StateUnits units_;  // of a key head and its value heads each
  // Fused: [2 · (key_width + value_width), hidden] and [2 · num_value_heads, hidden], grouped by
  // key head. Else qkv_ [convolved_width, hidden], z_ [value_width, hidden], b_ and a_
  // [num_value_heads, hidden].
  weights::Matrix qkvz_, ba_;
  weights::Matrix qkv_, z_, b_, a_;
  std::vector<float> convolution_;  // [width, convolved_width]
  std::vector<float> decay_;        // [num_value_heads] exp(A_log)
  std::vector<float> dt_bias_;      // [num_value_heads]
  std::vector<float> norm_;         // [value_dim]
  weights::Matrix o_;               // [hidden, value_width]
};

}  // namespace wideep::model
