// SPDX-License-Identifier: Apache-2.0
//
// Where the tensors of a model come from: a checkpoint on disk, or made up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "wideep/status.h"

namespace wideep::weights {

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The tensor, whose shape must be `shape` and dtype one of F32, BF16, F16. It is valid as long as
  // the source lives. Safe to call from several threads.
  // Errors (invalid input) name source and tensor: missing, or another shape or dtype.
  virtual Result<const formats::TensorEntry*> tensor(const std::string& name,
                                                     const std::vector<int64_t>& shape) const = 0;
};

}  // namespace wideep::weights
