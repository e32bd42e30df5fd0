// SPDX-License-Identifier: Apache-2.0
//
// A model's shape, read from a Hugging Face config.json (DeepSeek-V3, Qwen3-MoE).
//
// Every field of config.json that changes the result is read. A value that wideep does not support
// (another activation, attention bias, a sliding window, an unknown quantisation, ...) is refused
// by name.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/weight_format.h"
#include "wideep/status.h"

namespace wideep::model {

enum class Architecture { kDeepseekV3, kQwen3Moe };

// Scaling of rotary frequencies for contexts longer than the trained one.
struct RopeConfig {
  enum class Scaling { kNone, kLinear, kYarn };
  Scaling scaling = Scaling::kNone;
  double theta = 10000.0;
  double factor = 1.0;
  // YaRN only (arXiv:2309.00071).
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  // Multiplies cos and sin. As in transformers: the config's attention_factor; else from mscale and
  // mscale_all_dim if both are given; else 0.1·ln(factor) + 1.
  double attention_factor = 1.0;
  // DeepSeek only: multiplies the softmax scale by mscale(factor, mscale_all_dim)².
  double softmax_scale_multiplier = 1.0;
  bool truncate = true;  // YaRN: round the correction range to whole dimensions
  int64_t original_max_position_embeddings = 0;
  // True: dimension pairs are (0,1), (2,3), ... (DeepSeek's rope_interleave); false: (i, i + d/2).
  bool interleaved = false;

  bool operator==(const RopeConfig&) const = default;
};

enum class RoutingMethod {
  kRenormalize,  // top-k of logits, softmax over the k (≡ Qwen3 with norm_topk_prob)
  kDefault,      // softmax over all, top-k, not renormalised (Qwen3 without norm_topk_prob)
  kDeepseekV3,   // sigmoid, bias-corrected selection inside the best groups
};

struct RoutingConfig {
  RoutingMethod method = RoutingMethod::kRenormalize;
  int num_experts = 0;  // E
  int top_k = 0;
  int num_groups = 1;          // DeepSeek: n_group
  int top_k_groups = 1;        // DeepSeek: topk_group
  bool normalize = true;       // DeepSeek: norm_topk_prob
  float scaling_factor = 1.f;  // DeepSeek: routed_scaling_factor
};

struct ModelConfig {
  Architecture architecture = Architecture::kDeepseekV3;
  int vocab_size = 0;
  int hidden_size = 0;
  int num_layers = 0;
  int max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  float latent_norm_eps = 1e-6f;     // DeepSeek: q_a_layernorm and kv_a_layernorm; no key sets it
  bool tie_word_embeddings = false;  // the LM head is the embedding
  std::string embedding_tensor = "model.embed_tokens.weight";
  int bos_token_id = -1;           // −1: none
  std::vector<int> eos_token_ids;  // config.json's, or generation_config.json's when present
  // Of most matrices, from quantization_config; the checkpoint shows which ones differ.
  kernels::WeightFormat stored_format = kernels::WeightFormat::kBf16;
  RopeConfig rope;

  // Attention: grouped-query (Qwen3) ...
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;  // of a query; DeepSeek: qk_nope_head_dim + qk_rope_head_dim
  // ... or multi-head latent (DeepSeek), where q_lora_rank 0 means an unfactored query.
  int q_lora_rank = 0;
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;
  int v_head_dim = 0;

  // Feed-forward.
  int dense_intermediate_size = 0;
  int moe_intermediate_size = 0;
  int num_shared_experts = 0;  // one gated MLP of num_shared_experts × moe_intermediate_size
  RoutingConfig routing;
  std::vector<bool> is_moe_layer;  // [num_layers]
  int num_mtp_layers = 0;          // num_nextn_predict_layers: present in the file, not run here

  // One line each: what the files say and the run does not use, or decides for itself.
  std::vector<std::string> notes;

  std::string head_tensor() const {
    return tie_word_embeddings ? embedding_tensor : "lm_head.weight";
  }
  bool is_mla() const { return architecture == Architecture::kDeepseekV3; }
  int num_moe_layers() const {
    return static_cast<int>(std::count(is_moe_layer.begin(), is_moe_layer.end(), true));
  }
};

// Reads `model_dir`/config.json, and generation_config.json, if present, for the end tokens.
// Errors (invalid input): a missing file or key, a value that is out of range or contradictory, an
// architecture or feature that wideep does not support. The message is one line with file and key.
// An accepted config has these properties: all sizes of its architecture are positive; heads × head
// size fits an int; the number of elements of all experts of a layer fits an int64; rotated head
// sizes are even; is_moe_layer has num_layers entries.
Result<ModelConfig> read_model_config(const std::string& model_dir);

// The same from the text of config.json alone. name: names the file in messages.
Result<ModelConfig> parse_model_config(const std::string& json, const std::string& name);

}  // namespace wideep::model
