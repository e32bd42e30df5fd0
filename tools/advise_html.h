// SPDX-License-Identifier: Apache-2.0
//
// The page of `wideep advise --html`.
#pragma once

#include <string>

#include "advise/advise.h"
#include "simulate_inputs.h"
#include "wideep/status.h"

namespace wideep::tools {

// What the page shows. References must outlive the call.
struct AdvisePage {
  std::string model;  // as the user named it
  const model::ModelConfig& config;
  const cost::Hardware& hardware;
  const advise::Advice& advice;
  const advise::Workload& workload;
  const advise::Choices& choices;
  const Loads& loads;
  std::string summary;  // for browsers that run no scripts: the table, as text
};

// The page as HTML. Errors (invalid input): no planner serves the model's experts.
Result<std::string> advise_html(const AdvisePage& page);

}  // namespace wideep::tools
