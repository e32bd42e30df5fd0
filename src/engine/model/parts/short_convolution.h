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

#include "model/parts/mixer.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class ShortConvolution : public Mixer {
 public:
  static Result<std::unique_ptr<Mixer>> load(const ModelConfig& config, int layer,
                                             const weights::WeightLoader& loader);

  // REQUIRES: call.group is one rank, call.batch has states.
  Result<const float*> forward(const MixerCall& call, const float* h) const override;

 private:
  ShortConvolution(const ModelConfig& config, int layer) : config_(config), layer_(layer) {}

  const ModelConfig& config_;
  int layer_;
  weights::Matrix in_;                            // [3 × hidden, hidden]
  weights::Matrix out_;                           // [hidden, hidden]
  std::vector<float> convolution_;                // [width, hidden]
  std::vector<float> in_bias_, bias_, out_bias_;  // empty: none
};

}  // namespace wideep::model
