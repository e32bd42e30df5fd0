// SPDX-License-Identifier: Apache-2.0
//
// Three tables, for tensors outside the layers, in layers and of experts, and one for names whose
// ending differs too. Where files name a tensor differently, by their age or their architecture, a
// module has several lines, which are tried in order: so the architecture need not be known here.
#include "model/gguf/gguf_names.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

namespace wideep::model {
namespace {

// The number that `text` begins with and the rest after a dot; none: there is no such begin.
std::optional<std::pair<int, std::string_view>> number_before_dot(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<size_t>(end - text.data());
  if (error != std::errc() || length >= text.size() || text[length] != '.') return std::nullopt;
  return std::pair(number, text.substr(length + 1));
}

using Names = std::pair<std::string_view, std::string_view>;

// Several lines for one module are alternatives.
constexpr std::array kOuter = {
    Names{"model.embed_tokens", "token_embd"},
    Names{"model.norm", "output_norm"},
    Names{"model.norm", "token_embd_norm"},  // of LFM2
    Names{"lm_head", "output"},
    Names{"model.hc_head.hc_fn", "output_hc_fn.weight"},
    Names{"model.hc_head.hc_base", "output_hc_base.weight"},
    Names{"model.hc_head.hc_scale", "output_hc_scale.weight"},
};
constexpr std::array kOfLayers = {
    Names{"input_layernorm", "attn_norm"},
    Names{"post_attention_layernorm", "ffn_norm"},
    Names{"post_attention_layernorm", "post_attention_norm"},
    Names{"post_attention_layernorm", "attn_output_norm"},  // of DBRX
    Names{"mixer_output_norm", "post_attention_norm"},
    Names{"mlp_output_norm", "post_ffw_norm"},
    Names{"mlp.dense_output_norm", "post_ffw_norm_1"},
    Names{"mlp.experts_norm", "pre_ffw_norm_2"},
    Names{"mlp.experts_output_norm", "post_ffw_norm_2"},
    Names{"self_attn.q_proj", "attn_q"},
    Names{"self_attn.k_proj", "attn_k"},
    Names{"self_attn.v_proj", "attn_v"},
    Names{"self_attn.o_proj", "attn_output"},
    Names{"self_attn.q_norm", "attn_q_norm"},
    Names{"self_attn.k_norm", "attn_k_norm"},
    Names{"self_attn.q_a_proj", "attn_q_a"},
    Names{"self_attn.q_a_layernorm", "attn_q_a_norm"},
    Names{"self_attn.q_b_proj", "attn_q_b"},
    Names{"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    Names{"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    Names{"self_attn.kv_b_proj", "attn_kv_b"},
    Names{"self_attn.q_a_norm", "attn_q_a_norm"},
    Names{"self_attn.kv_proj", "attn_kv"},
    Names{"self_attn.kv_norm", "attn_kv_a_norm"},
    Names{"self_attn.o_a_proj", "attn_output_a"},
    Names{"self_attn.o_b_proj", "attn_output_b"},
    Names{"self_attn.compressor.kv_proj", "attn_compressor_kv"},
    Names{"self_attn.compressor.gate_proj", "attn_compressor_gate"},
    Names{"self_attn.compressor.kv_norm", "attn_compressor_norm"},
    Names{"self_attn.compressor.indexer.kv_proj", "indexer_compressor_kv"},
    Names{"self_attn.compressor.indexer.gate_proj", "indexer_compressor_gate"},
    Names{"self_attn.compressor.indexer.kv_norm", "indexer_compressor_norm"},
    Names{"self_attn.compressor.indexer.q_b_proj", "indexer.attn_q_b"},
    Names{"self_attn.compressor.indexer.scorer.weights_proj", "indexer.proj"},
    Names{"self_attn.indexer.wq_b", "indexer.attn_q_b"},
    Names{"self_attn.indexer.wk", "indexer.attn_k"},
    Names{"self_attn.indexer.weights_proj", "indexer.proj"},
    Names{"self_attn.indexer.k_norm", "indexer.k_norm"},
    Names{"self_attn.indexer.gate_proj", "indexer_compressor_gate"},
    Names{"self_attn.indexer.q_proj", "indexer.q_proj"},
    Names{"self_attn.indexer.k_proj", "indexer.k_proj"},
    Names{"self_attn.indexer.q_norm", "indexer.q_norm"},
    Names{"linear_attn.in_proj_qkvz", "ssm_in"},
    Names{"linear_attn.in_proj_qkv", "attn_qkv"},
    Names{"linear_attn.in_proj_z", "attn_gate"},
    Names{"linear_attn.in_proj_ba", "ssm_ba"},
    Names{"linear_attn.in_proj_b", "ssm_beta"},
    Names{"linear_attn.in_proj_a", "ssm_alpha"},
    Names{"linear_attn.conv1d", "ssm_conv1d"},
    Names{"linear_attn.norm", "ssm_norm"},
    Names{"linear_attn.out_proj", "ssm_out"},
    Names{"mamba.in_proj", "ssm_in"},
    Names{"mamba.conv1d", "ssm_conv1d"},
    Names{"mamba.norm", "ssm_norm"},
    Names{"mamba.out_proj", "ssm_out"},
    Names{"self_attn.q_conv1d", "ssm_conv1d_q"},
    Names{"self_attn.k_conv1d", "ssm_conv1d_k"},
    Names{"self_attn.v_conv1d", "ssm_conv1d_v"},
    Names{"self_attn.f_a_proj", "ssm_f_a"},
    Names{"self_attn.f_b_proj", "ssm_f_b"},
    Names{"self_attn.g_proj", "attn_gate"},
    Names{"self_attn.g_proj", "ssm_g_a"},
    Names{"self_attn.f_proj", "ssm_f_a"},
    Names{"self_attn.g_a_proj", "ssm_g_a"},
    Names{"self_attn.g_b_proj", "ssm_g_b"},
    Names{"self_attn.b_proj", "ssm_beta"},
    Names{"self_attn.o_norm", "ssm_norm"},
    Names{"conv.in_proj", "shortconv.in_proj"},
    Names{"conv.conv", "shortconv.conv"},
    Names{"conv.out_proj", "shortconv.out_proj"},
    Names{"mlp.gate_proj", "ffn_gate"},
    Names{"mlp.up_proj", "ffn_up"},
    Names{"mlp.down_proj", "ffn_down"},
    Names{"mlp.gate", "ffn_gate_inp"},
    Names{"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    Names{"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    Names{"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    Names{"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    Names{"mlp.fc1_latent_proj", "ffn_latent_down"},
    Names{"mlp.fc2_latent_proj", "ffn_latent_up"},
    Names{"enorm", "nextn.enorm"},
    Names{"hnorm", "nextn.hnorm"},
    Names{"eh_proj", "nextn.eh_proj"},
    Names{"shared_head.norm", "nextn.shared_head_norm"},
    Names{"shared_head.norm", "layer_output_norm"},  // of Ling-3.0
};
constexpr std::array kOfExperts = {
    Names{"mlp.experts.gate_proj", "ffn_gate"},
    Names{"mlp.experts.up_proj", "ffn_up"},
    Names{"mlp.experts.down_proj", "ffn_down"},
};
// Tensors whose name has no ending, or another one.
constexpr std::array kWhole = {
    Names{"self_attn.sinks", "attn_sinks.weight"},
    Names{"self_attn.A_log", "ssm_a"},
    Names{"self_attn.dt_bias", "ssm_dt.bias"},
    Names{"linear_attn.A_log", "ssm_a"},
    Names{"linear_attn.dt_bias", "ssm_dt.bias"},
    Names{"mamba.A_log", "ssm_a"},
    Names{"mamba.dt_bias", "ssm_dt.bias"},
    Names{"mamba.D", "ssm_d"},
    Names{"self_attn.indexer.position_bias", "indexer_compressor_ape.weight"},
    Names{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    Names{"mlp.gate.e_score_correction_bias", "exp_probs_b"},
    Names{"mlp.gate.norm.weight", "ffn_gate_inp.scale"},
    Names{"mlp.gate.expert_scale", "ffn_down_exps.scale"},
    Names{"layer_scalar", "layer_output_scale.weight"},
    Names{"self_attn.compressor.position_bias", "attn_compressor_ape.weight"},
    Names{"self_attn.compressor.indexer.position_bias", "indexer_compressor_ape.weight"},
    Names{"mlp.gate.tid2eid", "ffn_gate_tid2eid.weight"},
    Names{"attn_hc.fn", "hc_attn_fn.weight"},
    Names{"attn_hc.base", "hc_attn_base.weight"},
    Names{"attn_hc.scale", "hc_attn_scale.weight"},
    Names{"ffn_hc.fn", "hc_ffn_fn.weight"},
    Names{"ffn_hc.base", "hc_ffn_base.weight"},
    Names{"ffn_hc.scale", "hc_ffn_scale.weight"},
};

}  // namespace

TensorName TensorName::parse(std::string_view canonical) {
  TensorName name;
  for (const std::string_view ending : {".weight", ".bias"}) {
    if (!canonical.ends_with(ending)) continue;
    name.ending = ending;
    canonical.remove_suffix(ending.size());
  }
  constexpr std::string_view kLayers = "model.layers.", kExperts = "mlp.experts.";
  if (!canonical.starts_with(kLayers)) {
    name.module = canonical;
    return name;
  }
  const auto layer = number_before_dot(canonical.substr(kLayers.size()));
  if (!layer) return name;
  name.layer = layer->first;
  name.module = layer->second;
  if (!layer->second.starts_with(kExperts)) return name;
  const auto expert = number_before_dot(layer->second.substr(kExperts.size()));
  if (!expert) return name;
  name.expert = expert->first;
  name.module = std::string(kExperts) + std::string(expert->second);
  return name;
}

std::string gguf_name(int layer, std::string_view module, std::string_view ending) {
  return fmt::format("blk.{}.{}{}", layer, module, ending);
}

std::vector<GgufName> gguf_names(const TensorName& name) {
  std::vector<GgufName> names;
  if (name.layer < 0) {
    for (const auto& [module, gguf] : kOuter) {
      if (module == name.module) names.push_back({std::string(gguf) + name.ending});
    }
    return names;
  }
  for (const auto& [module, gguf] : kOfExperts) {
    if (module != name.module || name.expert < 0) continue;
    names.push_back({gguf_name(name.layer, std::string(gguf) + "_exps", name.ending), true});
    // Files of 2023 and early 2024.
    names.push_back({gguf_name(name.layer, fmt::format("{}.{}", gguf, name.expert), name.ending)});
  }
  for (const auto& [module, gguf] : kOfLayers) {
    if (module == name.module) names.push_back({gguf_name(name.layer, gguf, name.ending)});
  }
  for (const auto& [module, gguf] : kWhole) {
    if (module == name.module + name.ending) names.push_back({gguf_name(name.layer, gguf, "")});
  }
  return names;
}

std::optional<int> gguf_layer(std::string_view name) {
  constexpr std::string_view kBegin = "blk.";
  if (!name.starts_with(kBegin)) return std::nullopt;
  const auto found = number_before_dot(name.substr(kBegin.size()));
  if (!found) return std::nullopt;
  return found->first;
}

}  // namespace wideep::model
