// SPDX-License-Identifier: Apache-2.0
//
// wideep balance check: do an engine's maps between experts and slots agree?
//
// Each file's maps are checked for themselves, and then against those of the first file: maps of
// several ranks may all be sound and still differ. All faults are shown, a line for each kind,
// since the first one rarely tells what went wrong.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "plan_output.h"
#include "recordings/map_file.h"
#include "wideep/expert_maps.h"

namespace wideep::tools {
namespace {

using balance::ExpertMaps;
using balance::MapFault;
using nlohmann::ordered_json;
using recordings::ModelMaps;

struct CheckOptions {
  std::vector<std::string> maps;
  int num_experts = 0;
  int ep_size = 0;
  bool json = false;
};

struct LayerFault {
  std::string file;
  int layer = 0;
  MapFault fault;
};

void compare(const std::string& first_name, const ModelMaps& first, const std::string& name,
             const ModelMaps& model, std::vector<LayerFault>* faults) {
  for (size_t i = 0; i < model.maps.size(); ++i) {
    auto fault = balance::compare_maps(model.maps[i], first.maps[i], first_name);
    if (fault) faults->push_back({name, model.layers[i], *std::move(fault)});
  }
}

// The files, with the faults of each, and where one differs from the first.
Status check_files(const CheckOptions& options, std::vector<ModelMaps>* models,
                   std::vector<LayerFault>* faults) {
  for (const std::string& path : options.maps) {
    WIDEEP_TRY_ASSIGN(ModelMaps model,
                      recordings::read_map_file(path, options.num_experts, options.ep_size));
    for (size_t i = 0; i < model.maps.size(); ++i) {
      for (MapFault& fault : balance::check_maps(model.maps[i])) {
        faults->push_back({path, model.layers[i], std::move(fault)});
      }
    }
    if (!models->empty()) {
      const ModelMaps& first = models->front();
      if (model.layers != first.layers) {
        return invalid_input(fmt::format("{}: expected the {} layers of {}, found {} layers", path,
                                         first.layers.size(), options.maps[0],
                                         model.layers.size()));
      }
      compare(options.maps[0], first, path, model, faults);
    }
    models->push_back(std::move(model));
  }
  return {};
}

std::string more_of(const MapFault& fault) {
  return fault.number > 1 ? fmt::format(" (and {} more like it)", fault.number - 1) : "";
}

std::string fault_lines(const CheckOptions& options, const std::vector<ModelMaps>& models,
                        const std::vector<LayerFault>& faults) {
  std::string text;
  for (size_t i = 0; i < models.size(); ++i) {
    const ModelMaps& model = models[i];
    const ExpertMaps& maps = model.maps.front();
    text += fmt::format("{}: {} layer{}, {} slots, {} experts{}: {}\n", options.maps[i],
                        model.layers.size(), model.layers.size() == 1 ? "" : "s",
                        maps.slot_to_expert.size(), maps.num_experts,
                        model.guessed_experts ? " (largest id + 1; --num-experts tells)" : "",
                        fmt::join(model.found, ", "));
    if (!model.not_read.empty()) {
      text +=
          fmt::format("{}: not looked at: {}\n", options.maps[i], fmt::join(model.not_read, ", "));
    }
  }
  for (const LayerFault& each : faults) {
    text += fmt::format("{}: layer {}: {}{}: {}{}\n", each.file, each.layer,
                        each.fault.is_error() ? "" : "note: ", balance::name_of(each.fault.kind),
                        each.fault.text, more_of(each.fault));
  }
  return text;
}

std::string fault_json(const CheckOptions& options, const std::vector<ModelMaps>& models,
                       const std::vector<LayerFault>& faults, int64_t errors) {
  ordered_json root = {
      {"files", ordered_json::array()}, {"faults", ordered_json::array()}, {"num_faults", errors}};
  for (size_t i = 0; i < models.size(); ++i) {
    root["files"].push_back({{"map", options.maps[i]},
                             {"layers", models[i].layers},
                             {"num_slots", models[i].maps.front().slot_to_expert.size()},
                             {"num_experts", models[i].maps.front().num_experts},
                             {"num_experts_is_guessed", models[i].guessed_experts},
                             {"read", models[i].found},
                             {"not_read", models[i].not_read}});
  }
  for (const LayerFault& each : faults) {
    root["faults"].push_back({{"map", each.file},
                              {"layer", each.layer},
                              {"kind", balance::name_of(each.fault.kind)},
                              {"is_error", each.fault.is_error()},
                              {"number", each.fault.number},
                              {"text", each.fault.text}});
  }
  return json_text(root);
}

Status run(const CheckOptions& options) {
  std::vector<ModelMaps> models;
  std::vector<LayerFault> faults;
  WIDEEP_TRY(check_files(options, &models, &faults));
  int64_t errors = 0;
  for (const LayerFault& each : faults) errors += each.fault.is_error() ? each.fault.number : 0;
  std::fputs((options.json ? fault_json(options, models, faults, errors)
                           : fault_lines(options, models, faults))
                 .c_str(),
             stdout);
  if (errors > 0) {
    return invalid_input(fmt::format("{}: {} fault{}; do not serve with these maps",
                                     fmt::join(options.maps, ", "), errors,
                                     errors == 1 ? "" : "s"));
  }
  if (!options.json) std::fputs("no fault\n", stdout);
  return {};
}

}  // namespace

void add_balance_check_command(command_line::Command balance, Status* status) {
  auto options = std::make_shared<CheckOptions>();
  const command_line::Command command = balance.add_command(
      "check", "Check that an engine's maps between experts and slots agree with each other");
  command
      .add_option(
          "--map", options->maps,
          "JSON with physical_to_logical_map and what else the engine has, or TensorRT-LLM's "
          "moe_load_balancer.yaml; several: one of each rank, which must be equal")
      .path()
      .required();
  command
      .add_option("--num-experts", options->num_experts,
                  "Experts of a layer (default: as the file says)")
      .range(1, 1 << 20);
  command
      .add_option("--ep-size", options->ep_size,
                  "Ranks, to find replicas that share one (default: not looked for)")
      .range(1, 1 << 20);
  command.add_flag("--json", options->json, "Print JSON");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
