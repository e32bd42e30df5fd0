// SPDX-License-Identifier: Apache-2.0
//
// The output of `wideep bench model`, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "measure/model/bench_model.h"

namespace wideep::tools {

// The model that was measured, as the output names it.
struct BenchedModel {
  std::string name;
  bool random_weights = false;
  std::string precision;
  const measure::ModelBenchOptions& options;
};

std::string bench_text(const BenchedModel& model, const measure::ModelBenchReport& report);
nlohmann::ordered_json bench_json(const BenchedModel& model,
                                  const measure::ModelBenchReport& report);

}  // namespace wideep::tools
