// SPDX-License-Identifier: Apache-2.0
//
// A model's description: its sizes, and for every layer which parts it has and with which options.
// The file of its family (families/) reads it from a Hugging Face config.json; the parts (grouped-
// query attention, latent attention, gated delta net, …) follow the description and know no family.
//
// Every key of config.json that changes the result is read. A value that wideep does not support is
// refused by name; keys that nothing has asked for are named in a note.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/weight_format.h"
#include "weights/named_tensors.h"
#include "wideep/status.h"

namespace wideep::model {

// Rotary positions, and their scaling for contexts longer than the trained one.
struct RopeConfig {
  enum class Scaling { kNone, kLinear, kYarn, kLlama3 };
  Scaling scaling = Scaling::kNone;
  double theta = 10000.0;  // Hunyuan's dynamic scaling with alpha is a larger theta
  double factor = 1.0;
  // YaRN only (arXiv:2309.00071).
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  // Llama 3's only: wavelengths above original / low are scaled, below original / high are not.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // Multiplies cos and sin. As in transformers: the config's attention_factor; else from mscale and
  // mscale_all_dim if both are given; else 0.1·ln(factor) + 1.
  double attention_factor = 1.0;
  // Latent attention only: multiplies the softmax scale by mscale(factor, mscale_all_dim)².
  double softmax_scale_multiplier = 1.0;
  bool truncate = true;  // YaRN: round the correction range to whole dimensions
  int64_t original_max_position_embeddings = 0;
  // The pairs that rotate, the first ones; 0: all. The others have frequency 0.
  int rotating_pairs = 0;
  // [rotated dimensions / 2] What each frequency is divided by before it is scaled; empty: nothing.
  std::vector<float> divisors;
  // True: dimension pairs are (0,1), (2,3), ...; false: (i, i + d/2).
  bool interleaved = false;

  // Whether the divisors are one of two lists, for texts within and beyond the original positions.
  bool has_lengths() const {
    return scaling == Scaling::kNone && !divisors.empty() && original_max_position_embeddings > 0;
  }

  bool operator==(const RopeConfig&) const = default;
};

// MiniMax sparse attention: each token attends to the blocks of positions that score best, chosen
// for each key-value head by a head of the indexer (model/parts/block_indexer.h).
struct BlockIndexerConfig {
  int head_dim = 0;  // of which the first ones are rotated, as many as of keys; 0: no indexer
  int block = 0;     // positions, a multiple of kernels::kPageTokens
  int top_k = 0;     // blocks
  int nearest = 0;   // the last blocks up to the token's own, which are always among those; ≥ 1

  // Tokens before this position attend to all positions.
  int first_choice() const { return top_k * block; }
};

// Grouped-query attention. Queries and keys are normalised, then rotated (or the reverse).
struct GroupedQueryConfig {
  // What a normalisation of queries and keys sees: one head, or the heads of a token together.
  enum class Norm { kNone, kHead, kAllHeads };
  Norm norm = Norm::kNone;
  bool norm_has_weight = true;
  bool norm_after_rotation = false;
  bool norm_rotated_only = false;  // layers without rotation have no norm
  // Values are normalised by head, without weight.
  bool value_norm = false;
  // There is no v_proj: a value is its key before norm and rotation.
  bool value_is_key = false;
  float clip = 0.0f;   // clamps queries, keys and values to ±clip, after norms; 0: no
  int rotary_dim = 0;  // the first dimensions of a head, which are rotated
  float scale = 0.0f;  // of scores
  bool qkv_bias = false;
  bool output_bias = false;
  bool sinks = false;  // a logit per head in the softmax's denominator
  // q_proj has twice the rows: per head the query, then a gate; σ(gate) multiplies the output.
  bool output_gate = false;
  // A projection of its own, g_proj, gates the output: with a number for each head, or for each
  // element of the heads' results.
  enum class Gate { kNone, kHeads, kElements };
  Gate gate = Gate::kNone;
  bool gate_softplus = false;  // softplus(gate) multiplies the output, else σ(gate)
  float value_scale = 1.0f;    // multiplies values
  // Layers without rotation scale queries by 1 + temperature · ln(1 + ⌊(position + 1) /
  // temperature_floor⌋); 0: they do not.
  float temperature = 0.0f;
  float temperature_floor = 8192.0f;
  BlockIndexerConfig blocks;
};

// The heads, options and rotation of grouped-query attention in layers of one kind.
struct AttentionKind {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;   // of a query and a key
  int value_dim = 0;  // of a value
  GroupedQueryConfig options;
  RopeConfig rope;
  // Compressed attention: this many positions make an entry; 0: layers have windows only.
  int group_size = 0;
  // Entries are made of two groups, and an indexer chooses which of them a token attends to.
  bool chooses_entries = false;
};

// Compressed attention (DeepSeek-V4): a token attends to the last positions, and to entries, each
// made of a group of positions. All heads share one key, which is the value, too. The last
// dimensions of a head are rotated.
struct CompressedConfig {
  int query_rank = 0;     // 0: the model has no such attention
  int window = 0;         // positions, the token's own included
  int output_groups = 0;  // of heads, whose outputs are each projected to
  int output_rank = 0;    // elements, before the output projection
};

// Hyper-connections (arXiv:2409.19606): the residual stream is several streams, of which layers
// take a mixture. The mixing matrix is made doubly stochastic (mHC, arXiv:2512.24880).
struct HyperConfig {
  int num_streams = 1;       // 1: a plain residual stream
  int iterations = 0;        // of the Sinkhorn-Knopp algorithm
  float epsilon = 0.0f;      // added to its divisors, and to weights of streams
  bool learned_end = false;  // weights of the streams before the final norm; else their mean

