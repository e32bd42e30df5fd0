// SPDX-License-Identifier: Apache-2.0
//
// MiniMax-M3 (text): in most layers attention to blocks of positions that an indexer chooses, norms
// that multiply by 1 + weight, clamped SwiGLU, one shared expert.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/kv_page.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// Published files have an object with the sizes of the indexer; transformers writes them beside it.
constexpr std::string_view kSparse = "sparse_attention_config";

int read_size(const JsonObject& root, std::string_view inner, std::string_view outer,
              int by_default) {
  const formats::IntegerRange range = {.min = 1, .max = kMaxHeadDim};
  const auto outside = static_cast<int>(root.integer_or(outer, by_default, range));
  if (!root.has(kSparse) || !root.object(kSparse).has(inner)) return outside;
  const auto found = static_cast<int>(root.object(kSparse).integer(inner, range));
  expect_equal(root, outer, fmt::format("{}.{}", kSparse, inner), found);
  return found;
}

// A list of 0 and 1 for each layer. by_default: of files without it.
std::vector<bool> read_list(const JsonObject& object, std::string_view key, bool by_default,
                            const ModelConfig& config) {
  const size_t count = config.layers.size();
  const std::vector<int64_t> list =
      object.integers_or(key, std::vector<int64_t>(count, by_default), {.min = 0, .max = 1});
  if (list.size() == count) return {list.begin(), list.end()};
  object.complain(key, fmt::format("expected 0 or 1 for each of {} layers, found {} numbers", count,
                                   list.size()));
  return std::vector<bool>(count, by_default);
}

std::vector<bool> read_sparse_layers(const JsonObject& root, const ModelConfig& config) {
  std::vector<bool> listed(config.layers.size(), false);
  if (root.has(kSparse)) {
    const JsonObject sparse = root.object(kSparse);
    listed = read_list(sparse, "sparse_attention_freq", false, config);
    require_flag(sparse, "use_sparse_attention", true);
    require_word(sparse, "sparse_score_type", "max");
    sparse.integer_or("sparse_init_block", 0, {.min = 0, .max = 0});
    // Layers whose indexer has no values: transformers computes none.
    constexpr std::string_view kWithout = "sparse_disable_index_value";
    if (sparse.has(kWithout) && read_list(sparse, kWithout, true, config) != listed) {
      sparse.complain(kWithout, "expected the numbers of sparse_attention_freq, found others");
    }
  }
  return read_layer_types(root, config, "minimax_m3_sparse", "full_attention",
                          [&](int layer) { return listed[static_cast<size_t>(layer)]; });
}

void check_blocks(const JsonObject& root, int num_heads, const AttentionKind& kind) {
  const BlockIndexerConfig& blocks = kind.options.blocks;
  const auto expect = [&](bool holds, const char* key, int found, const std::string& expected) {
    if (!holds) root.complain(key, fmt::format("expected {}, found {}", expected, found));
  };
  expect(num_heads == kind.num_kv_heads, "index_n_heads", num_heads,
         fmt::format("num_key_value_heads {} (each has a choice of its own)", kind.num_kv_heads));
  expect(blocks.head_dim >= kind.options.rotary_dim, "index_head_dim", blocks.head_dim,
         fmt::format("at least the {} rotated dimensions of a head", kind.options.rotary_dim));
  expect(blocks.block % kernels::kPageTokens == 0, "index_block_size", blocks.block,
         fmt::format("a multiple of {}, the positions of a page", kernels::kPageTokens));
  expect(blocks.nearest <= blocks.top_k, "index_local_blocks", blocks.nearest,
         fmt::format("at most index_topk_blocks {}", blocks.top_k));
}

