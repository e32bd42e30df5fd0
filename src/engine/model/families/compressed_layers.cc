// SPDX-License-Identifier: Apache-2.0
//
// Readers of compressed attention and its kinds of layers, by DeepSeek-V4's keys.
//
// Layers attend to a window; some also to entries of small groups, which an indexer chooses, some
// to all entries of large groups. Those with entries rotate otherwise than those without.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kSparse = "compressed_sparse_attention";
constexpr std::string_view kHeavy = "heavily_compressed_attention";
constexpr int kSlidingKind = 0, kSparseKind = 1;  // then that of kHeavy
constexpr int64_t kMaxOutputs = 1 << 28;          // of all groups of heads together
constexpr formats::IntegerRange kGroups = {.min = 1, .max = 1 << 16};

void read_heads(const JsonObject& root, ModelConfig* config) {
  config->head_dim = size_or(root, "head_dim", 512, kMaxHeadDim);
  config->num_kv_heads = static_cast<int>(root.integer_or("num_key_value_heads", 1, {1, 1}));
  CompressedConfig& options = config->compressed;
  if (is_null(root, "q_lora_rank")) root.complain("q_lora_rank", "null: expected a value");
  options.query_rank = size_or(root, "q_lora_rank", 1024, kMaxHidden);
  options.window = size_or(root, "sliding_window", 128, kMaxPositions);
  options.output_groups = size_or(root, "o_groups", 8, kMaxHeads);
  if (!readable(root)) return;
  options.output_rank =
      size_or(root, "o_lora_rank", 1024, std::min(kMaxHidden, kMaxOutputs / options.output_groups));
  constexpr std::string_view kRotated = "qk_rope_head_dim", kShare = "partial_rotary_factor";
  const double rotated = root.integer_or(kRotated, 0, {.min = 2, .max = config->head_dim});
  const double share = root.number_or(kShare, rotated > 0 ? rotated / config->head_dim : 64.0 / 512,
                                      {.min = 1e-3, .max = 1.0});
  GroupedQueryConfig& attention = config->grouped_query;
  attention.sinks = true;
  attention.scale = static_cast<float>(1.0 / std::sqrt(config->head_dim));
  attention.rotary_dim = rotated_dimensions(root, share, config->head_dim);
  expect_equal(root, kRotated, kShare, attention.rotary_dim);
  if (readable(root) && config->num_heads % options.output_groups != 0) {
    root.complain("o_groups", fmt::format("expected a divisor of num_attention_heads {}, found {}",
                                          config->num_heads, options.output_groups));
  }
  IndexerConfig& indexer = config->indexer;
  indexer.head_dim = size_or(root, "index_head_dim", 128, kMaxHeadDim);
  indexer.num_heads = size_or(root, "index_n_heads", 64, kMaxHeads);
  indexer.top_k =
      std::min(size_or(root, "index_topk", 512, kMaxPositions), config->max_position_embeddings);
}

// rope_parameters has an object for windows alone, main, and one for layers with entries, compress;
// or it has the scaling of the latter only, whose cosines have no factor unless it says so.
RopeConfig read_v4_rope(const JsonObject& root, bool compresses, ModelConfig* config) {
  const double theta = compresses ? root.number_or("compress_rope_theta", 1.6e5, {2, 1e12})
                                  : root.number_or("rope_theta", 1e4, {2, 1e12});
  RopeConfig rope;
  rope.theta = theta;
  const char* key = root.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (root.has(key)) {
    const JsonObject object = root.object(key);
    const bool nested = object.has("main") || object.has("compress");
    if (nested) {
      const JsonObject own = object.object(compresses ? "compress" : "main");
      rope = read_rope_object(root, own, *config, theta);
      const double share = static_cast<double>(config->grouped_query.rotary_dim) / config->head_dim;
      const double found = own.number_or("partial_rotary_factor", 1.0, {.min = 1e-3, .max = 1.0});
      if (std::abs(found - share) * config->head_dim >= 1) {
        own.complain("partial_rotary_factor",
                     fmt::format("expected {}, as of the other layers, found {}", share, found));
      }
    } else if (compresses) {
      rope = read_rope_object(root, object, *config, theta);
      rope.theta = theta;
      if (!object.has("attention_factor")) rope.attention_factor = 1.0;
    }
  }
  rope.interleaved = true;
  return rope;
}

