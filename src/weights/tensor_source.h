// SPDX-License-Identifier: Apache-2.0
//
// The source of a model's tensors: a checkpoint on disk, or random tensors.
//
// Thread safety: all calls.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "wideep/status.h"

namespace wideep::weights {

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The tensor of this name, checked to have this shape and dtype F32, BF16 or F16. Valid as long
  // as the source. Errors (invalid input) name source and tensor: missing, or another shape or
  // dtype.
  virtual Result<const formats::TensorEntry*> tensor(const std::string& name,
                                                     const std::vector<int64_t>& shape) const = 0;

  // ---- overridden by sources that contain codes and scales; the defaults are for floats only ----

  // As above, but with one of the given dtypes.
  virtual Result<const formats::TensorEntry*> tensor(const std::string& name,
                                                     const std::vector<int64_t>& shape,
                                                     std::span<const Dtype>) const {
    return tensor(name, shape);
  }
  // nullptr if there is no such tensor.
  virtual const formats::TensorEntry* find(const std::string&) const { return nullptr; }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  // Checks that the tensors have not changed since the source was opened. Call it after reading
  // them. Errors (failed) name the changed file.
  virtual Status check_unchanged() const { return {}; }
  // The source and the name of the tensor, for messages.
  virtual std::string where(const std::string& name) const { return name; }
};

}  // namespace wideep::weights
