// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embedding (arXiv:2104.09864) with linear, Llama 3 and YaRN (arXiv:2309.00071)
// scaling, as transformers computes it: frequencies and angles in float32.
//
// Thread safety: constant after construction.
#pragma once

#include <vector>

#include "kernels/kernels.h"
#include "model/config/config.h"

namespace wideep::model {

class Rope {
 public:
  // rope_dim: rotated dimensions of a head, even.
  Rope(const RopeConfig& config, int rope_dim);

  int dim() const { return 2 * static_cast<int>(inverse_frequencies_.size()); }

  // cos_sin: [dim] dim / 2 cosines, then dim / 2 sines of `position`, times the attention factor.
  void angles(int position, float* cos_sin) const;

  // Rotates one head in place. x: [dim].
  void rotate(const kernels::Kernels& kernels, const float* cos_sin, float* x) const {
    kernels.rotate(cos_sin, dim(), interleaved_, x);
  }

 private:
  std::vector<float> inverse_frequencies_;  // [dim / 2]
  float attention_factor_;
  bool interleaved_;
};

}  // namespace wideep::model
