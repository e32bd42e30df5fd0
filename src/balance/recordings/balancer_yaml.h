// SPDX-License-Identifier: Apache-2.0
//
// TRT's load-balancer file, moe_load_balancer.yaml:
//
//   num_slots: 288                      # over all ranks; a multiple of the number of ranks
//   initial_global_assignments:         # optional; absent: default_placement for every layer
//     3: [138, 81, 60, ...]             # layer: expert of each global slot, num_slots values
//   layer_updates_per_iter: 0           # 0: static; > 0: online
//   share_update: iteration             # wideep's own; or window. Written only if it is window
//   exact_load: node                    # wideep's own, online: or off. Written only if it is node
//   update_policy: wideep               # wideep's own, online: or trt
//   spare_slots: 10                     # wideep's own, online: spare records of a rank, for
//                                       # experts that move; absent: slots per rank × min(k, 2)
//   unpaid_moves: rest                  # wideep's own, online: or go_on. Written only if it is
//                                       # go_on
//
// Unused slots (kUnusedSlot, of dead ranks or ranks with less memory) are written as -1, under a
// comment that explains them. TRT refuses such a file (expertId=-1), and so does this reader unless
// MoeShape::unused_slots is set: an engine cannot send tokens to a rank that does not exist.
//
// Reading is strict: an unknown or repeated key, a layer missing or not a MoE layer of the model, a
// wrong length, an expert without slot, an id out of range and slots that do not divide among the
// ranks are errors of one line that names file, layer or key, expected, found and the remedy.
//
// Thread safety: pure functions of their arguments and the file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/yaml.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::recordings {

// What the file must match.
struct MoeShape {
  std::vector<int> moe_layers;  // the model's layer indices that have experts, ascending
  int num_experts = 0;
  int ep_size = 1;
  bool unused_slots = false;  // true: slots may be unused
};

// The file's content before it is checked against a model. Also the inline form of
// moe_config.load_balancer in a parallel configuration.
struct BalancerSettings {
  std::optional<int64_t> num_slots;
  // By layer; nullopt when the key is absent.
  std::optional<std::map<int, std::vector<int64_t>>> initial_global_assignments;
  int layer_updates_per_iter = 0;
  // nullopt when the key is absent
  std::optional<balance::ShareUpdate> share_update;
  std::optional<bool> exact_load;
  std::optional<balance::UpdatePolicyKind> update_policy;
  std::optional<int64_t> spare_slots;
  std::optional<bool> rests_when_unpaid;
};

// Reads the settings from an open YAML map and refuses unknown keys. Errors are collected in the
// map's document: check its status() before using the settings.
BalancerSettings take_balancer_settings(formats::YamlMap& map);

// Checks settings against a model. `where` begins every message (file name, or file and key).
Result<balance::ModelPlacement> resolve_placement(const BalancerSettings& settings,
                                                  const MoeShape& shape, const std::string& where);

// Both steps above for a file, or for text (`name` is the file's name in messages).
// layer_updates_per_iter > 0 is accepted here; a caller that cannot serve it refuses it.
Result<balance::ModelPlacement> read_balancer_yaml(const std::string& path, const MoeShape& shape);
Result<balance::ModelPlacement> parse_balancer_yaml(const std::string& text,
                                                    const std::string& name, const MoeShape& shape);

// The file for a placement: keys in the order shown above, one line a layer, layers ascending.
// Equal placements give equal bytes.
std::string balancer_yaml_text(const balance::ModelPlacement& placement);

// Writes the file completely or not at all. Errors (failed): as formats::write_file.
Status write_balancer_yaml(const std::string& path, const balance::ModelPlacement& placement);

}  // namespace wideep::recordings
