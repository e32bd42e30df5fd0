// SPDX-License-Identifier: Apache-2.0
//
// In two steps that others use alone: take_balancer_settings() reads what is written, from a file
// or from a larger configuration, and resolve_placement() compares it with a model. A key that
// would have no effect is an error, since it says that something was meant that will not happen.
// Counts are checked before layers: one wrong num_slots would otherwise be an error of every
// layer.
#include "recordings/balancer_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"

namespace wideep::recordings {
namespace {

using balance::kUnusedSlot;
using balance::ModelPlacement;
using balance::Placement;
using balance::ShareUpdate;
using balance::UpdatePolicyKind;

constexpr const char* kAssignments = "initial_global_assignments";
constexpr const char* kShareUpdate = "share_update";
constexpr const char* kExactLoad = "exact_load";
constexpr const char* kUpdatePolicy = "update_policy";
constexpr const char* kSpareSlots = "spare_slots";
constexpr const char* kUnpaidMoves = "unpaid_moves";
constexpr int64_t kMaxLayerUpdates = 1 << 20;

// from_chars accepts no blanks or '+', and the whole key must be digits: "3x" is not layer 3.
std::optional<int> parse_layer(const std::string& key) {
  int layer = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), layer);
  const bool whole = error == std::errc() && end == key.data() + key.size();
  return whole && layer >= 0 ? std::optional<int>(layer) : std::nullopt;
}

std::map<int, std::vector<int64_t>> take_assignments(formats::YamlMap map) {
  std::map<int, std::vector<int64_t>> assignments;
  for (const std::string& key : map.keys()) {
    const std::optional<int> layer = parse_layer(key);
    if (!layer) {
      map.complain(key, "expected a layer index (an integer ≥ 0)");
    } else if (!assignments.emplace(*layer, map.integers(key)).second) {
      map.complain(key, fmt::format("layer {} occurs twice", *layer));
    }
  }
  return assignments;
}

// Reads a key whose value is one of two words.
template <typename Choice>
std::optional<Choice> take_choice(formats::YamlMap& map, const char* key,
                                  std::pair<const char*, Choice> usual,
                                  std::pair<const char*, Choice> other) {
  if (!map.has(key)) return {};
  const std::string word = map.string_or(key, "");
  if (word == other.first) return other.second;
  if (word != usual.first) {
    map.complain(key, fmt::format("expected {} or {}, found '{}'", usual.first, other.first,
                                  base::printable(word, 60)));
  }
  return usual.second;
}

// Keys of online balancing are an error without it: no setting is ignored silently.
Status check_online_keys(const BalancerSettings& settings, const std::string& where) {
  if (settings.layer_updates_per_iter > 0) return {};
  const char* key = settings.update_policy       ? kUpdatePolicy
                    : settings.spare_slots       ? kSpareSlots
                    : settings.rests_when_unpaid ? kUnpaidMoves
                                                 : nullptr;
  if (key == nullptr) return {};
  return invalid_input(
      fmt::format("{}: {}: has no effect with layer_updates_per_iter 0; raise that or remove {}",
                  where, key, key));
}

// What it needs: the host pool, and the counts of the iteration.
Status check_exact_load(const BalancerSettings& settings, const std::string& where) {
  if (!settings.exact_load.value_or(false)) return {};
  if (settings.layer_updates_per_iter == 0) {
    return invalid_input(
        fmt::format("{}: {}: node reads experts from the host pool, which online balancing has; "
                    "set layer_updates_per_iter to 1 or more, or remove {}",
                    where, kExactLoad, kExactLoad));
  }
  if (settings.share_update.value_or(ShareUpdate::kIteration) == ShareUpdate::kIteration) return {};
  return invalid_input(fmt::format(
      "{}: {}: node needs the counts of the iteration; set {} to iteration, or remove {}", where,
      kExactLoad, kShareUpdate, kExactLoad));
}

std::string layer_list(const std::vector<int>& layers) {
  if (layers.empty()) return "none";
  const bool contiguous = layers.back() - layers.front() + 1 == static_cast<int>(layers.size());
  if (contiguous && layers.size() > 2) {
    return fmt::format("{} to {}", layers.front(), layers.back());
  }
  return fmt::format("{}", fmt::join(layers, ", "));
}

