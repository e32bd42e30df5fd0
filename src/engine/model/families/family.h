// SPDX-License-Identifier: Apache-2.0
//
// A family of models: a function that reads its config.json into a description of the parts
// (model/config/config.h), with the names of its tensors. docs/models.md shows how to add one.
//
// The readers below are shared by families. They record errors in the document; after an error
// values may be anything, so a family checks relations between them only `if (readable(root))`.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/json.h"
#include "kernels/convolution.h"
#include "kernels/delta_rule.h"
#include "model/config/config.h"
#include "model/config/config_fields.h"

namespace wideep::model {

struct Family {
  std::string_view model_type;  // of config.json
  std::string_view class_name;  // of config.json's "architectures"
  // root: the text model's object. Called with the tokens, hidden_size, num_layers, num_heads and
  // max_position_embeddings of the config read, and `layers` of that number; see config_reader.cc.
  void (*read)(const formats::JsonObject& root, ModelConfig* config) = nullptr;
  // rms_norm_eps of a config without it; 0: it is required.
  double norm_eps = 0;
  // Of a wrapper with a text_config: its own tie_word_embeddings comes before the text's, because
  // the head is outside the text model.
  bool outer_ties = false;
  bool ties = false;  // tie_word_embeddings of a config without it
  // The only model_type that its text_config may have; none: those of its reader, or no such key.
  std::string_view text_type = {};
  // The key of the most positions, where it has another name in published files.
  std::string_view positions = "max_position_embeddings";
  // The number of layers of a config without that key, from its lists; null: it is required.
  int (*count_layers)(const formats::JsonObject& root) = nullptr;
  // Other names of these sizes in published files.
  std::string_view hidden = "hidden_size";
  std::string_view heads = "num_attention_heads";
  std::string_view layers = "num_hidden_layers";
};

// All families, in the order of docs/models.md.
std::span<const Family> families();
// What a family that wideep knows and does not compute needs (not_computed.cc); "" for all others.
// name: the model_type or the class.
std::string_view reason_for_refusal(std::string_view name);

// ---- shared readers ----

// Heads of a config without num_key_value_heads (0: all heads) and head_dim (0: hidden_size /
// heads).
struct HeadDefaults {
  int kv_heads = 0;
  int head_dim = 0;
};
// num_key_value_heads and head_dim, with the whole head rotated, scores scaled by 1/√head_dim, and
// the relations between the heads checked. A null means 0 of the defaults.
void read_grouped_query(const formats::JsonObject& root, ModelConfig* config,
                        const HeadDefaults& defaults = {});
// attention_bias: of queries, keys, values and, where the family has it, of the output.
void read_attention_bias(const formats::JsonObject& root, bool by_default, bool output,
                         ModelConfig* config);
// How many of the dimensions of a head rotate with this partial_rotary_factor of the object; an
// odd or no number is an error.
int rotated_dimensions(const formats::JsonObject& object, double share, int head_dim);
// The rotated share of a head, partial_rotary_factor here or in rope_parameters. After
// read_grouped_query().
void read_partial_rotary(const formats::JsonObject& root, double by_default, ModelConfig* config);
// Refuses another partial_rotary_factor than 1.
void require_whole_rotary(const formats::JsonObject& root);

// Experts of grouped-query families: the keys of their number, of top_k and of their width, and
// the values of absent keys (0: the key is required).
struct ExpertKeys {
  std::string_view experts = "num_experts";
  std::string_view top_k = "num_experts_per_tok";
  std::string_view width = "moe_intermediate_size";
  int num_experts = 0;
  int num_chosen = 0;
};
void read_experts(const formats::JsonObject& root, const ExpertKeys& keys, ModelConfig* config);
// Records an error unless 1 ≤ top_k ≤ num_experts.
void check_top_k(const formats::JsonObject& root, std::string_view key,
                 const RoutingConfig& routing);
// num_experts, which transformers 5 also writes as num_local_experts; both must agree.
// by_default: of a config without either; 0: one is required.
int read_num_experts(const formats::JsonObject& root, int64_t min = 1, int by_default = 0);

// decoder_sparse_step and mlp_only_layers of Qwen: which layers are MoE layers.
void read_sparse_steps(const formats::JsonObject& root, ModelConfig* config);
// The first `num_dense` layers are dense, the others MoE layers.
void set_first_dense(int64_t num_dense, ModelConfig* config);
// All layers are dense, of intermediate_size.
void read_dense_mlps(const formats::JsonObject& root, ModelConfig* config);
// mlp_layer_types, where it decides: layers of "dense" are dense, the others MoE layers.
void read_dense_layers(const formats::JsonObject& root, ModelConfig* config);

// Experts of Qwen2-MoE and later: the routing (norm_topk_prob), and one shared expert of
// shared_expert_intermediate_size with a gate.
void read_qwen_experts(const formats::JsonObject& root, const ExpertKeys& keys, bool normalize,
                       ModelConfig* config);
// use_sliding_window, sliding_window (without effect where the former is false) and
// max_window_layers of Qwen2, Qwen2-MoE and Qwen3 (qwen_dense.cc). slides(layer,
// max_window_layers): whether a layer slides if layer_types is absent.
void read_qwen_windows(const formats::JsonObject& root,
                       const std::function<bool(int layer, int64_t max_window_layers)>& slides,
                       ModelConfig* config);
// Layers of gated delta nets and of gated attention, with the norms of both (qwen3_next.cc).
void read_gated_layers(const formats::JsonObject& root, ModelConfig* config);

// sliding_window: a size, or 0 for null.
int read_window(const formats::JsonObject& root, int by_default = 0);
// For each layer, whether layer_types has the word `chosen`; `other` is the only other word.
// by_default(layer): if the key is absent.
std::vector<bool> read_layer_types(const formats::JsonObject& root, const ModelConfig& config,
                                   std::string_view chosen, std::string_view other,
                                   const std::function<bool(int layer)>& by_default);
// layer_types of full and sliding attention: windows of `window` positions. by_default(layer):
// whether a layer slides if the key is absent.
void read_sliding_layers(const formats::JsonObject& root, int window,
                         const std::function<bool(int layer)>& by_default, ModelConfig* config);
// Refuses other words than `only` ("attention" is full_attention) in layer_types.
void require_layer_types(const formats::JsonObject& root, const ModelConfig& config,
                         std::string_view only);
// The same for full_attention.
void require_full_attention(const formats::JsonObject& root, const ModelConfig& config);

// ---- a layer that predicts further tokens, outside the numbered ones (mtp_names.cc) ----

// Its tensors by the names of Qwen3-Next: mtp.fc, mtp.layers.0.self_attn, …
void name_mtp_layer(ModelConfig* config);
// Whether it has a window, by mtp_layer_types or `by_default`: it is like the model's layers that
// have one, or not. False: there are no such layers, so that nothing says its rotation.
bool set_prediction_window(const formats::JsonObject& root, bool by_default, ModelConfig* config);

// ---- layers with heads or rotations of several kinds (global_heads.cc) ----

// The kind of attention of these layers (of all, where `of_layers` is true): one like kind 0, which
// was read before. Valid until the next call.
AttentionKind* add_attention_kind(const std::vector<bool>& of_layers, ModelConfig* config);
// Rotary parameters without rope_parameters.
struct KindRope {
  double theta = 1e4;
  double share = 0;  // above 0: rope_type proportional, with this partial_rotary_factor
  // Above 0: of other types, too, partial_rotary_factor says how many first dimensions of a head
  // rotate, this share without rope_parameters.
  double rotated = 0;
  double rotated_if_absent = 1.0;  // and this one in an object of the default type without the key
};
// The rotation of a kind of layers: rope_parameters has an object for each `word` of layer_types.
// Rotates whole heads, unless `by_default` says otherwise. REQUIRES: the kind has its head_dim.
void read_kind_rope(const formats::JsonObject& root, std::string_view word,
                    const KindRope& by_default, ModelConfig* config, AttentionKind* kind);
// Full and sliding attention, each kind with its rotation: layers with a window become a kind of
// their own, which is returned; null: there are none. Refuses other rotary keys that contradict
// those of kind 0. After read_sliding_layers() and all options of attention.
AttentionKind* read_sliding_kind(const formats::JsonObject& root, const KindRope& full,
                                 const KindRope& sliding, ModelConfig* config);
// per_layer_config, as transformers 5 saves what differs in single layers: head_dim and
// num_key_value_heads of the layers of a kind, which must be alike; those of the other layers are
// kind 0's. Returns whether there is one.
bool read_layer_overrides(const formats::JsonObject& root, const std::vector<bool>& of_layers,
                          const ModelConfig& config, AttentionKind* kind);
// Records errors unless heads are of an even size and shared by equally many queries.
void check_kind(const formats::JsonObject& root, const AttentionKind& kind);

// A list of a number for each layer, of which null is 0; empty if the key is absent
// (layer_lists.cc).
std::vector<double> read_layer_numbers(const formats::JsonObject& root, std::string_view key,
                                       size_t num_layers);
// The rotation of layers with windows, or of the others, where rope_theta and
// partial_rotary_factors are such lists; rope_scaling is of layers without windows.
void read_listed_rope(const formats::JsonObject& root, bool slides, const ModelConfig& config,
                      AttentionKind* kind);

// Of the numbers of the MoE layers, as a list or a text with commas. REQUIRES: the key is there.
void read_listed_moe_layers(const formats::JsonObject& root, std::string_view key,
                            ModelConfig* config);

// A letter for each layer, of which each is one part: M is Mamba-2, * attention, E experts, - an
// MLP, ? another word. layers_block_type (transformers calls it layer_types, too) has words for them
// and comes before the pattern of letters; both must agree.
inline constexpr std::string_view kLayerPattern = "hybrid_override_pattern";
std::string read_layer_letters(const formats::JsonObject& root);
// How many there are; at least 1.
int count_layer_letters(const formats::JsonObject& root);

// What the kernel takes (kernels/convolution.h).
inline constexpr formats::IntegerRange kConvolutionWidths = {.min = kernels::kMinConvolutionWidth,
                                                             .max = kernels::kMaxConvolutionWidth};
inline constexpr formats::IntegerRange kKimiHeadDims = {.min = 1,
                                                        .max = kernels::kMaxChannelDecays};

// hidden_act, or the key of another activation, must be silu, which is also called swish.
void require_silu(const formats::JsonObject& root, std::string_view key = "hidden_act");
// Whether the key is there with a null, which other accessors take for an absent key.
bool is_null(const formats::JsonObject& root, std::string_view key);
// A flag whose null is false, as what is None is to Python.
bool flag_or_null(const formats::JsonObject& root, std::string_view key, bool by_default);
// A key that repeats what others say (source, which has the value `expected`).
void expect_equal(const formats::JsonObject& root, std::string_view key, std::string_view source,
                  int64_t expected);
// A size under either of two names; both must agree.
int read_either(const formats::JsonObject& root, std::array<std::string_view, 2> keys,
                int by_default, int64_t max);
// A size of the key, from 1 on.
int size_or(const formats::JsonObject& root, std::string_view key, int by_default, int64_t max);
// A positive number of the key, as a float.
float read_scale(const formats::JsonObject& root, std::string_view key, double by_default);

// The matrices of experts and dense layers are called w1 (gate), w3 (up) and w2 (down), below
// `moe` and `dense`. Those of experts may be called as in name_experts_below(), too.
void name_experts_w123(const std::string& moe, weights::TensorNames* names);
// The experts lie below `moe`, each on its own, as programs that quantise write them, or fused.
void name_experts_below(const std::string& moe, weights::TensorNames* names);
void name_dense_w123(const std::string& dense, weights::TensorNames* names);

// Granite's attention with the multipliers of the model, and its experts (granitemoe.cc).
void read_granite_attention(const formats::JsonObject& root, ModelConfig* config);
void read_granite_experts(const formats::JsonObject& root, ModelConfig* config);
// Keys of Mamba-2's sizes and biases, with the values of absent ones; time_step_limit is read apart
// (granitemoehybrid.cc).
struct Mamba2Keys {
  std::string_view heads, groups, state_dim, convolution_width, convolution_bias, projection_bias;
  int num_heads = 128;
  int num_groups = 1;
  int num_states = 256;
};
void read_mamba2(const formats::JsonObject& root, const Mamba2Keys& keys, Mamba2Config* mamba);
// time_step_limit of Mamba-2: two limits, of which the second may be infinity; false: absent, or an
// error, which is recorded (granitemoehybrid.cc).
bool read_step_limits(const formats::JsonObject& root, Mamba2Config* mamba);

// The rotated share of a head of MiniMax (minimax_m2.cc), whose published files write rotary_dim for
// partial_rotary_factor · head_dim. REQUIRES: readable(root); after read_grouped_query().
void read_minimax_rotary(const formats::JsonObject& root, ModelConfig* config);

// Keys of DeepSeek-V3's latent attention, experts and routing, which others have taken over
// (deepseek.cc). whole_head: head_dim repeats the size of a whole head, not of its rotated part.
void read_latent_attention(const formats::JsonObject& root, ModelConfig* config,
                           bool whole_head = false);
// The same without the relation between head_dim and qk_rope_head_dim, which is at least
// least_rotary.
void read_latent_sizes(const formats::JsonObject& root, int least_rotary, ModelConfig* config);

// Values of absent keys; 0: the key is required, or there are none. And the names of keys that
// differ.
struct DeepseekDefaults {
  int dense_layers = 0;
  int shared_experts = 0;
  int mtp_layers = 0;
  int experts = 0;
  int top_k = 0;
  int groups = 0;
  int top_k_groups = 0;
  std::optional<bool> normalize;  // norm_topk_prob; none: it is required
  double scaling_factor = 0;
  bool softmax = false;  // scores in place of sigmoids, without a bias of the choice
  std::string_view experts_key = "n_routed_experts";
  std::string_view shared_key = "n_shared_experts";
  std::string_view scaling_key = "routed_scaling_factor";
};
void read_deepseek_layers(const formats::JsonObject& root, const DeepseekDefaults& defaults,
                          ModelConfig* config);
// The part of it for layers with experts: their width, that of shared ones, and MTP.
void read_deepseek_experts(const formats::JsonObject& root, const DeepseekDefaults& defaults,
                           ModelConfig* config);
void read_deepseek_routing(const formats::JsonObject& root, const DeepseekDefaults& defaults,
                           ModelConfig* config);
// Both, by the names of Kimi-Linear and Ling-3.0 (kimi_linear.cc). Shared experts are required.
void read_kimi_experts(const formats::JsonObject& root, const DeepseekDefaults& defaults,
                       ModelConfig* config);
// A size of linear_attn_config, or else of the root, under its own name there (kimi_linear.cc).
int read_linear_size(const formats::JsonObject& root, std::string_view inner,
                     std::string_view outer, int by_default, formats::IntegerRange range);
// Relations between experts, groups and top_k. REQUIRES: readable(root).
void check_groups(const formats::JsonObject& root, const RoutingConfig& routing,
                  std::string_view experts_key = DeepseekDefaults().experts_key);
// All of V3.2 and GLM-5 but the indexer.
void read_sparse_latent(const formats::JsonObject& root, const DeepseekDefaults& defaults,
                        ModelConfig* config);
void read_indexer(const formats::JsonObject& root, bool rotates_interleaved, ModelConfig* config);
// Which layers of attention share the choice of an indexer before them (glm_moe_dsa.cc).
void read_index_sharing(const formats::JsonObject& root, ModelConfig* config);

// Compressed attention by DeepSeek-V4's keys: heads, kinds of layers and their rotations
// (compressed_layers.cc).
void read_compressed_attention(const formats::JsonObject& root, ModelConfig* config);
// hc_mult and the like, without what comes after the last layer (deepseek_v4.cc).
HyperConfig read_hyper_connections(const formats::JsonObject& root);

// ---- the families ----

using Reader = void(const formats::JsonObject& root, ModelConfig* config);
Reader read_afmoe, read_bailing_hybrid, read_cohere2_moe, read_dbrx, read_deepseek_v2,
    read_deepseek_v3, read_deepseek_v32, read_deepseek_v4, read_dots1, read_ernie4_5_moe,
    read_exaone_moe, read_gemma4, read_glm4_moe, read_glm4_moe_lite, read_glm5_next,
    read_glm_moe_dsa, read_gpt_oss, read_granitemoe, read_granitemoehybrid, read_hunyuan_v1_moe,
    read_hy_v3, read_kimi_linear, read_laguna, read_lfm2_moe, read_llama, read_llama4, read_mellum,
    read_mimo_v2_flash, read_minimax_m2, read_minimax_m3, read_mistral, read_mistral4, read_mixtral,
    read_nemotron_h, read_olmoe, read_phimoe, read_qwen2, read_qwen2_moe, read_qwen3,
    read_qwen3_5_moe, read_qwen3_moe, read_qwen3_next, read_solar_open, read_step3p7;

}  // namespace wideep::model
