// SPDX-License-Identifier: Apache-2.0
//
// The keys of config.json that are known to be without effect on the tokens that a model computes.
// Others that no reader asks for are named, so that a misspelt key, or one of another family, does
// not go unnoticed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/printable.h"
#include "model/config/config_fields.h"

namespace wideep::model {
namespace {

// Of training, of how a program runs the model, of other tasks than generation, and of sampling,
// which requests decide.
constexpr std::string_view kHarmless[] = {"_attn_implementation",
                                          "_attn_implementation_autoset",
                                          "_commit_hash",
                                          "_name_or_path",
                                          "add_cross_attention",
                                          "attention_dropout",
                                          "attn_implementation",
                                          "auto_map",
                                          "aux_loss_alpha",
                                          "bad_words_ids",
                                          "begin_suppress_tokens",
                                          "cache_implementation",
                                          "chunk_size_feed_forward",
                                          "classifier_dropout",
                                          "cross_attention_hidden_size",
                                          "decoder_start_token_id",
                                          "diversity_penalty",
                                          "do_sample",
                                          "early_stopping",
                                          "embd_pdrop",
                                          "encoder_no_repeat_ngram_size",
                                          "eod_token_id",
                                          "ep_size",
                                          "experts_implementation",
                                          "exponential_decay_length_penalty",
                                          "finetuning_task",
                                          "for_llm_compressor",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "gradient_checkpointing",
                                          "hidden_dropout",
                                          "id2label",
                                          "initializer_range",
                                          "is_decoder",
                                          "is_encoder_decoder",
                                          "label2id",
                                          "length_penalty",
                                          "mamba_chunk_size",
                                          "mamba_ssm_cache_dtype",
                                          "max_length",
                                          "max_new_tokens",
                                          "max_window_layers",
                                          "min_length",
                                          "moe_capacity",
                                          "moe_gate",
                                          "moe_shared_expert_overlap",
                                          "mtp_hybrid_override_pattern",
                                          "mtp_layers_block_type",
                                          "mtp_num_hidden_layers",
                                          "mtp_use_dedicated_embeddings",
                                          "name_or_path",
                                          "no_repeat_ngram_size",
                                          "num_beam_groups",
                                          "num_beams",
                                          "num_labels",
                                          "num_logits_to_keep",
                                          "num_return_sequences",
                                          "org_vocab_size",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "output_router_logits",
                                          "output_scores",
                                          "pad_token_id",
                                          "prediction_heads",
                                          "prefix",
                                          "pretraining_tp",
                                          "problem_type",
                                          "pruned_heads",
                                          "remove_invalid_values",
                                          "repetition_penalty",
                                          "rescale_prenorm_residual",
                                          "resid_pdrop",
                                          "residual_in_fp32",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "router_aux_loss_coef",
                                          "router_jitter_noise",
                                          "sep_token_id",
                                          "seq_aux",
                                          "suppress_tokens",
                                          "task_specific_params",
                                          "temperature",
                                          "tf_legacy_loss",
                                          "tie_encoder_decoder",
                                          "time_step_floor",
                                          "time_step_max",
                                          "tokenizer_class",
                                          "top_k",
                                          "top_p",
                                          "torchscript",
                                          "transformers.js_config",
                                          "transformers_version",
                                          "typical_p",
                                          "unsloth_fixed",
                                          "unsloth_version",
                                          "use_bfloat16",
                                          "use_cache",
                                          "use_mamba_kernels"};

bool is_harmless(std::string_view key) {
  return std::find(std::begin(kHarmless), std::end(kHarmless), key) != std::end(kHarmless);
}

}  // namespace

std::vector<std::string> unknown_keys(const formats::JsonObject& root) {
  std::vector<std::string> unknown;
  for (const std::string& key : root.unasked_keys()) {
    if (!is_harmless(key)) unknown.push_back(base::printable(key));
  }
  return unknown;
}

void note_unknown_keys(const formats::JsonObject& root, const std::string& file,
                       ModelConfig* config) {
  const std::vector<std::string> unknown = unknown_keys(root);
  if (unknown.empty()) return;
  config->notes.push_back(fmt::format("{}: unknown key{} without effect: {}", file,
                                      unknown.size() == 1 ? "" : "s", fmt::join(unknown, ", ")));
}

}  // namespace wideep::model