// The layers of the file are exactly the MoE layers of the model.
Status check_layers(const std::map<int, std::vector<int64_t>>& assignments, const MoeShape& shape,
                    const std::string& where) {
  for (int layer : shape.moe_layers) {
    if (!assignments.contains(layer)) {
      return invalid_input(
          fmt::format("{}: {}: layer {} is missing, expected the MoE layers {}; plan again with "
                      "statistics of this model",
                      where, kAssignments, layer, layer_list(shape.moe_layers)));
    }
  }
  for (const auto& [layer, experts] : assignments) {
    if (!std::binary_search(shape.moe_layers.begin(), shape.moe_layers.end(), layer)) {
      return invalid_input(
          fmt::format("{}: {}.{}: not a MoE layer of the model, expected only layers {}; remove it",
                      where, kAssignments, layer, layer_list(shape.moe_layers)));
    }
  }
  return {};
}

Result<Placement> layer_placement(const std::vector<int64_t>& experts, int num_slots,
                                  const MoeShape& shape) {
  if (experts.size() != static_cast<size_t>(num_slots)) {
    return invalid_input(
        fmt::format("expected one expert for each of the {} slots (num_slots), found {}", num_slots,
                    experts.size()));
  }
  Placement placement{shape.num_experts, shape.ep_size, {}};
  placement.slot_to_expert.reserve(experts.size());
  for (int64_t expert : experts) {
    if (expert == kUnusedSlot && !shape.unused_slots) {
      return invalid_input(fmt::format(
          "slot {}: expected an expert id, found {} (an unused slot, as of a dead rank), "
          "which only wideep balance accepts; plan for the live ranks alone",
          placement.num_slots(), expert));
    }
    if (expert != kUnusedSlot && (expert < 0 || expert >= shape.num_experts)) {
      return invalid_input(fmt::format("slot {}: expected an expert id from 0 to {}, found {}",
                                       placement.num_slots(), shape.num_experts - 1, expert));
    }
    placement.slot_to_expert.push_back(static_cast<int32_t>(expert));
  }
  WIDEEP_TRY(balance::check_placement(placement));
  return placement;
}

Status fill_layers(const BalancerSettings& settings, const MoeShape& shape,
                   const std::string& where, ModelPlacement* model) {
  if (settings.initial_global_assignments) {
    WIDEEP_TRY(check_layers(*settings.initial_global_assignments, shape, where));
    for (const auto& [layer, experts] : *settings.initial_global_assignments) {
      Result<Placement> placement = layer_placement(experts, model->num_slots, shape);
      if (!placement.ok()) {
        return placement.status().at(fmt::format("{}: {}.{}", where, kAssignments, layer));
      }
      model->layers[layer] = *std::move(placement);
    }
    return {};
  }
  for (int layer : shape.moe_layers) {
    WIDEEP_TRY_ASSIGN(
        model->layers[layer],
        balance::default_placement(shape.num_experts, shape.ep_size, model->num_slots));
  }
  return {};
}

bool has_unused_slots(const ModelPlacement& model) {
  return std::any_of(model.layers.begin(), model.layers.end(), [](const auto& layer) {
    const std::vector<int32_t>& experts = layer.second.slot_to_expert;
    return std::find(experts.begin(), experts.end(), kUnusedSlot) != experts.end();
  });
}

constexpr const char* kUnusedComment =
    "# -1: an unused slot, of a dead rank or one with less memory. For wideep balance only: "
    "engines\n"
    "# refuse this file.\n";

}  // namespace

BalancerSettings take_balancer_settings(formats::YamlMap& map) {
  BalancerSettings settings;
  if (map.has("num_slots")) {
    settings.num_slots = map.integer("num_slots", {.min = 0, .max = balance::kMaxSlots});
  }
  if (map.has(kAssignments)) {
    settings.initial_global_assignments = take_assignments(map.map(kAssignments));
  }
  settings.layer_updates_per_iter = static_cast<int>(
      map.integer_or("layer_updates_per_iter", 0, {.min = 0, .max = kMaxLayerUpdates}));
  settings.share_update = take_choice<ShareUpdate>(
      map, kShareUpdate, {"iteration", ShareUpdate::kIteration}, {"window", ShareUpdate::kWindow});
  settings.exact_load = take_choice<bool>(map, kExactLoad, {"off", false}, {"node", true});
  settings.update_policy = take_choice<UpdatePolicyKind>(
      map, kUpdatePolicy, {"wideep", UpdatePolicyKind::kWideep}, {"trt", UpdatePolicyKind::kTrt});
  if (map.has(kSpareSlots)) {
    settings.spare_slots = map.integer(kSpareSlots, {.min = 1, .max = balance::kMaxSlots});
  }
  settings.rests_when_unpaid =
      take_choice<bool>(map, kUnpaidMoves, {"rest", true}, {"go_on", false});
  map.refuse_unknown_keys();
  return settings;
}

