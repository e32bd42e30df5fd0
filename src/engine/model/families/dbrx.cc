// SPDX-License-Identifier: Apache-2.0
//
// Databricks DBRX: layer norms, clipped queries, keys and values that are one matrix, and all
// experts of a layer below each other in one. Sizes are in two objects of the config.
#include <fmt/format.h>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;
using Rows = weights::TensorPart::Rows;

constexpr std::string_view kAttention = "attn_config";
constexpr std::string_view kExperts = "ffn_config";

void read_dbrx_attention(const JsonObject& root, const JsonObject& attention, ModelConfig* config) {
  const int kv_heads =
      static_cast<int>(attention.integer_or("kv_n_heads", 1, {.min = 1, .max = kMaxHeads}));
  read_grouped_query(root, config, {.kv_heads = kv_heads});
  expect_equal(root, "num_key_value_heads", "attn_config.kv_n_heads", kv_heads);
  if (attention.has("clip_qkv")) {
    config->grouped_query.clip = read_scale(attention, "clip_qkv", 1.0);
  }
  attention.has("attn_pdrop");
  if (readable(root) && config->head_dim * config->num_heads != config->hidden_size) {
    root.complain("d_model", fmt::format("expected n_heads {} times the size of a head, {}, found "
                                         "{}",
                                         config->num_heads, config->head_dim, config->hidden_size));
  }
  // Published files have it here, where transformers does not look for it.
  constexpr std::string_view kTheta = "rope_theta";
  const bool has_theta = attention.has(kTheta);
  const double theta = attention.number_or(kTheta, 1e4, {.min = 2, .max = 1e12});
  config->rope = read_rope(root, *config, theta);
  require_whole_rotary(root);
  if (has_theta && readable(root) && config->rope.theta != theta) {
    attention.complain(kTheta, fmt::format("found {}, and {} in rope_parameters; give one", theta,
                                           config->rope.theta));
  }
}

void read_dbrx_experts(const JsonObject& experts, ModelConfig* config) {
  RoutingConfig& routing = config->routing;
  routing.num_experts = size_or(experts, "moe_num_experts", 4, kMaxExperts);
  routing.top_k = size_or(experts, "moe_top_k", 1, kMaxExperts);
  check_top_k(experts, "moe_top_k", routing);
  config->moe_intermediate_size = size_or(experts, "ffn_hidden_size", 3584, kMaxIntermediate);
  if (experts.has("ffn_act_fn")) require_silu(experts.object("ffn_act_fn"), "name");
  // Which norm of the chosen weights they are divided by; null: they are not.
  constexpr std::string_view kNorm = "moe_normalize_expert_weights";
  routing.normalize = !is_null(experts, kNorm);
  routing.method = routing.normalize ? RoutingMethod::kRenormalizeNaive : RoutingMethod::kDefault;
  routing.norm_power =
      static_cast<float>(experts.number_or(kNorm, 1.0, {.min = 0.1, .max = 100.0}));
  require_flag(experts, "uniform_expert_assignment", false);
  // The model's own size, and what is of training.
  for (const char* key : {"hidden_size", "moe_jitter_eps", "moe_loss_weight"}) experts.has(key);
}

void name_dbrx_tensors(const ModelConfig& config, weights::TensorNames* names) {
  const std::string block = "transformer.blocks.*.", attention = block + "norm_attn_norm.";
  const auto of_layer = [&](const std::string& module, const std::string& published) {
    names->rename("model.layers.*." + module, published);
  };
  names->rename("model.embed_tokens", "transformer.wte").rename("model.norm", "transformer.norm_f");
  of_layer("input_layernorm", attention + "norm_1");
  of_layer("post_attention_layernorm", attention + "norm_2");
  of_layer("self_attn.o_proj", attention + "attn.out_proj");
  of_layer("mlp.gate", block + "ffn.router.layer");
  const int queries = config.num_heads * config.head_dim;
  const int keys = config.num_kv_heads * config.head_dim;
  const auto fused = [&](const std::string& module, int first) {
    names->rename("model.layers.*.self_attn." + module, attention + "attn.Wqkv",
                  {Rows::kRange, false, first, queries + 2 * keys});
  };
  fused("q_proj", 0);
  fused("k_proj", queries);
  fused("v_proj", queries + keys);
  const auto of_experts = [&](const std::string& module, const char* published, bool transposed) {
    names->rename("model.layers.*.mlp.experts.*." + module, block + "ffn.experts.mlp." + published,
                  {Rows::kAll, transposed});
  };
  of_experts("gate_proj", "w1", false);
  of_experts("up_proj", "v1", false);
  of_experts("down_proj", "w2", true);
}

}  // namespace

void read_dbrx(const JsonObject& root, ModelConfig* config) {
  const JsonObject attention = root.object(kAttention), experts = root.object(kExperts);
  if (!readable(root)) return;
  require_flag(root, "tie_word_embeddings", false);
  for (const char* key : {"emb_pdrop", "resid_pdrop"}) root.has(key);
  config->layer_norms = true;
  config->rms_norm_eps = 1e-5f;  // no key sets it
  read_dbrx_attention(root, attention, config);
  read_dbrx_experts(experts, config);
  if (!readable(root)) return;
  note_unknown_keys(attention, std::string(kAttention), config);
  note_unknown_keys(experts, std::string(kExperts), config);
  name_dbrx_tensors(*config, &config->tensor_names);
}

}  // namespace wideep::model
