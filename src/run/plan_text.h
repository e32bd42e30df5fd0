// SPDX-License-Identifier: Apache-2.0
//
// A run in words: what it is and what it costs.
#pragma once

#include <string>

#include "run/run.h"

namespace wideep::run {

// Lines for the start, before anything large is allocated: model, ranks, memory, how rows travel,
// what is balanced.
std::string plan_text(const Run& run);

}  // namespace wideep::run
