// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace wideep::model {
namespace {

class Lister {
 public:
  Lister(const ModelConfig& config, std::string prefix)
      : config_(config), prefix_(std::move(prefix)) {}

  std::vector<ListedTensor> take() { return std::move(tensors_); }

  void mixer(const LayerConfig& layer) {
    switch (layer.mixer) {
      case LayerConfig::Mixer::kAttention:
        return config_.is_mla() ? latent_attention(layer) : grouped_query_attention();
      case LayerConfig::Mixer::kDeltaNet:
        return delta_net();
      case LayerConfig::Mixer::kConvolution:
        return convolution();
    }
  }

  // Around the layer: its input and output.
  void prediction() {
    const int hidden = config_.hidden_size;
    vector("enorm.weight", hidden);
    vector("hnorm.weight", hidden);
    matrix("eh_proj.weight", hidden, int64_t{2} * hidden, TensorUse::kPrediction);
    vector("shared_head.norm.weight", hidden);
  }

  void moe() {
    const RoutingConfig& routing = config_.routing;
    matrix("mlp.gate.weight", routing.num_experts, config_.hidden_size, TensorUse::kFloat);
    if (routing.logit_bias) vector("mlp.gate.bias", routing.num_experts);
    if (routing.selection_bias) vector("mlp.gate.e_score_correction_bias", routing.num_experts);
    if (config_.shared_intermediate_size == 0) return;
    mlp("mlp.shared_experts", config_.shared_intermediate_size, TensorUse::kMlp);
    if (config_.shared_expert_gate) {
      matrix("mlp.shared_expert_gate.weight", 1, config_.hidden_size, TensorUse::kFloat);
    }
  }

  void mlp(const std::string& name, int width, TensorUse use, bool biased = false) {
    const int hidden = config_.hidden_size;
    matrix(name + ".gate_proj.weight", width, hidden, use);
    matrix(name + ".up_proj.weight", width, hidden, use);
    matrix(name + ".down_proj.weight", hidden, width, use);
    if (!biased) return;
    vector(name + ".gate_proj.bias", width);
    vector(name + ".up_proj.bias", width);
    vector(name + ".down_proj.bias", hidden);
  }

  void vector(const std::string& name, int64_t size) {
    tensors_.push_back({prefix_ + name, {size}, TensorUse::kVector});
  }
  void matrix(const std::string& name, int64_t n, int64_t k, TensorUse use) {
    tensors_.push_back({prefix_ + name, {n, k}, use});
  }

 private:
  void grouped_query_attention() {
    const GroupedQueryConfig& options = config_.grouped_query;
    const int hidden = config_.hidden_size, dim = config_.head_dim;
    const int width = config_.num_heads * dim, kv_width = config_.num_kv_heads * dim;
    const int q_width = options.output_gate ? 2 * width : width;
    matrix("self_attn.q_proj.weight", q_width, hidden, TensorUse::kInput);
    matrix("self_attn.k_proj.weight", kv_width, hidden, TensorUse::kInput);
    matrix("self_attn.v_proj.weight", kv_width, hidden, TensorUse::kInput);
    matrix("self_attn.o_proj.weight", hidden, width, TensorUse::kOutput);
    if (options.qkv_bias) {
      vector("self_attn.q_proj.bias", q_width);
      vector("self_attn.k_proj.bias", kv_width);
      vector("self_attn.v_proj.bias", kv_width);
    }
    if (options.output_bias) vector("self_attn.o_proj.bias", hidden);
    if (options.sinks) vector("self_attn.sinks", config_.num_heads);
    if (options.norm == GroupedQueryConfig::Norm::kNone || !options.norm_has_weight) return;
    const bool each = options.norm == GroupedQueryConfig::Norm::kHead;
    vector("self_attn.q_norm.weight", each ? dim : width);
    vector("self_attn.k_norm.weight", each ? dim : kv_width);
  }

  void latent_attention(const LayerConfig& layer) {
    const int hidden = config_.hidden_size, heads = config_.num_heads;
    const int q_rank = config_.q_lora_rank, rank = config_.kv_lora_rank;
    const int kv_width = rank + config_.qk_rope_head_dim;
    if (q_rank == 0) {
      matrix("self_attn.q_proj.weight", heads * config_.head_dim, hidden, TensorUse::kInput);
    } else {
      matrix("self_attn.q_a_proj.weight", q_rank, hidden, TensorUse::kInput);
      vector("self_attn.q_a_layernorm.weight", q_rank);
      matrix("self_attn.q_b_proj.weight", heads * config_.head_dim, q_rank, TensorUse::kQueryB);
    }
    matrix("self_attn.kv_a_proj_with_mqa.weight", kv_width, hidden, TensorUse::kInput);
    vector("self_attn.kv_a_layernorm.weight", rank);
    matrix("self_attn.kv_b_proj.weight", heads * (config_.qk_nope_head_dim + config_.v_head_dim),
           rank, TensorUse::kLatent);
    matrix("self_attn.o_proj.weight", hidden, heads * config_.v_head_dim, TensorUse::kOutput);
    if (config_.latent_bias) {
      if (q_rank > 0) vector("self_attn.q_a_proj.bias", q_rank);
      vector("self_attn.kv_a_proj_with_mqa.bias", kv_width);
      vector("self_attn.o_proj.bias", hidden);
    }
    if (config_.indexer.num_heads > 0 && !layer.shares_index) indexer();
  }

