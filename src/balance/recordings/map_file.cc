// SPDX-License-Identifier: Apache-2.0
//
// One table says which name means which part of the maps, so an engine's name is a line. The depth
// of the lists decides whether there are layers. physical_to_logical_map is read first, wherever
// it stands in the file, because its layers are those that all other keys must have. A key that is
// not known is listed and not refused: dumps contain more than maps.
#include "recordings/map_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"
#include "recordings/balancer_yaml.h"

namespace wideep::recordings {
namespace {

using balance::ExpertMaps;
using nlohmann::json;
using Row = std::vector<int64_t>;
using Rows = std::vector<Row>;

constexpr const char* kPhysicalToLogical = "physical_to_logical_map";
constexpr int64_t kMaxExperts = 1 << 20;

// Engines' names of one thing.
enum class Part { kSlots, kLists, kReplicas, kChosen, kTokensOfSlot, kTokensOfExpert };
struct Key {
  const char* name;
  Part part;
};
constexpr Key kKeys[] = {
    {kPhysicalToLogical, Part::kSlots},
    {"logical_to_physical_map", Part::kLists},
    {"logical_to_all_physical_map", Part::kLists},
    {"logical_replica_count", Part::kReplicas},
    {"logical_to_all_physical_map_num_valid", Part::kReplicas},
    {"expert_count", Part::kReplicas},
    {"logical_to_rank_dispatch_physical_map", Part::kChosen},
    {"physical_count", Part::kTokensOfSlot},
    {"logical_count", Part::kTokensOfExpert},
};

Result<int64_t> read_integer(const json& value, const std::string& where) {
  constexpr double kMax = 9007199254740992.0;  // 2^53: doubles are exact up to here
  if (value.is_number()) {
    const double number = value.get<double>();
    if (std::abs(number) <= kMax && number == std::floor(number)) {
      return static_cast<int64_t>(number);
    }
  }
  return invalid_input(
      fmt::format("{}: expected an integer, found {}", where, formats::describe(value)));
}

Status check_list(const json& value, const std::string& where, const char* of) {
  if (value.is_array() && !value.empty()) return {};
  return invalid_input(
      fmt::format("{}: expected a list of {}, found {}", where, of,
                  value.is_array() ? std::string("an empty one") : formats::describe(value)));
}

Result<Row> read_row(const json& value, const std::string& where) {
  WIDEEP_TRY(check_list(value, where, "integers"));
  Row row;
  row.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    WIDEEP_TRY_ASSIGN(const int64_t number,
                      read_integer(value[i], fmt::format("{}[{}]", where, i)));
    row.push_back(number);
  }
  return row;
}

Result<Rows> read_rows(const json& value, const std::string& where) {
  WIDEEP_TRY(check_list(value, where, "lists of integers"));
  Rows rows;
  for (size_t i = 0; i < value.size(); ++i) {
    WIDEEP_TRY_ASSIGN(Row row, read_row(value[i], fmt::format("{}[{}]", where, i)));
    rows.push_back(std::move(row));
  }
  return rows;
}

int depth_of(const json& value) {
  int depth = 0;
  for (const json* at = &value; at->is_array() && !at->empty(); at = &at->front()) ++depth;
  return depth;
}

Row* row_of(Part part, ExpertMaps* maps) {
  switch (part) {
    case Part::kSlots:
      return &maps->slot_to_expert;
    case Part::kReplicas:
      return &maps->replicas;
    case Part::kChosen:
      return &maps->chosen_slot;
    case Part::kTokensOfSlot:
      return &maps->tokens_of_slot;
    case Part::kTokensOfExpert:
      return &maps->tokens_of_expert;
    case Part::kLists:
      break;
  }
  return nullptr;
}

class JsonMaps {
 public:
  explicit JsonMaps(std::string name) : name_(std::move(name)) {}

  Result<ModelMaps> read(const json& root) {
    if (!root.is_object() || !root.contains(kPhysicalToLogical)) {
      return invalid_input(fmt::format("{}: expected an object with the key {}, found {}", name_,
                                       kPhysicalToLogical, formats::describe(root)));
    }
    // Its layers are those of the file, whatever comes first in it.
    WIDEEP_TRY(read_key(kKeys[0], root[kPhysicalToLogical]));
    for (const auto& [name, value] : root.items()) {
      const auto* key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                     [&](const Key& each) { return name == each.name; });
      if (key == std::end(kKeys)) {
        model_.not_read.push_back(base::printable(name, 60));
      } else if (key->part != Part::kSlots) {
        WIDEEP_TRY(read_key(*key, value));
      }
    }
    return std::move(model_);
  }

