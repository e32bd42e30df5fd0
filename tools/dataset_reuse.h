// SPDX-License-Identifier: Apache-2.0
//
// What room for kept prompts is worth on a dataset, for `advise` and `doctor`.
#pragma once

#include <string>
#include <vector>

#include "advise/prompt_reuse.h"
#include "base/dtype.h"
#include "model/config/config.h"
#include "wideep/status.h"

namespace wideep::tools {

// The rows of the dataset's prompts, in order, with pages of all layers and heads. model: where a
// tokenizer is, for prompts that are texts. Errors (invalid input): as measure::read_dataset;
// prompts are texts, and there is no tokenizer; the model caches nothing.
Result<std::vector<advise::ReuseRow>> dataset_reuse(const std::string& dataset,
                                                    const std::string& model,
                                                    const model::ModelConfig& config,
                                                    double seconds_per_token);

}  // namespace wideep::tools
