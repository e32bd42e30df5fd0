// SPDX-License-Identifier: Apache-2.0
#include "model/parts/part_cost.h"

namespace wideep::model {

void PartCost::vector(const std::string& name, int64_t size) {
  tensors.push_back({name, {size}, TensorUse::kVector});
  vector_elements += size;
}

void PartCost::vectors(const std::string& name, int64_t n, int64_t k) {
  tensors.push_back({name, {n, k}, TensorUse::kVector});
  vector_elements += n * k;
}

void PartCost::matrix(const std::string& name, int64_t n, int64_t k, TensorUse use) {
  tensors.push_back({name, {n, k}, use});
  matrices.push_back({.use = use, .n = static_cast<int>(n), .k = static_cast<int>(k)});
}

void PartCost::mlp(const std::string& name, const std::array<int, 2>& width_and_hidden,
                   TensorUse use, const kernels::Activation& activation) {
  const auto [width, hidden] = width_and_hidden;
  mlp_activation = activation;
  if (activation.has_gate()) tensors.push_back({name + ".gate_proj.weight", {width, hidden}, use});
  tensors.push_back({name + ".up_proj.weight", {width, hidden}, use});
  tensors.push_back({name + ".down_proj.weight", {hidden, width}, use});
  mlp_width = width;
}

void PartCost::mlp_biases(const std::string& name, int width, int hidden) {
  if (mlp_activation.has_gate()) {
    tensors.push_back({name + ".gate_proj.bias", {width}, TensorUse::kVector});
  }
  tensors.push_back({name + ".up_proj.bias", {width}, TensorUse::kVector});
  tensors.push_back({name + ".down_proj.bias", {hidden}, TensorUse::kVector});
  mlp_biased = true;
}

void PartCost::add(const PartCost& other) {
  tensors.insert(tensors.end(), other.tensors.begin(), other.tensors.end());
  matrices.insert(matrices.end(), other.matrices.begin(), other.matrices.end());
  operands.insert(operands.end(), other.operands.begin(), other.operands.end());
  vector_elements += other.vector_elements;
  scratch_floats += other.scratch_floats;
  attended += other.attended;
  state += other.state;
}

PartCost mixer_cost(const ModelConfig& config, int index) {
  const LayerConfig& layer = config.layers[static_cast<size_t>(index)];
  switch (layer.mixer) {
    case LayerConfig::Mixer::kAttention:
      if (config.is_compressed()) return compressed_cost(config, layer);
      return config.is_mla() ? latent_cost(config, layer) : grouped_query_cost(config, layer);
    case LayerConfig::Mixer::kDeltaNet:
      return delta_net_cost(config);
    case LayerConfig::Mixer::kKimiDelta:
      return kimi_delta_cost(config);
    case LayerConfig::Mixer::kConvolution:
      return convolution_cost(config);
    case LayerConfig::Mixer::kMamba2:
      return mamba2_cost(config);
    case LayerConfig::Mixer::kNone:
      break;
  }
  return {};
}

CachedHeads attention_cache(const ModelConfig& config, int kind, Dtype cache, int parts) {
  if (config.is_compressed()) return compressed_cache(config, config.attention_kind(kind), cache);
  return config.is_mla() ? latent_cache(config, cache)
                         : grouped_query_cache(config.attention_kind(kind), cache, parts);
}

void PartCost::norm(const ModelConfig& config, const std::string& name) {
  vector(name + ".weight", config.hidden_size);
  if (config.norm_bias) vector(name + ".bias", config.hidden_size);
}

PartCost norm_cost(const ModelConfig& config, const std::string& name) {
  PartCost cost;
  cost.norm(config, name);
  return cost;
}

PartCost beside_experts_cost(const ModelConfig& config) {
  PartCost cost;
  for (const char* name :
       {"mlp.dense_output_norm", "mlp.experts_norm", "mlp.experts_output_norm"}) {
    cost.norm(config, name);
  }
  return cost;
}

PartCost prediction_cost(const ModelConfig& config) {
  const int hidden = config.hidden_size;
  PartCost cost;
  cost.norm(config, "enorm");
  cost.norm(config, "hnorm");
  uint64_t input = 2 * uint64_t(hidden), operand = input;
  if (config.hyper.is_on()) {
    cost.matrix("e_proj.weight", hidden, hidden, TensorUse::kPrediction);
    cost.matrix("h_proj.weight", hidden, hidden, TensorUse::kPrediction);
    if (config.hyper.learned_end) cost.add(hyper_cost(config, "hc_head"));
    operand = uint64_t(config.stream_width());
    input += operand;
  } else {
    cost.matrix("eh_proj.weight", hidden, int64_t{2} * hidden, TensorUse::kPrediction);
  }
  cost.norm(config, "shared_head.norm");
  // What the layer predicts from, and its input (Model::joined_).
  cost.scratch_floats = uint64_t(config.stream_width()) + input;
  cost.operands = {{{TensorUse::kPrediction, operand}}};
  return cost;
}

std::vector<PartCost> layer_parts(const ModelConfig& config, int layer) {
  std::vector<PartCost> parts;
  if (config.is_prediction(layer)) parts.push_back(prediction_cost(config));
  if (config.has_mixer(layer)) {
    if (config.hyper.is_on()) parts.push_back(hyper_cost(config, "attn_hc"));
    parts.push_back(norm_cost(config, "input_layernorm"));
    parts.push_back(mixer_cost(config, layer));
    if (config.norms_after) parts.push_back(norm_cost(config, "mixer_output_norm"));
  }
  if (config.has_mlp(layer)) {
    if (config.hyper.is_on()) parts.push_back(hyper_cost(config, "ffn_hc"));
    if (!config.parallel_parts) parts.push_back(norm_cost(config, "post_attention_layernorm"));
    const bool is_moe = config.is_moe(layer);
    const bool is_beside = is_moe && config.dense_beside_experts;
    if (!is_moe || is_beside) parts.push_back(dense_mlp_cost(config));
    if (is_beside) parts.push_back(beside_experts_cost(config));
    if (is_moe) parts.push_back(moe_cost(config, config.layers[static_cast<size_t>(layer)]));
    if (config.norms_after) parts.push_back(norm_cost(config, "mlp_output_norm"));
  }
  if (config.layer_scalar) {
    parts.emplace_back();
    parts.back().vector("layer_scalar", 1);
  }
  return parts;
}

}  // namespace wideep::model
