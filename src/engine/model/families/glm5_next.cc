// SPDX-License-Identifier: Apache-2.0
//
// GLM-5.3-Flash (text): Kimi Delta Attention whose decays have a bound, and latent attention without
// positions to groups of positions that an indexer chooses; hyper-connections; DeepSeek-V3's experts
// with a clamped activation.
//
// Published files have the sizes of the delta rule in linear_attn_config; transformers writes
// linear_head_dim and the like.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

constexpr std::string_view kLinear = "linear_attn_config";
constexpr int64_t kMaxGroup = 1024;  // positions

// The least logarithm of a decay; 0: there is none. Within linear_attn_config a null is no bound
// only where safe_gate is false.
float read_decay_bound(const JsonObject& root) {
  constexpr std::string_view kOuter = "linear_lower_bound", kInner = "gate_lower_bound";
  constexpr formats::NumberRange kBounds = {.min = -1e6, .max = -1e-6};
  constexpr double kDefault = -5.0;
  const bool is_listed = root.has(kLinear);
  double bound = is_null(root, kOuter) ? 0.0 : root.number_or(kOuter, kDefault, kBounds);
  if (!is_listed) return static_cast<float>(bound);
  const JsonObject linear = root.object(kLinear);
  if (is_null(linear, kInner)) {
    bound = 0.0;
  } else if (linear.has(kInner)) {
    const double found = linear.number(kInner, kBounds);
    if (root.has(kOuter) && bound != found) {
      root.complain(kOuter, fmt::format("contradicts {}.{}", kLinear, kInner));
    }
    bound = found;
  }
  if (linear.boolean_or("safe_gate", true) && bound == 0.0) bound = kDefault;
  return static_cast<float>(bound);
}

void read_delta(const JsonObject& root, ModelConfig* config) {
  KimiDeltaConfig& net = config->kimi_delta;
  net.head_dim = read_linear_size(root, "head_dim", "linear_head_dim", 128, kKimiHeadDims);
  net.num_heads =
      read_linear_size(root, "num_heads", "linear_num_heads", 64, {.min = 1, .max = kMaxHeads});
  net.convolution_width = read_linear_size(root, "short_conv_kernel_size", "linear_conv_kernel_dim",
                                           4, kConvolutionWidths);
  net.decay_rank = net.gate_rank = net.head_dim;
  net.decay_bound = read_decay_bound(root);
}

// layer_types; full_attention is another word for indexed_attention.
void read_mixers(const JsonObject& root, ModelConfig* config) {
  const std::vector<std::string> words = read_layer_words(root, "layer_types", config->num_layers);
  for (size_t i = 0; i < config->layers.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    layer.rotates = false;
    const bool is_linear = words.empty() ? i % 4 != 3 : words[i] == "linear_attention";
    if (is_linear) layer.mixer = LayerConfig::Mixer::kKimiDelta;
    if (words.empty() || is_linear || words[i] == "indexed_attention") continue;
    if (words[i] == "full_attention") continue;
    root.complain(fmt::format("layer_types[{}]", i),
                  fmt::format("expected linear_attention or indexed_attention, found {}",
                              base::printable(words[i])));
  }
}

// transformers hands a choice on to the next layer only.
void check_sharing(const JsonObject& root, const ModelConfig& config) {
  for (size_t i = 1; i < config.layers.size(); ++i) {
    const LayerConfig& before = config.layers[i - 1];
    const bool chooses = before.mixer == LayerConfig::Mixer::kAttention && !before.shares_index;
    if (!config.layers[i].shares_index || chooses) continue;
    root.complain(fmt::format("indexer_types[{}]", i),
                  "expected full (the layer before it has no indexer), found shared");
  }
}

void read_groups_indexer(const JsonObject& root, ModelConfig* config) {
  read_indexer(root, false, config);
  IndexerConfig& indexer = config->indexer;
  indexer.group =
      static_cast<int>(root.integer_or("index_kpool", 16, {.min = 1, .max = kMaxGroup}));
  require_flag(root, "index_kpool_always_select_tail", true);
  if (!readable(root)) return;
  if (root.integer("index_topk") % indexer.group != 0) {
    root.complain("index_topk", fmt::format("expected a multiple of index_kpool {}, found {}",
                                            indexer.group, root.integer("index_topk")));
  }
  read_index_sharing(root, config);
  if (readable(root)) check_sharing(root, *config);
}

void name_tensors(weights::TensorNames* names) {
  names->prefix("model.", "model.language_model.").prefix("model.", "model.");
  names->rename("self_attn.indexer.gate_proj.weight", "self_attn.indexer.index_kpool_compress_gate")
      .rename("self_attn.indexer.position_bias", "self_attn.indexer.index_kpool_compress_ape");
  for (const char* part : {"fn", "base", "scale"}) {
    names->rename(fmt::format("attn_hc.{}", part), fmt::format("hc_attn_{}", part))
        .rename(fmt::format("ffn_hc.{}", part), fmt::format("hc_ffn_{}", part));
  }
}

}  // namespace

void read_glm5_next(const JsonObject& root, ModelConfig* config) {
  constexpr DeepseekDefaults kDefaults = {.dense_layers = 3,
                                          .shared_experts = 1,
                                          .experts = 288,
                                          .top_k = 8,
                                          .groups = 1,
                                          .top_k_groups = 1,
                                          .normalize = true,
                                          .scaling_factor = 2.5};
  require_silu(root);
  for (const char* key : {"mla_use_nope", "mhc"}) require_flag(root, key, true);
  // Of no effect without rotation; head_dim is that of no layer.
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "head_dim"}) {
    root.has(key);
  }
  read_latent_sizes(root, 0, config);
  root.integer_or("qk_rope_head_dim", 0, {.min = 0, .max = 0});
  config->latent_norm_eps = config->rms_norm_eps;
  read_delta(root, config);
  read_mixers(root, config);
  if (readable(root)) read_groups_indexer(root, config);
  config->hyper = read_hyper_connections(root);
  read_deepseek_layers(root, kDefaults, config);
  read_dense_layers(root, config);
  read_deepseek_routing(root, kDefaults, config);
  config->names_mtp_layers = false;
  config->activation = {.kind = kernels::Activation::Kind::kClampedSilu,
                        .limit = read_scale(root, "swiglu_limit", 10.0)};
  config->dense_activation = config->activation;
  config->left_out = {"model.visual.", "visual."};
  name_tensors(&config->tensor_names);
}

}  // namespace wideep::model
