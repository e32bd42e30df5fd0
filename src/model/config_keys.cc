// SPDX-License-Identifier: Apache-2.0
//
// The keys of config.json: those that are read, and those known to be without effect on the tokens
// that a model computes. All others are named, so that a misspelt key, or one of another
// architecture, does not go unnoticed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "base/printable.h"
#include "model/config_fields.h"

namespace wideep::model {
namespace {

using Keys = std::span<const std::string_view>;

constexpr std::string_view kRead[] = {"architectures",
                                      "attention_bias",
                                      "bos_token_id",
                                      "dtype",
                                      "eos_token_id",
                                      "head_dim",
                                      "hidden_act",
                                      "hidden_size",
                                      "intermediate_size",
                                      "layer_types",
                                      "max_position_embeddings",
                                      "mlp_bias",
                                      "mlp_layer_types",
                                      "model_type",
                                      "moe_intermediate_size",
                                      "norm_topk_prob",
                                      "num_attention_heads",
                                      "num_experts",
                                      "num_experts_per_tok",
                                      "num_hidden_layers",
                                      "num_key_value_heads",
                                      "num_local_experts",
                                      "original_max_position_embeddings",
                                      "partial_rotary_factor",
                                      "qkv_bias",
                                      "quantization_config",
                                      "rms_norm_eps",
                                      "rope_parameters",
                                      "rope_scaling",
                                      "rope_theta",
                                      "sliding_window",
                                      "tie_word_embeddings",
                                      "torch_dtype",
                                      "use_sliding_window",
                                      "vocab_size"};

constexpr std::string_view kReadOfDeepseek[] = {"first_k_dense_replace", "kv_lora_rank",
                                                "moe_layer_freq",        "n_group",
                                                "n_routed_experts",      "n_shared_experts",
                                                "num_mtp_layers",        "num_nextn_predict_layers",
                                                "q_lora_rank",           "qk_head_dim",
                                                "qk_nope_head_dim",      "qk_rope_head_dim",
                                                "rope_interleave",       "routed_scaling_factor",
                                                "scoring_func",          "topk_group",
                                                "topk_method",           "v_head_dim"};

constexpr std::string_view kReadOfQwen[] = {"decoder_sparse_step", "mlp_only_layers",
                                            "shared_expert_intermediate_size", "use_qk_norm"};

// Of training, of how a program runs the model, of other tasks than generation, and of sampling,
// which requests decide.
constexpr std::string_view kHarmless[] = {"_attn_implementation",
                                          "_attn_implementation_autoset",
                                          "_commit_hash",
                                          "_name_or_path",
                                          "attention_dropout",
                                          "attn_implementation",
                                          "auto_map",
                                          "aux_loss_alpha",
                                          "chunk_size_feed_forward",
                                          "classifier_dropout",
                                          "do_sample",
                                          "embd_pdrop",
                                          "ep_size",
                                          "experts_implementation",
                                          "finetuning_task",
                                          "gradient_checkpointing",
                                          "hidden_dropout",
                                          "id2label",
                                          "initializer_range",
                                          "is_decoder",
                                          "is_encoder_decoder",
                                          "label2id",
                                          "max_length",
                                          "max_new_tokens",
                                          "max_window_layers",
                                          "name_or_path",
                                          "num_beams",
                                          "num_labels",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "output_router_logits",
                                          "pad_token_id",
                                          "prediction_heads",
                                          "prefix",
                                          "pretraining_tp",
                                          "problem_type",
                                          "repetition_penalty",
                                          "resid_pdrop",
                                          "return_dict",
                                          "router_aux_loss_coef",
                                          "sep_token_id",
                                          "seq_aux",
                                          "task_specific_params",
                                          "temperature",
                                          "tokenizer_class",
                                          "top_k",
                                          "top_p",
                                          "torchscript",
                                          "transformers_version",
                                          "transformers.js_config",
                                          "unsloth_fixed",
                                          "unsloth_version",
                                          "use_bfloat16",
                                          "use_cache"};

bool is_in(Keys keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

void note_unknown_keys(const formats::JsonObject& root, const std::string& file,
                       ModelConfig* config) {
  const Keys own = config->is_mla() ? Keys(kReadOfDeepseek) : Keys(kReadOfQwen);
  std::vector<std::string> unknown;
  for (const std::string& key : root.keys()) {
    if (is_in(kRead, key) || is_in(own, key) || is_in(kHarmless, key)) continue;
    if (root.has(key)) unknown.push_back(base::printable(key));  // a null says nothing
  }
  if (unknown.empty()) return;
  config->notes.push_back(fmt::format("{}: unknown key{} without effect: {}", file,
                                      unknown.size() == 1 ? "" : "s", fmt::join(unknown, ", ")));
}

}  // namespace wideep::model
