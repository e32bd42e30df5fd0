// SPDX-License-Identifier: Apache-2.0
//
// What becomes of the types of a GGUF file when a model is loaded: which keep their values, and
// which are packed in another format, at what size and what loss.
//
// Thread safety: pure function.
#pragma once

#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/gguf/gguf_tensors.h"
#include "model/model_forms.h"

namespace wideep::model {

// One line for each pair of type and format that loses something, the most bytes first; and one
// for all that lose nothing. The loss is that of up to 64 rows of the first matrix of the kind.
std::vector<std::string> packing_notes(const ModelConfig& config, const ModelForms& forms,
                                       const GgufTensors& tensors);

}  // namespace wideep::model