  bool is_on() const { return num_streams > 1; }
};

// DeepSeek sparse attention: each token attends to the top_k positions that score best.
struct IndexerConfig {
  int num_heads = 0;  // 0: the model has no indexer
  int head_dim = 0;   // of which the first qk_rope_head_dim are rotated
  int top_k = 0;
  bool rotates_interleaved = false;  // pairs of the rotation, as in RopeConfig
  float norm_eps = 1e-6f;            // of the keys' layer norm
  // Latent attention: whole groups of so many positions are chosen, by one key each, which a softmax
  // of gates makes of theirs; those after the last whole group are always attended to. top_k is a
  // multiple of it. 0: each position has its own key.
  int group = 0;

  // Of what a position keeps in the cache: its key, and gates.
  int row_width() const { return group > 0 ? 2 * head_dim : head_dim; }
  // Tokens before this position attend to all positions; no token attends to more positions.
  int first_choice() const {
    const int64_t first = int64_t{top_k} + std::max(group, 1) - 1;
    return static_cast<int>(std::min<int64_t>(first, std::numeric_limits<int>::max()));
  }
};

// A gated delta net (arXiv:2412.06464).
struct DeltaNetConfig {
  int num_key_heads = 0;
  int num_value_heads = 0;
  int key_dim = 0;    // of a head
  int value_dim = 0;  // of a head
  int convolution_width = 0;
  // One published matrix has queries, keys, values and gates, grouped by key head (Qwen3-Next);
  // else four matrices.
  bool fused_projections = false;

  int key_width() const { return num_key_heads * key_dim; }
  int value_width() const { return num_value_heads * value_dim; }
  int convolved_width() const { return 2 * key_width() + value_width(); }
};

// Kimi Delta Attention (arXiv:2510.26692).
struct KimiDeltaConfig {
  int num_heads = 0;
  int head_dim = 0;  // of queries, keys and values
  int convolution_width = 0;
  // Of the two matrices that make decays, and of those that make gates; 0: one matrix.
  int decay_rank = 0;
  int gate_rank = 0;
  float decay_bound = 0.0f;  // below the logarithm of decays; 0: there is none

  int width() const { return num_heads * head_dim; }
  // A head's part of the state: the convolutions' last inputs, then the matrix.
  int convolution_floats() const { return (convolution_width - 1) * 3 * head_dim; }
  int64_t head_state_floats() const { return convolution_floats() + int64_t{head_dim} * head_dim; }
};

// Mamba-2 (arXiv:2405.21060).
struct Mamba2Config {
  int num_heads = 0;
  int head_dim = 0;
  int state_dim = 0;   // of each head, [state_dim, head_dim]
  int num_groups = 0;  // of heads that share b and c
  int convolution_width = 0;
  bool convolution_bias = false;
  bool projection_bias = false;  // of both projections
  // What the length of a token's step is kept within.
  float min_step = 0.0f;
  float max_step = std::numeric_limits<float>::infinity();

