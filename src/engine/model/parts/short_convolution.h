// SPDX-License-Identifier: Apache-2.0
//
// The short convolutions of LFM2 (arXiv:2511.23404): a depthwise convolution over the last few
// tokens between two gates.
//
//   b, c, x = in_proj(h)
//   out     = out_proj(c · causal convolution(b · x))
#pragma once

#include <memory>
#include <vector>

#include "model/parts/part_cost.h"
#include "model/parts/state_mixer.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class ShortConvolution : public StateMixer {
 public:
  static Result<std::unique_ptr<Mixer>> load(const ModelConfig& config, int layer,
                                             const weights::WeightLoader& loader);

 protected:
  Output output() const override;
  void advance(const MixerCall& call, const StateRows& rows) const override;

 private:
  ShortConvolution(const ModelConfig& config, int layer)
      : config_(config), layer_(layer), units_(convolution_cost(config).units) {}

  const ModelConfig& config_;
  int layer_;
  StateUnits units_;                              // of some channels each
  weights::Matrix in_;                            // [3 × hidden, hidden]
  weights::Matrix out_;                           // [hidden, hidden]
  std::vector<float> convolution_;                // [width, hidden]
  std::vector<float> in_bias_, bias_, out_bias_;  // empty: none
};

}  // namespace wideep::model
