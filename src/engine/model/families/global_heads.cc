// SPDX-License-Identifier: Apache-2.0
//
// Readers of families whose layers of full attention have other heads, or another rotation, than
// those with windows.
//
// Which layers are of a kind, and which sizes a kind has of its own, is the family's. Here is what
// their files have in common: rotary parameters by kind, and sizes of single layers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {

using formats::JsonObject;

namespace {

constexpr std::string_view kOverrides = "per_layer_config";

struct Heads {
  int head_dim = 0;
  int num_kv_heads = 0;
  int num_heads = 0;
  bool operator==(const Heads&) const = default;
};

// Those of a layer, whose object in per_layer_config has only what differs.
Heads heads_of_layer(const JsonObject& overrides, int layer, const ModelConfig& config) {
  constexpr std::array<std::string_view, 3> kKnown = {"head_dim", "num_key_value_heads",
                                                      "num_attention_heads"};
  Heads heads{config.head_dim, config.num_kv_heads, config.num_heads};
  const std::string name = fmt::format("{}", layer);
  if (!overrides.has(name)) return heads;
  const JsonObject own = overrides.object(name);
  heads.head_dim =
      static_cast<int>(own.integer_or(kKnown[0], heads.head_dim, {.min = 1, .max = kMaxHeadDim}));
  heads.num_kv_heads =
      static_cast<int>(own.integer_or(kKnown[1], heads.num_kv_heads, {.min = 1, .max = kMaxHeads}));
  heads.num_heads =
      static_cast<int>(own.integer_or(kKnown[2], heads.num_heads, {.min = 1, .max = kMaxHeads}));
  for (const std::string& key : own.keys()) {
    if (std::ranges::find(kKnown, key) != kKnown.end()) continue;
    own.complain(key, fmt::format("expected only {} here; wideep computes no other differences of "
                                  "single layers",
                                  fmt::join(kKnown, ", ")));
  }
  return heads;
}

// Keys of models whose layers all rotate alike, which transformers does not read here.
void refuse_other_rotary_keys(const JsonObject& root, const AttentionKind& kind) {
  const auto refuse = [&](std::string_view key, double expected) {
    const double found = root.number_or(key, expected);
    if (found == expected) return;
    root.complain(key, fmt::format("expected {}, as of layers of full_attention in "
                                   "rope_parameters, found {}",
                                   expected, found));
  };
  refuse("rope_theta", kind.rope.theta);
  constexpr std::string_view kShare = "partial_rotary_factor", kScaling = "rope_scaling";
  const double share = root.number_or(kShare, 1.0);
  if (root.has(kShare) &&
      static_cast<int>(share * kind.head_dim + 1e-6) != kind.options.rotary_dim) {
    refuse(kShare, static_cast<double>(kind.options.rotary_dim) / kind.head_dim);
  }
  if (root.has(kScaling)) {
    root.complain(kScaling, "expected none: rope_parameters has an object for each kind of layers");
  }
}

}  // namespace

AttentionKind* add_attention_kind(const std::vector<bool>& of_layers, ModelConfig* config) {
  config->other_kinds.push_back(config->attention_kind(0));
  for (size_t layer = 0; layer < of_layers.size(); ++layer) {
    if (of_layers[layer]) {
      config->layers[layer].attention_kind = config->num_attention_kinds() - 1;
    }
  }
  return &config->other_kinds.back();
}