  int value_width() const { return num_heads * head_dim; }
  int convolved_width() const { return value_width() + 2 * num_groups * state_dim; }
  int projected_width() const { return value_width() + convolved_width() + num_heads; }
};

// A layer is a mixer and a feed-forward part, or one of them.
struct LayerConfig {
  enum class Mixer { kAttention, kDeltaNet, kKimiDelta, kConvolution, kMamba2, kNone };
  Mixer mixer = Mixer::kAttention;
  bool has_mlp = true;  // a feed-forward part
  bool is_moe = true;   // which is a mixture of experts; false where there is none
  // Attention:
  int attention_kind = 0;  // of grouped-query attention: ModelConfig::attention_kind()
  bool rotates = true;
  int window = 0;             // attends to the last `window` positions, its own included; 0: to all
  int chunk = 0;              // attends within blocks of `chunk` positions; 0: there are none
  bool shares_index = false;  // attends to the positions that an earlier layer's indexer chose
  bool by_token = false;      // a table has the experts of each token id
  // Feed-forward: silu(gate) is at most the limit, and up within ±limit; 0: as the model's
  // activations say.
  float expert_limit = 0.0f;
  float mlp_limit = 0.0f;  // of a dense layer or the shared experts

  // The most positions that window and chunk let a token attend to, its own included; 0: all.
  int reach() const {
    return window == 0 || chunk == 0 ? std::max(window, chunk) : std::min(window, chunk);
  }

  bool operator==(const LayerConfig&) const = default;
};

// Formulas in router.cc. The names are TensorRT-LLM's where it has the method; all of its methods
// are here, also those that no family takes.
enum class RoutingMethod {
  kRenormalize,       // top-k of logits, softmax over the k
  kRenormalizeNaive,  // softmax over all, top-k, divided by the sum of the k
  kDefault,           // softmax over all, top-k, not renormalised
  kDeepseekV3,        // sigmoid, bias-corrected selection inside the best groups
  kDeepseekV2,        // softmax, selection inside the best groups
  kLlama4,            // top-k of logits, their sigmoid, which may be divided by the sum of the k
  kSigmoidRenorm,     // sigmoid, top-k, divided by the sum of the k
  kMinimax2,          // sigmoid, bias-corrected selection, divided by the sum of the k
  kErnie,             // softmax, bias-corrected selection, divided by the sum of the k
  kDeepseekV4,        // √softplus, bias-corrected selection, divided by the sum of the k
  kSparseMixer,       // the largest logit, then the next one: softmax over those near to each
};

struct RoutingConfig {
  RoutingMethod method = RoutingMethod::kRenormalize;
  int num_experts = 0;  // E
  int top_k = 0;
  int num_groups = 1;            // n_group
  int top_k_groups = 1;          // topk_group
  bool groups_by_pairs = false;  // DeepseekV2: a group is judged by its best two, not by one
  bool normalize = true;         // norm_topk_prob
  float norm_power = 1.0f;       // RenormalizeNaive: the sum is (Σ p^power)^(1 / power)
  // SparseMixer: logits that are more than this share below the largest one do not count.
  float sparse_distance = 0.0f;
  float scaling_factor = 1.f;   // routed_scaling_factor
  float epsilon = 1e-20f;       // added to the sum that weights are divided by; Ernie: its minimum
  bool logit_bias = false;      // GPT-OSS: a bias of the router's product
  bool selection_bias = false;  // e_score_correction_bias
  float logits_cap = 0.0f;      // then logits are cap · tanh(logits / cap); 0: they are not
  // The router takes the residual stream, by a norm of its own whose weight is a learned one times
  // hidden^-½; else it takes what the experts take.
  bool own_norm = false;
  bool expert_scale = false;  // a learned factor for each expert multiplies its weight at last
};

struct ModelConfig {
  std::string family;  // its model_type, for people
  int vocab_size = 0;
  int hidden_size = 0;
  int num_layers = 0;
  int max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  float latent_norm_eps = 1e-6f;  // DeepSeek: q_a_layernorm and kv_a_layernorm; no key sets it
  bool norms_add_one = false;     // norms multiply by 1 + weight
  // Norms of the residual stream subtract the mean (layer norms); those inside parts are RMS norms.
  bool layer_norms = false;
  bool norm_bias = false;  // layer norms add a bias
  // Mixer and feed-forward part of a layer take the same rows, by one norm, and what both put out
  // is added to the stream. Without hyper-connections and norms_after; layers have both parts.
  bool parallel_parts = false;
  float embedding_scale = 1.0f;  // multiplies embeddings
  float residual_scale = 1.0f;   // multiplies what a part adds to the residual stream
  float experts_scale = 1.0f;    // multiplies what routed and shared experts put out together
  HyperConfig hyper;
  float logits_scale = 1.0f;  // multiplies logits
  float logits_cap = 0.0f;    // then logits are cap · tanh(logits / cap); 0: they are not
  // What mixer and feed-forward part put out is normalised before it is added, besides what they
  // take. With a residual_scale of 1 only.
  bool norms_after = false;
  bool layer_scalar = false;         // a learned number multiplies the stream after each layer
  bool tie_word_embeddings = false;  // the LM head is the embedding
  bool head_bias = false;            // lm_head.bias
  std::string embedding_tensor = "model.embed_tokens.weight";
  int bos_token_id = -1;           // −1: none
  std::vector<int> eos_token_ids;  // config.json's, or generation_config.json's when present
  // Of most matrices, from quantization_config; the checkpoint shows which ones differ.
  kernels::WeightFormat stored_format = kernels::WeightFormat::kBf16;
  weights::DeclaredLayout declared;  // what it says of all quantised matrices
  RopeConfig rope;

