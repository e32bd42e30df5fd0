// SPDX-License-Identifier: Apache-2.0
//
// In what form each matrix of a model is packed: what loading decides, and what the memory it needs
// is planned from.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "weights/expert_record.h"

namespace wideep::model {

// Of a layer, but for its routed experts. Routers are always float32.
struct LayerForms {
  weights::MatrixForm input;  // of the attention's matrices that multiply the layer's input
  weights::MatrixForm q_b;    // of latent attention with a low rank; else unused
  weights::MatrixForm output;
  weights::MatrixForm mlp;  // of a dense layer or the shared expert; else unused
};

struct ModelForms {
  Dtype row_dtype = Dtype::kBf16;  // of the embedding, and of activations between products
  weights::MatrixForm experts;
  weights::MatrixForm lm_head;
  std::vector<LayerForms> layers;

  // The formats of attention, MLPs and experts: "int8", or "int8, nvfp4" of a mixed checkpoint.
  std::string format_names() const;
};

LayerForms layer_forms(const ModelConfig& config, int layer, const weights::WeightLoader& loader);

// Looks at the tensors' names, dtypes and shapes only.
ModelForms model_forms(const ModelConfig& config, const weights::WeightLoader& loader);

// All matrices in one format.
ModelForms uniform_forms(const ModelConfig& config, kernels::WeightFormat format);

// "model.layers.<layer>.mlp.experts.<expert>", without a dot at the end.
std::string expert_prefix(int layer, int expert);

// The form of all routed experts: one, so that any slot can hold any of them.
// num_slices: into which each of them is cut.
weights::ExpertShape experts_shape(const ModelConfig& config, const weights::WeightLoader& loader,
                                   int num_slices = 1);

}  // namespace wideep::model
