// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a model, by the names of this house: those of Qwen3-MoE and DeepSeek-V3 in
// transformers. Where a family's files call them otherwise, ModelConfig::tensor_names maps the
// names. Each part lists its own (parts/part_cost.h). Loading asks for these tensors; the
// comparison with the files and the tests' random models follow this list.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/parts/part_cost.h"

namespace wideep::model {

// Whether `wideep quantize` quantises matrices of this use: those of attention and its like, of
// MLPs and of experts.
bool is_quantizable(TensorUse use);

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
