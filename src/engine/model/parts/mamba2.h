// SPDX-License-Identifier: Apache-2.0
//
// Mamba-2 (arXiv:2405.21060) as in Granite 4 and Nemotron-H: a state-space model, whose state has
// the same size for any context.
//
//   z, x, b, c, a   = projection of h
//   x, b, c         = silu(causal convolution over the tokens)
//   step            = softplus(a + dt_bias), within the limits of the config
//   o               = Mamba-2's recurrence (kernels/state_space.h), decay e^(−exp(A_log) · step).
//                     Head i uses b and c of group i / (heads / groups)
//   out             = out_proj(rms_norm(o · silu(z))), a norm for each group of heads
//
// A unit of the state is a head with its group's b and c, which heads of other ranks may read, too.
//
// Always token after token from the state of the sequence (state_layout.h), never by chunks, so
// that bits do not depend on how a prompt is cut. (transformers applies the limits of the step only
// to prompts; here they hold for every token.)
#pragma once

#include <memory>
#include <vector>

#include "model/parts/norms.h"
#include "model/parts/part_cost.h"
#include "model/parts/state_mixer.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class Mamba2 : public StateMixer {
 public:
  static Result<std::unique_ptr<Mixer>> load(const ModelConfig& config, int layer,
                                             const weights::WeightLoader& loader);

 protected:
  Output output() const override {
    return {.units = units_.units,
            .unit_columns = options_.head_dim,
            .hidden_size = config_.hidden_size,
            .matrix = out_.packed,
            .bias = bias_of(out_bias_)};
  }
  void advance(const MixerCall& call, const StateRows& rows) const override;
  // Norms of groups span heads of all ranks.
  const float* finish(const MixerCall& call, const float* heads) const override;

 private:
  Mamba2(const ModelConfig& config, int layer)
      : config_(config),
        options_(config.mamba2),
        layer_(layer),
        units_(mamba2_cost(config).units) {}
  Status load_convolution(const weights::WeightLoader& loader, const std::string& prefix);

  int heads_of_group() const { return options_.num_heads / options_.num_groups; }
  int unit_channels() const { return options_.head_dim + 2 * options_.state_dim; }

  // What the recurrence takes of each token: a row of the projection, in which it is changed in
  // place, and the decay. Only the columns of own heads and their groups are computed.
  struct Inputs {
    float* z = nullptr;      // value_width() elements of a row
    float* mixed = nullptr;  // convolved_width(): x, b, c
    float* step = nullptr;   // num_heads; before prepare_heads(): a
    size_t stride = 0;       // of rows
    float* decay = nullptr;  // [num_tokens, num_heads]
  };
  // What all steps of a layer read.
  struct Step {
    const MixerCall& call;
    const StateRows& rows;
    Inputs inputs;
  };
  // Columns of `mixed` that are convolved together, and the own heads whose units keep them.
  struct Channels {
    int begin = 0;
    int size = 0;
    int kept = 0;  // where they begin in a row of a unit
    UnitRange heads;
  };
  Inputs inputs(const MixerCall& call, const StateRows& rows) const;
  std::vector<Channels> channels_of(UnitRange own) const;
  void convolve(const Step& step, const TokenRun& run, const Channels& channels) const;
  void convolve(const Step& step) const;
  void prepare_heads(const Step& step) const;
  void recur(const Step& step) const;
  void gate(const Step& step) const;

  const ModelConfig& config_;
  const Mamba2Config& options_;
  int layer_;
  StateUnits units_;
  weights::Matrix in_;  // [projected_width, hidden]
  std::vector<float> in_bias_;
  std::vector<float> convolution_;       // [width, convolved_width]
  std::vector<float> convolution_bias_;  // [convolved_width], or none
  std::vector<float> decay_;             // [num_heads] exp(A_log)
  std::vector<float> step_bias_;         // [num_heads]
  std::vector<float> skip_;              // [num_heads] D
  std::vector<float> norm_;              // [value_width]
  weights::Matrix out_;                  // [hidden, value_width]
  std::vector<float> out_bias_;
};

}  // namespace wideep::model
