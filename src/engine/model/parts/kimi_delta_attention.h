// SPDX-License-Identifier: Apache-2.0
//
// Kimi Delta Attention (arXiv:2510.26692): linear attention like a gated delta net's
// (gated_delta_net.h), whose state forgets each channel of the key at a rate of its own.
//
//   q, k, v = silu(causal convolution of projections of h over the tokens)
//   q, k    = l2-normalised per head; q · head_dim^-½
//   f, g    = projections of h, each one matrix or two of a low rank
//   beta    = σ(b), b a projection of h, a number per head
//   decay   = e^(−exp(A_log) · softplus(f + dt_bias)), or, with a bound below,
//             e^(bound · σ(exp(A_log) · (f + dt_bias)))
//   o       = the delta rule with a decay for each channel (kernels/delta_rule.h)
//   out     = o_proj(rms_norm(o) · σ(g))
//
// Always token after token from the state of the sequence (state_layout.h), never by chunks, so
// that bits do not depend on how a prompt is cut.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/model_forms.h"
#include "model/parts/part_cost.h"
#include "model/parts/state_mixer.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class KimiDeltaAttention : public StateMixer {
 public:
  static Result<std::unique_ptr<Mixer>> load(const ModelConfig& config, int layer,
                                             const weights::WeightLoader& loader);

 protected:
  Output output() const override {
    return {.units = units_.units,
            .unit_columns = options_.head_dim,
            .hidden_size = config_.hidden_size,
            .matrix = o_.packed};
  }
  void advance(const MixerCall& call, const StateRows& rows) const override;

 private:
  // A product with h, by one matrix or by two: second · (first · h).
  struct Projection {
    weights::Matrix first;   // [width or rank, hidden]
    weights::Matrix second;  // [width, rank]; unused if rank is 0
    int rank = 0;
  };
  // What the heads take of each token. Only the columns of own heads are computed.
  struct Inputs {
    float* mixed = nullptr;  // [num_tokens, 3 · width] queries, keys, values
    float* decay = nullptr;  // [num_tokens, width]; before prepare_head(): f
    float* gate = nullptr;   // [num_tokens, width]
    float* beta = nullptr;   // [num_tokens, num_heads]; before prepare_head(): b
    float* out = nullptr;    // [num_tokens, width] StateRows::out
  };
  // Tokens of one sequence, one after the other, for one head.
  struct HeadTokens {
    size_t first = 0;
    int count = 0;
    size_t head = 0;
  };

  KimiDeltaAttention(const ModelConfig& config, int layer)
      : config_(config),
        options_(config.kimi_delta),
        layer_(layer),
        units_(kimi_delta_cost(config).units) {}
  Result<Projection> load_projection(const weights::WeightLoader& loader, const LayerForms& forms,
                                     const std::string& name, int rank) const;
  Status load_convolutions(const weights::WeightLoader& loader, const std::string& prefix);
  Status load_decay(const weights::WeightLoader& loader, const std::string& prefix);

  Inputs project_inputs(const MixerCall& call, const StateRows& rows) const;
  // unit: the head's number among own heads.
  void run_head(const MixerCall& call, const StateRows& rows, const Inputs& inputs,
                const TokenRun& run, size_t unit) const;
  void convolve(const MixerCall& call, const Inputs& inputs, const HeadTokens& tokens,
                float* state) const;
  void prepare_head(const MixerCall& call, const Inputs& inputs, const HeadTokens& tokens) const;
  void recur(const MixerCall& call, const Inputs& inputs, const HeadTokens& tokens,
             float* state) const;
  void gate(const MixerCall& call, const Inputs& inputs, const HeadTokens& tokens) const;
  void set_decays(size_t head, float* decay) const;

  const ModelConfig& config_;
  const KimiDeltaConfig& options_;
  int layer_;
  StateUnits units_;
  weights::Matrix q_, k_, v_;  // [width, hidden]
  Projection f_, g_;
  weights::Matrix b_;               // [num_heads, hidden]
  std::vector<float> convolution_;  // [convolution_width, 3 · width]
  std::vector<float> rate_;         // [num_heads] exp(A_log)
  std::vector<float> dt_bias_;      // [width]
  std::vector<float> norm_;         // [head_dim]
  weights::Matrix o_;               // [hidden, width]
};

}  // namespace wideep::model
