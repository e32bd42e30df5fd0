// SPDX-License-Identifier: Apache-2.0
//
// The gated MLP: down(silu(gate(x)) · up(x)); dense layers, shared experts and routed experts
// alike.
#pragma once

#include "model/compute.h"
#include "weights/expert_record.h"

namespace wideep::model {

// Memory of one thread for MLPs.
struct MlpScratch {
  Scratch gate_up, cast, input;
};

// y[num_rows, hidden] = mlp(x), on all threads.
void mlp_forward(const Compute& compute, const weights::GatedMlp& mlp, const Rows& x, float* y,
                 size_t y_stride, MlpScratch& scratch);

// The same on the calling thread.
void mlp_forward_alone(const kernels::Kernels& kernels, const weights::GatedMlp& mlp, const Rows& x,
                       float* y, size_t y_stride, MlpScratch& scratch);

}  // namespace wideep::model
