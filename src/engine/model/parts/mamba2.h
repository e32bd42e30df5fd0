// SPDX-License-Identifier: Apache-2.0
//
// Mamba-2 (arXiv:2405.21060) as in Granite 4 and Nemotron-H: a state-space model, whose state has
// the same size for any context.
//
//   z, x, b, c, a   = projection of h
//   x, b, c         = silu(causal convolution over the tokens)
//   step            = softplus(a + dt_bias), within the limits of the config
//   o               = Mamba-2's recurrence with decay e^(−exp(A_log) · step) (kernels/state_space.h).
//                     Head i uses b and c of group i / (heads / groups)
//   out             = out_proj(rms_norm(o · silu(z))), a norm for each group of heads
//
// Always token after token from the state of the sequence (state_layout.h), never by chunks, so
// that bits do not depend on how a prompt is cut. (transformers applies the limits of the step only
// to prompts; here they hold for every token.)
#pragma once

#include <memory>
#include <vector>

#include "model/parts/mixer.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class Mamba2 : public Mixer {
 public:
  static Result<std::unique_ptr<Mixer>> load(const ModelConfig& config, int layer,
                                             const weights::WeightLoader& loader);

  // REQUIRES: call.group is one rank, call.batch has states.
  Result<const float*> forward(const MixerCall& call, const float* h) const override;

 private:
  Mamba2(const ModelConfig& config, int layer)
      : config_(config), options_(config.mamba2), layer_(layer) {}
  Status load_convolution(const weights::WeightLoader& loader, const std::string& prefix);

  // What the recurrence takes of each token: a row of the projection, in which it is changed in
  // place, and the decay.
  struct Inputs {
    float* z = nullptr;      // value_width() elements of a row
    float* mixed = nullptr;  // convolved_width(): x, b, c
    float* step = nullptr;   // num_heads; before prepare_heads(): a
    size_t stride = 0;       // of rows
    float* decay = nullptr;  // [num_tokens, num_heads]
  };
  Inputs inputs(const MixerCall& call, const float* h) const;
  void convolve(const MixerCall& call, const Inputs& inputs) const;
  void prepare_heads(const MixerCall& call, const Inputs& inputs) const;
  void recur(const MixerCall& call, const Inputs& inputs, float* out) const;
  void gate(const MixerCall& call, const Inputs& inputs, float* out) const;

  const ModelConfig& config_;
  const Mamba2Config& options_;
  int layer_;
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