void read_attention(const JsonObject& root, ModelConfig* config) {
  read_grouped_query(root, config, {.kv_heads = 4, .head_dim = 128});
  if (readable(root)) read_minimax_rotary(root, config);
  require_flag(root, "use_qk_norm", true);
  require_word(root, "qk_norm_type", "per_head");
  require_flag(root, "use_gemma_norm", true);
  config->norms_add_one = true;
  config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  config->rope = read_rope(root, *config, 5e6);
  const std::vector<bool> is_sparse = read_sparse_layers(root, *config);
  const int heads = read_size(root, "sparse_num_index_heads", "index_n_heads", 4);
  const BlockIndexerConfig blocks = {
      .head_dim = read_size(root, "sparse_index_dim", "index_head_dim", 128),
      .block = read_size(root, "sparse_block_size", "index_block_size", 128),
      .top_k = read_size(root, "sparse_topk_blocks", "index_topk_blocks", 16),
      .nearest = read_size(root, "sparse_local_block", "index_local_blocks", 1)};
  if (std::ranges::find(is_sparse, true) == is_sparse.end()) return;
  AttentionKind* const kind = add_attention_kind(is_sparse, config);
  kind->options.blocks = blocks;
  if (readable(root)) check_blocks(root, heads, *kind);
}

void read_feed_forward(const JsonObject& root, ModelConfig* config) {
  const std::vector<bool> is_moe = read_list(root, "moe_layer_freq", true, *config);
  for (size_t layer = 0; layer < is_moe.size(); ++layer) {
    config->layers[layer].is_moe = is_moe[layer];
  }
  read_dense_layers(root, config);
  const auto width = [&](std::string_view key, int64_t by_default) {
    return static_cast<int>(root.integer_or(key, by_default, {.min = 1, .max = kMaxIntermediate}));
  };
  config->dense_intermediate_size = width("dense_intermediate_size", 12288);
  config->shared_intermediate_size = width("shared_intermediate_size", 3072);
  config->moe_intermediate_size = width("intermediate_size", 3072);
  root.integer_or("n_shared_experts", 1, {.min = 1, .max = 1});
  read_experts(root, {.width = "intermediate_size", .num_experts = 128, .num_chosen = 4}, config);
  config->routing.method = RoutingMethod::kMinimax2;
  config->routing.selection_bias = true;
  config->routing.scaling_factor = read_scale(root, "routed_scaling_factor", 2.0);
  require_flag(root, "use_routing_bias", true);
  require_word(root, "scoring_func", "sigmoid");
  kernels::Activation& activation = config->activation;
  activation.kind = kernels::Activation::Kind::kClampedSwiglu;
  activation.alpha = read_scale(root, "swiglu_alpha", 1.702);
  activation.limit = read_scale(root, "swiglu_limit", 7.0);
  config->dense_activation = activation;
}

}  // namespace

void read_minimax_m3(const JsonObject& root, ModelConfig* config) {
  // transformers takes silu for the name of the same function.
  if (root.string_or("hidden_act", "silu") != "silu") require_word(root, "hidden_act", "swigluoai");
  read_attention(root, config);
  read_feed_forward(root, config);
  root.has("num_mtp_modules");  // in no published file
  config->left_out = {"vision_tower.", "multi_modal_projector.", "patch_merge_mlp.",
                      "mtp.",          "model.vision_tower.",    "model.multi_modal_projector."};
  config->tensor_names.prefix("", "language_model.").prefix("model.", "model.language_model.");
  name_experts_w123("block_sparse_moe", &config->tensor_names);
  config->tensor_names
      .rename("mlp.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias")
      .rename("mlp.gate", "block_sparse_moe.gate")
      .rename("mlp.shared_experts", "block_sparse_moe.shared_experts")
      .fuse_mlp("mlp.shared_experts", "mlp.shared_experts.gate_up_proj",
                "mlp.shared_experts.down_proj")
      .fuse_mlp("mlp", "mlp.gate_up_proj", "mlp.down_proj")
      .rename("self_attn.indexer.q_proj", "self_attn.index_q_proj")
      .rename("self_attn.indexer.k_proj", "self_attn.index_k_proj")
      .rename("self_attn.indexer.q_norm", "self_attn.index_q_norm")
      .rename("self_attn.indexer.k_norm", "self_attn.index_k_norm");
}

}  // namespace wideep::model
