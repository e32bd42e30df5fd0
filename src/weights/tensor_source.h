// SPDX-License-Identifier: Apache-2.0
//
// Where the tensors of a model come from: a checkpoint on disk, or made up.
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

  // The tensor, whose shape must be `shape` and dtype one of F32, BF16, F16. It is valid as long as
  // the source lives. Safe to call from several threads.
  // Errors (invalid input) name source and tensor: missing, or another shape or dtype.
  virtual Result<const formats::TensorEntry*> tensor(const std::string& name,
                                                     const std::vector<int64_t>& shape) const = 0;

  // ---- of sources that hold codes and scales too; a source of floats need not have them ----

  // As above, of the dtypes given.
  virtual Result<const formats::TensorEntry*> tensor(const std::string& name,
                                                     const std::vector<int64_t>& shape,
                                                     std::span<const Dtype>) const {
    return tensor(name, shape);
  }
  // nullptr when there is no such tensor.
  virtual const formats::TensorEntry* find(const std::string&) const { return nullptr; }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  // Ok while the tensors still are what they were when the source was opened: to be asked after
  // reading them. Errors (failed) name what has changed.
  virtual Status check_unchanged() const { return {}; }
  // The source and the tensor, for messages.
  virtual std::string where(const std::string& name) const { return name; }
};

}  // namespace wideep::weights
