// SPDX-License-Identifier: Apache-2.0
//
// config.json files for tests: those of the golden models, to be altered in memory.
#pragma once

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "model/config.h"

namespace wideep::model {

inline std::string golden_dir(const std::string& model) {
  return std::string(WIDEEP_SOURCE_DIR) + "/tests/golden/models/" + model;
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

inline nlohmann::json golden_json(const std::string& model) {
  return read_json(golden_dir(model) + "/config.json");
}

// A golden model's file as published checkpoints write it: rope_theta and rope_scaling only.
inline nlohmann::json classic_json(const std::string& model) {
  nlohmann::json json = golden_json(model);
  json.erase("rope_parameters");
  return json;
}

inline Result<ModelConfig> parse(const nlohmann::json& json) {
  return parse_model_config(json.dump(), "config.json");
}

// The complaint about a config, or "" when it is accepted.
inline std::string complaint(const nlohmann::json& json) { return parse(json).status().message(); }

}  // namespace wideep::model