void read_kind_rope(const JsonObject& root, std::string_view word, const KindRope& by_default,
                    ModelConfig* config, AttentionKind* kind) {
  constexpr std::string_view kShare = "partial_rotary_factor";
  kind->options.rotary_dim = kind->head_dim;
  kind->rope = {};
  kind->rope.theta = by_default.theta;
  if (!root.has("rope_parameters")) {
    kind->rope.rotating_pairs = static_cast<int>(by_default.share * kind->head_dim / 2);
    if (by_default.rotated > 0) {
      kind->options.rotary_dim = rotated_dimensions(root, by_default.rotated, kind->head_dim);
    }
    return;
  }
  const JsonObject rope = root.object("rope_parameters").object(word);
  if (rope.string_or("rope_type", rope.string_or("type", "default")) == "proportional") {
    kind->rope = read_proportional_rope(rope, kind->head_dim);
    return;
  }
  kind->rope = read_rope_object(root, rope, *config);
  if (!kind->rope.truncate) {
    rope.complain("truncate",
                  "expected true, found false; transformers takes it for true here, "
                  "others may not");
  }
  if (by_default.rotated > 0) {
    const bool is_plain = kind->rope.scaling == RopeConfig::Scaling::kNone;
    const double found = rope.number_or(kShare, is_plain ? by_default.rotated_if_absent : 1.0,
                                        {.min = 1e-3, .max = 1.0});
    kind->options.rotary_dim = rotated_dimensions(rope, found, kind->head_dim);
    return;
  }
  const double share = rope.number_or(kShare, 1.0);
  if (share == 1.0) return;
  rope.complain(kShare, fmt::format("expected 1 beside this rope_type, found {}; only proportional "
                                    "rotates a part of a head in this family",
                                    share));
}

AttentionKind* read_sliding_kind(const JsonObject& root, const KindRope& full,
                                 const KindRope& sliding, ModelConfig* config) {
  std::vector<bool> slides;
  for (const LayerConfig& layer : config->layers) slides.push_back(layer.window > 0);
  const bool any = std::ranges::count(slides, true) > 0;
  const bool all = std::ranges::count(slides, false) == 0;
  AttentionKind kind = config->attention_kind(0);
  read_kind_rope(root, all ? "sliding_attention" : "full_attention", all ? sliding : full, config,
                 &kind);
  config->rope = kind.rope;
  config->grouped_query.rotary_dim = kind.options.rotary_dim;
  refuse_other_rotary_keys(root, kind);
  if (!any) return nullptr;
  AttentionKind* const other = add_attention_kind(slides, config);
  read_kind_rope(root, "sliding_attention", sliding, config, other);
  return other;
}

bool read_layer_overrides(const JsonObject& root, const std::vector<bool>& of_layers,
                          const ModelConfig& config, AttentionKind* kind) {
  if (!root.has(kOverrides)) return false;
  const JsonObject overrides = root.object(kOverrides);
  const Heads usual{config.head_dim, config.num_kv_heads, config.num_heads};
  Heads chosen = usual;
  bool is_first = true;
  for (int layer = 0; layer < config.num_layers && readable(root); ++layer) {
    const bool is_of_kind = of_layers[static_cast<size_t>(layer)];
    const Heads heads = heads_of_layer(overrides, layer, config);
    if (is_of_kind && std::exchange(is_first, false)) chosen = heads;
    const Heads& expected = is_of_kind ? chosen : usual;
    if (heads == expected || !readable(root)) continue;
    root.complain(
        fmt::format("{}.{}", kOverrides, layer),
        fmt::format("expected {} heads of keys and values of {} for {} of queries, as the other "
                    "layers of its kind have, found {} of {} for {}",
                    expected.num_kv_heads, expected.head_dim, expected.num_heads,
                    heads.num_kv_heads, heads.head_dim, heads.num_heads));
  }
  kind->head_dim = kind->value_dim = chosen.head_dim;
  kind->num_kv_heads = chosen.num_kv_heads;
  kind->num_heads = chosen.num_heads;
  return true;
}

void check_kind(const JsonObject& root, const AttentionKind& kind) {
  if (!readable(root)) return;
  check_even(root, "head_dim", kind.head_dim);
  if (kind.num_heads % kind.num_kv_heads == 0) return;
  root.complain("num_attention_heads",
                fmt::format("expected a multiple of the {} heads of keys and values of a kind of "
                            "layers, found {}",
                            kind.num_kv_heads, kind.num_heads));
}

}  // namespace wideep::model
