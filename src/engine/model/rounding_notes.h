// SPDX-License-Identifier: Apache-2.0
//
// What of a checkpoint is not used as it is stored, where nothing has asked for another format.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/model_forms.h"
#include "weights/tensor_source.h"

namespace wideep::model {

// One line for each stored dtype whose values are rounded in these forms, with the parts of the
// model that it is of. Of experts it looks at one of each layer.
std::vector<std::string> rounding_notes(const ModelConfig& config, const ModelForms& forms,
                                        const weights::TensorSource& tensors);

}  // namespace wideep::model
