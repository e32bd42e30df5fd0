// SPDX-License-Identifier: Apache-2.0
//
// The form in which each matrix of a model is packed. Loading and the memory plan both use it.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/tensor_list.h"
#include "weights/expert_record.h"

namespace wideep::model {

// The matrices of a layer without its routed experts. Routers are always float32.
struct LayerForms {
  weights::MatrixForm input;  // the mixer's matrices that multiply the layer's input
  weights::MatrixForm gates;  // small ones of a delta net, or latent attention's; else unused
  weights::MatrixForm q_b;    // second ones of products by two matrices; else unused
  weights::MatrixForm index_query, index_key;  // of an indexer; else unused
  weights::MatrixForm output;                  // of the mixer
  weights::MatrixForm mlp;                     // of a dense layer or the shared expert; else unused
  weights::MatrixForm prediction;              // of a prediction layer; else unused
  weights::MatrixForm latent_in, latent_out;   // around latent experts; else unused
};

struct ModelForms {
  Dtype row_dtype = Dtype::kBf16;  // of the embedding, and of activations between products
  weights::MatrixForm experts;
  std::optional<weights::MatrixForm> expert_down = std::nullopt;  // where it differs
  weights::MatrixForm lm_head;
  std::vector<LayerForms> layers;

  // Of the layer's matrices of this use.
  weights::MatrixForm of(int layer, TensorUse use) const;

  // The formats of attention, MLPs and experts: "int8", or for a mixed checkpoint "int8, nvfp4".
  std::string format_names() const;
};

LayerForms layer_forms(const ModelConfig& config, int layer, const weights::WeightLoader& loader);

// Uses only the names, dtypes and shapes of the tensors.
ModelForms model_forms(const ModelConfig& config, const weights::WeightLoader& loader);

// All matrices in one format.
ModelForms uniform_forms(const ModelConfig& config, kernels::WeightFormat format);

// The shape of all routed experts: one for all, so that any slot can hold any expert.
// num_slices: the number of slices of each expert.
weights::ExpertShape experts_shape(const ModelConfig& config, const weights::WeightLoader& loader,
                                   int num_slices = 1);
// The same in given forms.
weights::ExpertShape experts_shape(const ModelConfig& config, const weights::MatrixForm& form,
                                   int num_slices = 1,
                                   const std::optional<weights::MatrixForm>& down = std::nullopt);
inline weights::ExpertShape experts_shape(const ModelConfig& config, const ModelForms& forms,
                                          int num_slices = 1) {
  return experts_shape(config, forms.experts, num_slices, forms.expert_down);
}

}  // namespace wideep::model