Result<ModelPlacement> resolve_placement(const BalancerSettings& settings, const MoeShape& shape,
                                         const std::string& where) {
  if (!settings.num_slots) {
    return invalid_input(fmt::format(
        "{}: num_slots: missing, expected the number of slots over all ranks (at least {} experts, "
        "a multiple of {} ranks)",
        where, shape.num_experts, shape.ep_size));
  }
  if (*settings.num_slots == 0) {
    return invalid_input(fmt::format(
        "{}: num_slots: 0 stands for no load balancer only within moe_config.load_balancer: every "
        "expert needs a slot; set num_slots to the number of experts, or do not give a load "
        "balancer",
        where));
  }
  ModelPlacement model;
  model.num_slots = static_cast<int>(*settings.num_slots);
  model.layer_updates_per_iter = settings.layer_updates_per_iter;
  // Before the layers: one wrong num_slots would otherwise be an error of every layer.
  const Status counts =
      balance::check_slot_counts(shape.num_experts, shape.ep_size, model.num_slots);
  if (!counts.ok()) return counts.at(where);
  // No setting is ignored silently.
  if (settings.share_update && model.num_slots == shape.num_experts) {
    return invalid_input(
        fmt::format("{}: {}: has no effect with num_slots {}, a slot for each expert: there are no "
                    "replicas; raise num_slots or remove {}",
                    where, kShareUpdate, model.num_slots, kShareUpdate));
  }
  WIDEEP_TRY(check_online_keys(settings, where));
  WIDEEP_TRY(check_exact_load(settings, where));
  model.share_update = settings.share_update.value_or(ShareUpdate::kIteration);
  model.exact_load = settings.exact_load.value_or(false);
  model.update_policy = settings.update_policy.value_or(UpdatePolicyKind::kWideep);
  model.spare_slots = static_cast<int>(settings.spare_slots.value_or(0));
  model.rests_when_unpaid = settings.rests_when_unpaid.value_or(true);
  WIDEEP_TRY(fill_layers(settings, shape, where, &model));
  return model;
}

Result<ModelPlacement> parse_balancer_yaml(const std::string& text, const std::string& name,
                                           const MoeShape& shape) {
  WIDEEP_TRY_ASSIGN(const formats::YamlDocument document, formats::YamlDocument::parse(text, name));
  formats::YamlMap root = document.root();
  const BalancerSettings settings = take_balancer_settings(root);
  WIDEEP_TRY(document.status());
  return resolve_placement(settings, shape, name);
}

Result<ModelPlacement> read_balancer_yaml(const std::string& path, const MoeShape& shape) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
  return parse_balancer_yaml(text, path, shape);
}

std::string balancer_yaml_text(const ModelPlacement& placement) {
  std::string text = has_unused_slots(placement) ? kUnusedComment : "";
  text += fmt::format("num_slots: {}\n{}:\n", placement.num_slots, kAssignments);
  for (const auto& [layer, one] : placement.layers) {
    text += fmt::format("  {}: [{}]\n", layer, fmt::join(one.slot_to_expert, ", "));
  }
  text += fmt::format("layer_updates_per_iter: {}\n", placement.layer_updates_per_iter);
  // wideep's own keys are written only if they differ from the default: TRT's strict reader refuses
  // unknown keys.
  if (placement.share_update == ShareUpdate::kWindow) {
    text += fmt::format("{}: window\n", kShareUpdate);
  }
  if (placement.exact_load) text += fmt::format("{}: node\n", kExactLoad);
  if (placement.update_policy == UpdatePolicyKind::kTrt) {
    text += fmt::format("{}: trt\n", kUpdatePolicy);
  }
  if (placement.spare_slots > 0) {
    text += fmt::format("{}: {}\n", kSpareSlots, placement.spare_slots);
  }
  if (!placement.rests_when_unpaid) text += fmt::format("{}: go_on\n", kUnpaidMoves);
  return text;
}

Status write_balancer_yaml(const std::string& path, const ModelPlacement& placement) {
  return formats::write_file(path, balancer_yaml_text(placement));
}

}  // namespace wideep::recordings
