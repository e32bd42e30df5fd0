// SPDX-License-Identifier: Apache-2.0
//
// What a description of hardware can tell: nothing is predicted beyond what its constants were
// fitted to (CalibratedRange).
//
// Thread safety: pure functions.
#pragma once

#include <map>
#include <string>

#include "advise/workload.h"
#include "cost/hardware.h"
#include "cost/layout.h"
#include "model/config/config.h"
#include "wideep/status.h"

namespace wideep::advise {

// Errors (invalid input): the model's rows are narrower or wider than those of the range.
Status check_range(const cost::Hardware& hardware, const model::ModelConfig& config);

// Why nothing can be told of a layout: "bf16", "more than 8 ranks"; empty: it can.
std::string outside_range(const cost::Hardware& hardware, const cost::Layout& layout);

// What a range is of, for people: "calibrated for fp8 nvfp4, at most 256 ranks".
std::string text_of(const cost::Hardware& hardware, const cost::CalibratedRange& range);

// Bounds max_num_tokens by the tokens of the range. Returns a line that says so, or nothing.
std::string bound_tokens(const cost::Hardware& hardware, Choices* choices);

// "cannot tell of 120 layouts, 24 of bf16, 96 of more than 8 ranks: this is calibrated for ..."
std::string cannot_tell(const cost::Hardware& hardware, const std::map<std::string, int>& outside);

}  // namespace wideep::advise
