// SPDX-License-Identifier: Apache-2.0
//
// A description of a run for people.
#pragma once

#include <string>

#include "run/run.h"

namespace wideep::run {

// The lines that a command prints at the start: model, ranks, memory, cache, scheduler, row
// formats, online balancing.
std::string plan_text(const Run& run);

// " and one that predicts", or "".
std::string predictors_text(const model::ModelConfig& config);

}  // namespace wideep::run
