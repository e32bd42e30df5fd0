// SPDX-License-Identifier: Apache-2.0
//
// Readers of families whose layers of full attention have other heads, or another rotation, than
// those with windows.
//
// Which layers are of a kind, and which sizes a kind has of its own, is the family's. Here is what
// their files have in common: rotary parameters by kind, and sizes of single layers.
#include <fmt/format.h>

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
  bool operator==(const Heads&) const = default;
};

// Those of a layer, whose object in per_layer_config has only what differs.
Heads heads_of_layer(const JsonObject& overrides, int layer, const ModelConfig& config) {
  constexpr std::array<std::string_view, 2> kKnown = {"head_dim", "num_key_value_heads"};
  Heads heads{config.head_dim, config.num_kv_heads};
  const std::string name = fmt::format("{}", layer);
  if (!overrides.has(name)) return heads;
  const JsonObject own = overrides.object(name);
  heads.head_dim =
      static_cast<int>(own.integer_or(kKnown[0], heads.head_dim, {.min = 1, .max = kMaxHeadDim}));
  heads.num_kv_heads =
      static_cast<int>(own.integer_or(kKnown[1], heads.num_kv_heads, {.min = 1, .max = kMaxHeads}));
  for (const std::string& key : own.keys()) {
    if (std::ranges::find(kKnown, key) != kKnown.end()) continue;
    own.complain(key, fmt::format("expected only {} and {} here; wideep computes no other "
                                  "differences of single layers",
                                  kKnown[0], kKnown[1]));
  }
  return heads;
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
    return;
  }
  const JsonObject rope = root.object("rope_parameters").object(word);
  if (rope.string_or("rope_type", rope.string_or("type", "default")) == "proportional") {
    kind->rope = read_proportional_rope(rope, kind->head_dim);
    return;
  }
  kind->rope = read_rope_object(root, rope, *config);
  const double share = rope.number_or(kShare, 1.0);
  if (share == 1.0) return;
  rope.complain(kShare, fmt::format("expected 1 beside this rope_type, found {}; only proportional "
                                    "rotates a part of a head in this family",
                                    share));
}

bool read_layer_overrides(const JsonObject& root, const std::vector<bool>& of_layers,
                          const ModelConfig& config, AttentionKind* kind) {
  if (!root.has(kOverrides)) return false;
  const JsonObject overrides = root.object(kOverrides);
  const Heads usual{config.head_dim, config.num_kv_heads};
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
        fmt::format("expected {} heads of keys and values of {}, as the other layers of "
                    "its kind have, found {} of {}",
                    expected.num_kv_heads, expected.head_dim, heads.num_kv_heads, heads.head_dim));
  }
  kind->head_dim = kind->value_dim = chosen.head_dim;
  kind->num_kv_heads = chosen.num_kv_heads;
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