// A word for each layer: of layer_types, or of compress_ratios, as published.
std::vector<std::string> read_words(const JsonObject& root, const ModelConfig& config) {
  std::vector<std::string> words = read_layer_words(root, "layer_types", config.num_layers);
  if (!words.empty()) return words;
  const auto num_layers = static_cast<size_t>(config.num_layers);
  std::vector<double> ratios = read_layer_numbers(root, "compress_ratios", num_layers);
  for (size_t i = 0; !root.has("compress_ratios") && i < num_layers; ++i) {
    ratios.push_back(i < 2 || i % 2 == 0 ? 128 : 4);
  }
  for (size_t i = 0; i < ratios.size(); ++i) {
    words.emplace_back(ratios[i] == 0 ? kSliding : ratios[i] == 4 ? kSparse : kHeavy);
    if (words.back() != kHeavy || ratios[i] == 128) continue;
    root.complain(fmt::format("compress_ratios[{}]", i),
                  fmt::format("expected 0, 4 or 128, found {:g}", ratios[i]));
  }
  return words;
}

// The kind of each layer.
std::vector<int> read_kinds(const JsonObject& root, const ModelConfig& config) {
  constexpr std::string_view kWords[] = {kSliding, kSparse, kHeavy};  // by kind
  std::vector<int> kinds;
  for (const std::string& word : read_words(root, config)) {
    const auto* found = std::ranges::find(kWords, word);
    kinds.push_back(static_cast<int>(found - std::begin(kWords)) % 3);
    if (found != std::end(kWords)) continue;
    root.complain(
        fmt::format("layer_types[{}]", kinds.size() - 1),
        fmt::format("expected {}, found {}", fmt::join(kWords, ", "), base::printable(word)));
  }
  kinds.resize(static_cast<size_t>(config.num_layers));
  return kinds;
}

}  // namespace

void read_compressed_attention(const JsonObject& root, ModelConfig* config) {
  read_heads(root, config);
  if (!readable(root)) return;
  const std::vector<int> kinds = read_kinds(root, *config);
  const auto rate = [&](std::string_view word, std::string_view old_key, int by_default) {
    if (root.has("compress_rates")) {
      by_default =
          static_cast<int>(root.object("compress_rates").integer_or(word, by_default, kGroups));
    }
    return static_cast<int>(root.integer_or(old_key, by_default, kGroups));
  };
  config->rope = read_v4_rope(root, false, config);
  AttentionKind kind = config->attention_kind(kSlidingKind);
  kind.rope = read_v4_rope(root, true, config);
  kind.group_size = rate(kSparse, "compress_rate_csa", 4);
  kind.chooses_entries = true;
  config->other_kinds.push_back(kind);
  kind.group_size = rate(kHeavy, "compress_rate_hca", 128);
  kind.chooses_entries = false;
  config->other_kinds.push_back(kind);
  bool chooses = false;
  for (size_t i = 0; i < config->layers.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    layer.attention_kind = kinds[i];
    if (kinds[i] == kSlidingKind) layer.window = config->compressed.window;
    chooses = chooses || kinds[i] == kSparseKind;
  }
  if (!chooses) {
    config->indexer = {};
  } else if (const int rotated = config->grouped_query.rotary_dim;
             config->indexer.head_dim < rotated) {
    root.complain("index_head_dim", fmt::format("expected at least the {} rotated dimensions of a "
                                                "head, found {}",
                                                rotated, config->indexer.head_dim));
  }
}

}  // namespace wideep::model