 private:
  Status read_key(const Key& key, const json& value) {
    const std::string where = fmt::format("{}: {}", name_, key.name);
    for (const auto& [part, name] : read_) {
      if (part == key.part) {
        return invalid_input(fmt::format("{}: says the same as {}; keep one of them", where, name));
      }
    }
    read_.emplace_back(key.part, key.name);
    model_.found.emplace_back(key.name);
    const int expected = key.part == Part::kLists ? 3 : 2;
    if (depth_of(value) == expected - 1) return read_layer(key, value, where, 0, 1);
    WIDEEP_TRY(check_list(value, where, "layers"));
    for (size_t layer = 0; layer < value.size(); ++layer) {
      WIDEEP_TRY(
          read_layer(key, value[layer], fmt::format("{}[{}]", where, layer), layer, value.size()));
    }
    return {};
  }

  Status read_layer(const Key& key, const json& value, const std::string& where, size_t layer,
                    size_t num_layers) {
    if (key.part == Part::kSlots && layer == 0) {
      model_.maps.resize(num_layers);
      for (size_t i = 0; i < num_layers; ++i) model_.layers.push_back(static_cast<int>(i));
    }
    if (num_layers != model_.maps.size()) {
      return invalid_input(fmt::format("{}: {}: expected {} layers as in {}, found {}", name_,
                                       key.name, model_.maps.size(), kPhysicalToLogical,
                                       num_layers));
    }
    ExpertMaps& maps = model_.maps[layer];
    if (key.part == Part::kLists) {
      WIDEEP_TRY_ASSIGN(maps.expert_to_slots, read_rows(value, where));
      return {};
    }
    WIDEEP_TRY_ASSIGN(*row_of(key.part, &maps), read_row(value, where));
    return {};
  }

  std::string name_;
  ModelMaps model_;
  std::vector<std::pair<Part, std::string>> read_;
};

size_t experts_listed(const ExpertMaps& maps) {
  return std::max({maps.expert_to_slots.size(), maps.replicas.size(), maps.chosen_slot.size(),
                   maps.tokens_of_expert.size()});
}

Status set_sizes(const std::string& name, int num_experts, int ep_size, ModelMaps* model) {
  int64_t last = static_cast<int64_t>(num_experts) - 1;  // the last expert's id
  if (last < 0) {
    for (const ExpertMaps& maps : model->maps) {
      last = std::max(last, static_cast<int64_t>(experts_listed(maps)) - 1);
    }
  }
  if (last < 0) {
    model->guessed_experts = true;
    for (const ExpertMaps& maps : model->maps) {
      for (const int64_t expert : maps.slot_to_expert) last = std::max(last, expert);
    }
  }
  if (last < 0 || last >= kMaxExperts) {
    return invalid_input(
        fmt::format("{}: expected expert ids from 0 to {}, found {} as the largest", name,
                    kMaxExperts - 1, last));
  }
  for (ExpertMaps& maps : model->maps) {
    maps.num_experts = static_cast<int>(last + 1);
    maps.ep_size = ep_size;
  }
  return {};
}

Result<ModelMaps> parse_map_yaml(const std::string& text, const std::string& name, int num_experts,
                                 int ep_size) {
  WIDEEP_TRY_ASSIGN(const formats::YamlDocument document, formats::YamlDocument::parse(text, name));
  formats::YamlMap root = document.root();
  const BalancerSettings settings = take_balancer_settings(root);
  WIDEEP_TRY(document.status());
  ModelMaps model;
  if (!settings.initial_global_assignments || settings.initial_global_assignments->empty()) {
    return invalid_input(
        fmt::format("{}: expected initial_global_assignments, found no layer to check", name));
  }
  for (const auto& [layer, experts] : *settings.initial_global_assignments) {
    if (settings.num_slots && experts.size() != static_cast<size_t>(*settings.num_slots)) {
      return invalid_input(
          fmt::format("{}: initial_global_assignments.{}: expected {} slots (num_slots), found {}",
                      name, layer, *settings.num_slots, experts.size()));
    }
    model.layers.push_back(layer);
    model.maps.emplace_back().slot_to_expert = experts;
  }
  model.found.emplace_back("initial_global_assignments");
  WIDEEP_TRY(set_sizes(name, num_experts, ep_size, &model));
  return model;
}

}  // namespace

Result<ModelMaps> parse_map_json(std::string_view text, const std::string& name, int num_experts,
                                 int ep_size) {
  WIDEEP_TRY_ASSIGN(const json root, formats::parse_json(text, name));
  WIDEEP_TRY_ASSIGN(ModelMaps model, JsonMaps(name).read(root));
  WIDEEP_TRY(set_sizes(name, num_experts, ep_size, &model));
  return model;
}

Result<ModelMaps> read_map_file(const std::string& path, int num_experts, int ep_size) {
  const std::string extension = std::filesystem::path(path).extension().string();
  const bool is_yaml = extension == ".yaml" || extension == ".yml";
  if (!is_yaml && extension != ".json") {
    return invalid_input(fmt::format(
        "{}: expected a .json or .yaml file; write tensors as JSON: json.dump({{\"{}\": "
        "map.tolist()}}, file)",
        path, kPhysicalToLogical));
  }
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
  return is_yaml ? parse_map_yaml(text, path, num_experts, ep_size)
                 : parse_map_json(text, path, num_experts, ep_size);
}

}  // namespace wideep::recordings