  // Attention: grouped-query ...
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;  // of a query; latent: qk_nope_head_dim + qk_rope_head_dim
  GroupedQueryConfig grouped_query;
  // Of layers whose attention_kind is 1, 2, …; what is said above and `rope` are of kind 0.
  std::vector<AttentionKind> other_kinds;
  // ... or multi-head latent (kv_lora_rank > 0), where q_lora_rank 0 means an unfactored query.
  int q_lora_rank = 0;
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;  // shared by all heads; may be 0 where layers do not rotate
  int v_head_dim = 0;        // grouped-query attention: 0 where values are as long as keys
  bool latent_bias = false;  // of q_a_proj, kv_a_proj_with_mqa and o_proj
  bool latent_gate = false;  // σ(g_proj · x), a number per head, multiplies the heads' output
  // Queries are scaled by 1 + latent_temperature · ln(1 + ⌊position / latent_temperature_floor⌋);
  // 0: they are not.
  float latent_temperature = 0.0f;
  float latent_temperature_floor = 8192.0f;
  IndexerConfig indexer;  // latent and compressed attention only
  // ... or compressed, whose kinds have their own groups of positions.
  CompressedConfig compressed;
  // Instead of attention, in the layers that have them:
  DeltaNetConfig delta_net;
  KimiDeltaConfig kimi_delta;
  Mamba2Config mamba2;
  int convolution_width = 0;      // of short convolutions
  bool convolution_bias = false;  // of their three products

  // Feed-forward.
  int dense_intermediate_size = 0;
  bool dense_bias = false;               // of all three products of a dense layer
  kernels::Activation dense_activation;  // of dense layers and shared experts
  // MoE layers have a dense MLP, too. Experts and MLP both take the residual stream, each by a norm
  // of its own, and each result has a norm before they are added. With norms_after only.
  bool dense_beside_experts = false;
  int moe_intermediate_size = 0;
  // What routed experts take and put out where that is another width than the model's: one
  // projection before them and one after their sum. The router and shared experts take the model's
  // rows. 0: there are no projections.
  int moe_latent_size = 0;
  int shared_intermediate_size = 0;  // of the shared experts together, one MLP; 0: none
  bool shared_expert_gate = false;   // σ(gate · x) multiplies their output
  kernels::Activation activation;    // of experts
  bool expert_bias = false;          // of all three products of an expert
  bool weight_on_input = false;      // the router's weight multiplies an expert's input
  RoutingConfig routing;
  // [num_layers + num_prediction_layers]
  std::vector<LayerConfig> layers;
  // Layers of the file that predict further tokens (multi-token prediction, MTP), as
  // num_nextn_predict_layers, and whether their tensors have known names.
  int num_mtp_layers = 0;
  bool names_mtp_layers = false;
  // Those that run: they follow the others, with indices from num_layers on, and draft
  // (engine/speculation). See add_prediction_layers().
  int num_prediction_layers = 0;
  LayerConfig prediction_layer;  // what each of them is

  // The published names of the tensors, where they are not those of this house (tensor_list.h).
  weights::TensorNames tensor_names;
  // Begins of the names of tensors that published files have and the text model does not use.
  std::vector<std::string> left_out;

  // One line each: what the files say and the run does not use, or decides for itself.
  std::vector<std::string> notes;

