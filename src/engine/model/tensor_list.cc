// SPDX-License-Identifier: Apache-2.0
//
// Each function writes down a layer's tensors in the order in which loading asks for them. The
// description (ModelConfig) decides alone; no family is asked for. Loading has its own code, which
// must ask for the same names and shapes: here there is nothing to read, so plans and checks can
// use the list before a file is open.
#include "model/tensor_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace wideep::model {
namespace {

void append(std::vector<ListedTensor> more, std::vector<ListedTensor>* tensors) {
  tensors->insert(tensors->end(), std::move_iterator(more.begin()), std::move_iterator(more.end()));
}

}  // namespace

bool is_quantizable(TensorUse use) {
  constexpr TensorUse kUses[] = {TensorUse::kInput,  TensorUse::kQueryB,   TensorUse::kLatent,
                                 TensorUse::kOutput, TensorUse::kLatentIn, TensorUse::kLatentOut,
                                 TensorUse::kMlp,    TensorUse::kExpert};
  return std::ranges::find(kUses, use) != std::end(kUses);
}

std::vector<ListedTensor> layer_tensors(const ModelConfig& config, int layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  std::vector<ListedTensor> tensors;
  for (PartCost& part : layer_parts(config, layer)) {
    for (ListedTensor& tensor : part.tensors) tensor.name.insert(0, prefix);
    append(std::move(part.tensors), &tensors);
  }
  return tensors;
}

std::vector<ListedTensor> expert_tensors(const ModelConfig& config, int layer, int expert) {
  return expert_cost(config, expert_prefix(layer, expert)).tensors;
}

std::vector<ListedTensor> outer_tensors(const ModelConfig& config) {
  const std::vector<int64_t> table = {config.vocab_size, config.hidden_size};
  std::vector<ListedTensor> tensors = {
      {config.embedding_tensor, table, TensorUse::kEmbedding},
      {"model.norm.weight", {config.hidden_size}, TensorUse::kVector}};
  if (config.norm_bias) {
    tensors.push_back({"model.norm.bias", {config.hidden_size}, TensorUse::kVector});
  }
  if (config.hyper.learned_end) {
    append(hyper_cost(config, "model.hc_head").tensors, &tensors);
  }
  if (config.head_tensor() != config.embedding_tensor) {
    tensors.push_back({config.head_tensor(), table, TensorUse::kHead});
  }
  if (config.head_bias) {
    tensors.push_back({"lm_head.bias", {config.vocab_size}, TensorUse::kVector});
  }
  return tensors;
}

std::vector<ListedTensor> all_tensors(const ModelConfig& config) {
  std::vector<ListedTensor> outer = outer_tensors(config);
  std::vector<ListedTensor> tensors = {outer.front()};
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    append(layer_tensors(config, layer), &tensors);
    if (!config.is_moe(layer)) continue;
    for (int expert = 0; expert < config.routing.num_experts; ++expert) {
      append(expert_tensors(config, layer, expert), &tensors);
    }
  }
  outer.erase(outer.begin());
  append(std::move(outer), &tensors);
  return tensors;
}

std::string expert_prefix(int layer, int expert) {
  return fmt::format("model.layers.{}.mlp.experts.{}", layer, expert);
}

}  // namespace wideep::model
