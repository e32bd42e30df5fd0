// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a model, by the names of this house: those of Qwen3-MoE and DeepSeek-V3 in
// transformers. Where a family's files call them otherwise, ModelConfig::tensor_names maps the
// names. Loading asks for these tensors; the memory plan, the work counts, the comparison with the
// files and the tests' random models follow this list.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config/config.h"

namespace wideep::model {

// Decides the form in which a tensor is kept (model_forms.h).
enum class TensorUse {
  kEmbedding,  // rows
  kVector,     // float32: norms, biases, convolutions
  kInput,      // matrices that multiply the layer's input
  kGates,      // the delta net's small ones
  kQueryB,     // latent attention: q_b
  kLatent,     // latent attention: kv_b, kept as three matrices per head
  kIndexQuery,
  kIndexKey,
  kOutput,      // of the mixer
  kPrediction,  // what a prediction layer makes its input with
  kFloat,       // matrices kept in float32: routers, weights of the indexer's heads
  kMlp,         // of a dense layer or the shared expert
  kExpert,
  kHead,
};

// Whether `wideep quantize` quantises matrices of this use: those of attention and its like, of
// MLPs and of experts.
bool is_quantizable(TensorUse use);

struct ListedTensor {
  std::string name;
  std::vector<int64_t> shape;  // [n] or [n, k]
  TensorUse use = TensorUse::kVector;

  int64_t num_elements() const { return shape.size() == 2 ? shape[0] * shape[1] : shape[0]; }
};

// The tensors of a layer, without its routed experts.
std::vector<ListedTensor> layer_tensors(const ModelConfig& config, int layer);
// Those of a routed expert.
std::vector<ListedTensor> expert_tensors(const ModelConfig& config, int layer, int expert);
// Those outside the layers: the embedding, the final norm, and the LM head unless it is the
// embedding.
std::vector<ListedTensor> outer_tensors(const ModelConfig& config);
// All tensors, in the order of loading: the embedding, the layers with their experts, the final
// norm, and the LM head unless it is the embedding.
std::vector<ListedTensor> all_tensors(const ModelConfig& config);

// "model.layers.<layer>.mlp.experts.<expert>", without a trailing dot.
std::string expert_prefix(int layer, int expert);

}  // namespace wideep::model
