// SPDX-License-Identifier: Apache-2.0
//
// A model's files opened for loading, a directory with a checkpoint or a GGUF file: the tensors
// under the names of this house, compared with the model's description.
//
// Thread safety: immutable after open.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/config/config.h"
#include "model/gguf/gguf_tensors.h"
#include "model/model_forms.h"
#include "model/tensor_list.h"
#include "weights/checkpoint.h"
#include "weights/named_tensors.h"

namespace wideep::model {

class ModelFiles {
 public:
  // Opens the checkpoint and compares its tensors with the config, which it completes
  // (match_tensors.h). Errors: as Checkpoint::open and match_tensors, or GgufTensors::open.
  static Result<ModelFiles> open(const std::string& model_dir, ModelConfig* config);
  // The same without the comparison, for a config that open() has completed.
  static Result<ModelFiles> reopen(const std::string& model_dir, const ModelConfig& config);

  // Valid as long as this object, or what it was moved to.
  const weights::TensorSource& tensors() const { return *tensors_; }
  // The tensors with the files that they need.
  std::unique_ptr<weights::TensorSource> take_tensors() && { return std::move(tensors_); }

  // What becomes of the types of a GGUF file, or of the dtypes of a checkpoint, in these forms.
  std::vector<std::string> packing_notes(const ModelConfig& config, const ModelForms& forms) const;
  // nullptr: a checkpoint.
  const GgufTensors* gguf() const { return gguf_; }

  // The bytes of the files that loading this tensor reads. A part of a larger tensor counts for its
  // share. 0 if the files do not have it.
  uint64_t bytes_of(const ListedTensor& tensor) const;

 private:
  ModelFiles(weights::Checkpoint checkpoint, const ModelConfig& config);
  explicit ModelFiles(std::unique_ptr<GgufTensors> gguf)
      : gguf_(gguf.get()), tensors_(std::move(gguf)) {}

  // Of a checkpoint; else null.
  std::shared_ptr<const weights::Checkpoint> checkpoint_;
  // Of a GGUF file; else null.
  const GgufTensors* gguf_ = nullptr;
  std::unique_ptr<weights::TensorSource> tensors_;
};

}  // namespace wideep::model
