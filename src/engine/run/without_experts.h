// SPDX-License-Identifier: Apache-2.0
//
// Settings of a run that concern experts, for a model that has none.
#pragma once

#include <string>
#include <vector>

#include "model/config/config.h"
#include "run/run_options.h"
#include "wideep/status.h"

namespace wideep::run {

// A line for each setting that has no effect, because the model is dense; none for a model with
// experts. Errors (invalid input): a setting that asks for something that a dense model does not
// have, such as a log of routed experts.
// Thread safety: a pure function.
Result<std::vector<std::string>> settings_without_experts(const RunOptions& options,
                                                          const model::ModelConfig& config);

}  // namespace wideep::run
