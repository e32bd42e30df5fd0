// SPDX-License-Identifier: Apache-2.0
//
// config.json files for tests: those of the golden models, to be altered in memory.
#pragma once

#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/config/config.h"

namespace wideep::model {

inline std::string golden_dir(const std::string& model) {
  return std::string(WIDEEP_SOURCE_DIR) + "/tests/golden/models/" + model;
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

inline nlohmann::json golden_json(const std::string& model) {
  return read_json(golden_dir(model) + "/config.json");
}

// A golden model's file as published checkpoints write it: rope_theta and rope_scaling only.
inline nlohmann::json classic_json(const std::string& model) {
  nlohmann::json json = golden_json(model);
  json.erase("rope_parameters");
  return json;
}

inline Result<ModelConfig> parse(const nlohmann::json& json) {
  return parse_model_config(json.dump(), "config.json");
}

// Small models of the families without golden models here: the keys without which none is read.
inline const std::map<std::string, nlohmann::json>& small_configs() {
  const nlohmann::json common = {{"vocab_size", 64},        {"hidden_size", 32},
                                 {"num_hidden_layers", 2},  {"num_attention_heads", 4},
                                 {"intermediate_size", 24}, {"max_position_embeddings", 256}};
  const nlohmann::json queries = {{"num_key_value_heads", 2}, {"head_dim", 8}};
  const nlohmann::json latent = {{"q_lora_rank", 16},
                                 {"kv_lora_rank", 12},
                                 {"qk_nope_head_dim", 12},
                                 {"qk_rope_head_dim", 8},
                                 {"v_head_dim", 12}};
  const nlohmann::json routed = {
      {"n_routed_experts", 8}, {"n_group", 1}, {"topk_group", 1}, {"moe_intermediate_size", 12}};
  const nlohmann::json indexer = {{"index_topk", 16}, {"index_n_heads", 4}, {"index_head_dim", 12}};
  const nlohmann::json groups = {{"n_group", 1}, {"topk_group", 1}};
  const nlohmann::json experts = {{"num_experts", 8}, {"num_experts_per_tok", 2}};
  const nlohmann::json local = {{"num_local_experts", 8}, {"num_experts_per_tok", 2}};
  const nlohmann::json wide = {{"moe_intermediate_size", 12}};
  const nlohmann::json shared = {{"shared_expert_intermediate_size", 16}};
  const nlohmann::json linear = {{"linear_num_key_heads", 2},
                                 {"linear_num_value_heads", 4},
                                 {"linear_key_head_dim", 8},
                                 {"linear_value_head_dim", 6}};
  const nlohmann::json scaled = {{"rope_parameters",
                                  {{"rope_type", "yarn"},
                                   {"factor", 8.0},
                                   {"original_max_position_embeddings", 32},
                                   {"llama_4_scaling_beta", 0.1}}}};
  const auto merged = [&](std::string type, std::initializer_list<nlohmann::json> parts) {
    nlohmann::json config = common;
    for (const nlohmann::json& part : parts) config.update(part);
    config["model_type"] = type;
    return std::pair(std::move(type), std::move(config));
  };
  static const std::map<std::string, nlohmann::json> all = {
      merged("afmoe", {queries, experts, wide}),
      merged("bailing_hybrid", {latent, experts, wide, groups, {{"layer_group_size", 2}}}),
      merged("cohere2_moe", {queries, experts, {{"sliding_window", 9}}}),
      {"dbrx",
       {{"model_type", "dbrx"},
        {"vocab_size", 64},
        {"d_model", 32},
        {"n_layers", 2},
        {"n_heads", 4},
        {"max_seq_len", 256},
        {"attn_config", {{"kv_n_heads", 2}, {"rope_theta", 5e5}}},
        {"ffn_config", {{"moe_num_experts", 8}, {"moe_top_k", 2}, {"ffn_hidden_size", 12}}}}},
      merged("deepseek_v2", {latent, routed, {{"num_experts_per_tok", 2}}}),
      merged("deepseek_v32", {latent, routed, indexer}),
      merged("deepseek_v4", {{{"head_dim", 16},
                              {"o_groups", 2},
                              {"n_routed_experts", 8},
                              {"num_experts_per_tok", 2},
                              {"moe_intermediate_size", 24}}}),
      merged("dots1",
             {routed,
              {{"n_shared_experts", 1}, {"num_experts_per_tok", 2}, {"num_key_value_heads", 2}}}),
      merged("ernie4_5_moe", {queries, wide, {{"moe_num_experts", 8}, {"moe_k", 2}}}),
      merged("exaone_moe", {queries, experts, wide}),
      merged("gemma4_text", {queries,
                             wide,
                             {{"enable_moe_block", true},
                              {"num_experts", 8},
                              {"top_k_experts", 2},
                              {"hidden_size_per_layer_input", 0},
                              {"attention_k_eq_v", true},
                              {"global_head_dim", 16},
                              {"num_global_key_value_heads", 1}}}),
      merged("glm4_moe", {queries, routed, {{"head_dim", 12}}}),
      merged("glm4_moe_lite", {latent, routed}),
      merged("glm5_next", {latent,
                           routed,
                           indexer,
                           {{"qk_rope_head_dim", 0},
                            {"index_kpool", 4},
                            {"linear_head_dim", 8},
                            {"mlp_layer_types", {"dense", "sparse"}},
                            {"layer_types", {"linear_attention", "indexed_attention"}}}}),
      merged("glm_moe_dsa", {latent, routed, indexer}),
      merged("gpt_oss", {queries, local}),
      merged("granitemoe", {queries, local}),
      merged("granitemoeshared", {queries, local}),
      merged("granitemoehybrid", {queries,
                                  local,
                                  {{"mamba_n_heads", 4},
                                   {"mamba_d_state", 6},
                                   {"layer_types", {"linear_attention", "full_attention"}}}}),
      merged("nemotron_h", {queries,
                            wide,
                            {{"n_routed_experts", 8},
                             {"moe_shared_expert_intermediate_size", 10},
                             {"mamba_num_heads", 4},
                             {"mamba_head_dim", 6},
                             {"ssm_state_size", 5},
                             {"n_groups", 2},
                             {"layers_block_type", {"linear_attention", "moe"}}}}),
      merged("hunyuan_v1_moe", {queries, {{"num_experts", 8}, {"moe_topk", 2}}}),
      merged("hy_v3", {queries, experts, wide}),
      merged("laguna", {queries, experts, wide}),
      merged("kimi_linear", {latent, experts, wide, {{"linear_head_dim", 8}}}),
      merged("lfm2_moe", {{{"num_key_value_heads", 2}, {"layer_types", {"conv", "full_attention"}}},
                          experts,
                          wide}),
      merged("llama", {}),
      merged("llama4_text", {queries, {{"num_local_experts", 8}}}),
      merged("mellum", {queries, experts, wide}),
      merged("mimo_v2_flash", {queries, routed, {{"v_head_dim", 6}, {"num_experts_per_tok", 2}}}),
      merged("minimax_m2", {queries, local}),
      merged("minimax_m3_vl_text", {queries,
                                    local,
                                    {{"rotary_dim", 8},
                                     {"index_n_heads", 2},
                                     {"layer_types", {"full_attention", "minimax_m3_sparse"}}}}),
      merged("mistral", {queries}),
      merged("mistral4", {latent, routed, scaled}),
      merged("mixtral", {queries, local}),
      merged("olmoe", {queries, experts}),
      merged("phimoe", {{{"num_key_value_heads", 2}}, local}),
      merged("qwen2", {queries}),
      merged("qwen2_moe", {queries, experts, wide, shared}),
      merged("qwen3", {queries}),
      merged("qwen3_next", {queries, experts, wide, shared, linear}),
      merged("qwen3_5_moe_text", {queries, experts, wide, shared, linear}),
      merged("solar_open", {queries, routed}),
      merged("step3p5", {queries,
                         wide,
                         {{"n_routed_experts", 8},
                          {"num_experts_per_tok", 2},
                          {"share_expert_dim", 10},
                          {"mlp_layer_types", {"dense", "sparse"}}}}),
  };
  return all;
}

inline nlohmann::json small_json(const std::string& family) { return small_configs().at(family); }

inline std::vector<std::string> small_families() {
  std::vector<std::string> names;
  for (const auto& [name, config] : small_configs()) names.push_back(name);
  return names;
}

// The complaint about a config, or "" when it is accepted.
inline std::string complaint(const nlohmann::json& json) { return parse(json).status().message(); }

}  // namespace wideep::model