  void indexer() {
    const IndexerConfig& options = config_.indexer;
    const int hidden = config_.hidden_size, dim = options.head_dim;
    matrix("self_attn.indexer.wq_b.weight", options.num_heads * dim, config_.q_lora_rank,
           TensorUse::kIndexQuery);
    matrix("self_attn.indexer.wk.weight", dim, hidden, TensorUse::kIndexKey);
    matrix("self_attn.indexer.weights_proj.weight", options.num_heads, hidden, TensorUse::kFloat);
    vector("self_attn.indexer.k_norm.weight", dim);
    vector("self_attn.indexer.k_norm.bias", dim);
  }

  void delta_net() {
    const DeltaNetConfig& net = config_.delta_net;
    const int hidden = config_.hidden_size, heads = net.num_value_heads;
    if (net.fused_projections) {
      matrix("linear_attn.in_proj_qkvz.weight", net.convolved_width() + net.value_width(), hidden,
             TensorUse::kInput);
      matrix("linear_attn.in_proj_ba.weight", 2 * heads, hidden, TensorUse::kGates);
    } else {
      matrix("linear_attn.in_proj_qkv.weight", net.convolved_width(), hidden, TensorUse::kInput);
      matrix("linear_attn.in_proj_z.weight", net.value_width(), hidden, TensorUse::kInput);
      matrix("linear_attn.in_proj_b.weight", heads, hidden, TensorUse::kGates);
      matrix("linear_attn.in_proj_a.weight", heads, hidden, TensorUse::kGates);
    }
    matrix("linear_attn.conv1d.weight", net.convolved_width(), net.convolution_width,
           TensorUse::kVector);
    vector("linear_attn.A_log", heads);
    vector("linear_attn.dt_bias", heads);
    vector("linear_attn.norm.weight", net.value_dim);
    matrix("linear_attn.out_proj.weight", hidden, net.value_width(), TensorUse::kOutput);
  }

  void convolution() {
    const int hidden = config_.hidden_size;
    matrix("conv.in_proj.weight", int64_t{3} * hidden, hidden, TensorUse::kInput);
    matrix("conv.conv.weight", hidden, config_.convolution_width, TensorUse::kVector);
    matrix("conv.out_proj.weight", hidden, hidden, TensorUse::kOutput);
    if (!config_.convolution_bias) return;
    vector("conv.in_proj.bias", int64_t{3} * hidden);
    vector("conv.conv.bias", hidden);
    vector("conv.out_proj.bias", hidden);
  }

  const ModelConfig& config_;
  std::string prefix_;
  std::vector<ListedTensor> tensors_;
};

void append(std::vector<ListedTensor> more, std::vector<ListedTensor>* tensors) {
  tensors->insert(tensors->end(), std::move_iterator(more.begin()), std::move_iterator(more.end()));
}

}  // namespace

bool is_quantizable(TensorUse use) {
  constexpr TensorUse kUses[] = {TensorUse::kInput,  TensorUse::kQueryB, TensorUse::kLatent,
                                 TensorUse::kOutput, TensorUse::kMlp,    TensorUse::kExpert};
  return std::ranges::find(kUses, use) != std::end(kUses);
}

std::vector<ListedTensor> layer_tensors(const ModelConfig& config, int layer) {
  const LayerConfig& description = config.layers[static_cast<size_t>(layer)];
  Lister lister(config, fmt::format("model.layers.{}.", layer));
  if (config.is_prediction(layer)) lister.prediction();
  lister.vector("input_layernorm.weight", config.hidden_size);
  lister.mixer(description);
  lister.vector("post_attention_layernorm.weight", config.hidden_size);
  if (description.is_moe) {
    lister.moe();
  } else {
    lister.mlp("mlp", config.dense_intermediate_size, TensorUse::kMlp);
  }
  return lister.take();
}

std::vector<ListedTensor> expert_tensors(const ModelConfig& config, int layer, int expert) {
  Lister lister(config, "");
  lister.mlp(expert_prefix(layer, expert), config.moe_intermediate_size, TensorUse::kExpert,
             config.expert_bias);
  return lister.take();
}

std::vector<ListedTensor> outer_tensors(const ModelConfig& config) {
  const std::vector<int64_t> table = {config.vocab_size, config.hidden_size};
  std::vector<ListedTensor> tensors = {
      {config.embedding_tensor, table, TensorUse::kEmbedding},
      {"model.norm.weight", {config.hidden_size}, TensorUse::kVector}};
  if (config.head_tensor() != config.embedding_tensor) {
    tensors.push_back({config.head_tensor(), table, TensorUse::kHead});
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