  std::string head_tensor() const {
    return tie_word_embeddings ? embedding_tensor : "lm_head.weight";
  }
  int num_all_layers() const { return num_layers + num_prediction_layers; }
  bool is_prediction(int layer) const { return layer >= num_layers; }
  bool is_mla() const { return kv_lora_rank > 0; }
  bool is_compressed() const { return compressed.query_rank > 0; }
  // Elements of a token's residual streams together.
  int stream_width() const { return hidden_size * hyper.num_streams; }
  int value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }  // of a head
  int num_attention_kinds() const { return 1 + static_cast<int>(other_kinds.size()); }
  AttentionKind attention_kind(int kind) const {
    if (kind > 0) return other_kinds[static_cast<size_t>(kind - 1)];
    return {.num_heads = num_heads,
            .num_kv_heads = num_kv_heads,
            .head_dim = head_dim,
            .value_dim = value_dim(),
            .options = grouped_query,
            .rope = rope,
            .group_size = 0,
            .chooses_entries = false};
  }
  AttentionKind attention_of(int layer) const {
    return attention_kind(layers[static_cast<size_t>(layer)].attention_kind);
  }
  kernels::Activation expert_activation(int layer) const {
    return limited(activation, layers[static_cast<size_t>(layer)].expert_limit);
  }
  // Of a dense layer's MLP or the shared experts.
  kernels::Activation mlp_activation(int layer) const {
    return limited(dense_activation, layers[static_cast<size_t>(layer)].mlp_limit);
  }
  static kernels::Activation limited(const kernels::Activation& activation, float limit) {
    if (limit == 0.0f) return activation;
    return {.kind = kernels::Activation::Kind::kLimitedSilu, .limit = limit};
  }
  // Elements of the widest heads' results of a token.
  int heads_width() const {
    int width = num_heads * value_dim();
    for (const AttentionKind& kind : other_kinds) {
      width = std::max(width, kind.num_heads * kind.value_dim);
    }
    return width;
  }
  int num_moe_layers() const {
    return static_cast<int>(std::count_if(layers.begin(), layers.end(),
                                          [](const LayerConfig& layer) { return layer.is_moe; }));
  }
  bool has_experts() const { return num_moe_layers() > 0; }
  // Of the rows that routed experts take and put out.
  int expert_hidden_size() const { return moe_latent_size > 0 ? moe_latent_size : hidden_size; }
  bool is_moe(int layer) const { return layers[static_cast<size_t>(layer)].is_moe; }
  bool has_mlp(int layer) const { return layers[static_cast<size_t>(layer)].has_mlp; }
  bool is_dense(int layer) const { return has_mlp(layer) && !is_moe(layer); }
  bool has_mixer(int layer) const {
    return layers[static_cast<size_t>(layer)].mixer != LayerConfig::Mixer::kNone;
  }
  // Tokens before this position attend to all that windows and chunks let them; 0: there is no
  // indexer.
  int first_choice() const {
    int first = indexer.first_choice();
    for (int kind = 0; kind < num_attention_kinds(); ++kind) {
      first = std::max(first, attention_kind(kind).options.blocks.first_choice());
    }
    return first;
  }
  // Whether the layer keeps keys and values in the cache.
  bool is_cached(int layer) const {
    return layers[static_cast<size_t>(layer)].mixer == LayerConfig::Mixer::kAttention;
  }
  // Whether some layer keeps a state for each sequence (state_layout.h).
  bool has_state() const {
    return std::any_of(layers.begin(), layers.end(), [](const LayerConfig& layer) {
      return layer.mixer != LayerConfig::Mixer::kAttention &&
             layer.mixer != LayerConfig::Mixer::kNone;
    });
  }
};

// Reads `model_dir`/config.json, and generation_config.json, if present, for the end tokens; or the
// metadata of a GGUF file.
// Errors (invalid input): a missing file or key, a value that is out of range or contradictory, a
// family or feature that wideep does not support. The message is one line with file and key.
// An accepted config has these properties: all sizes of its parts are positive; heads × head size
// fits an int; the number of elements of all experts of a layer fits an int64; rotated sizes are
// even; layers has num_layers entries.
Result<ModelConfig> read_model_config(const std::string& model_dir);

// The same from the text of config.json alone. name: names the file in messages.
Result<ModelConfig> parse_model_config(const std::string& json, const std::string& name);

// Makes the model run its first `count` layers that predict further tokens: attention and experts,
// as the other layers have them. Errors (invalid input): it has fewer, or wideep does not know
// their tensors.
Status add_prediction_layers(int count, ModelConfig* config);

}  // namespace wideep::model
