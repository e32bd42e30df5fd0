// SPDX-License-Identifier: Apache-2.0
#include "model/model_files.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "model/gguf/packing_notes.h"
#include "model/match_tensors.h"
#include "model/rounding_notes.h"
#include "weights/stored_matrix.h"

namespace wideep::model {
namespace {

// Keeps the files that it names.
class OwnedTensors : public weights::NamedTensors {
 public:
  OwnedTensors(std::shared_ptr<const weights::Checkpoint> files, const ModelConfig& config)
      : NamedTensors(*files, files->names(), config.tensor_names, config.routing.num_experts,
                     config.declared),
        files_(std::move(files)) {}

 private:
  std::shared_ptr<const weights::Checkpoint> files_;
};

}  // namespace

ModelFiles::ModelFiles(weights::Checkpoint checkpoint, const ModelConfig& config)
    : checkpoint_(std::make_shared<const weights::Checkpoint>(std::move(checkpoint))),
      tensors_(std::make_unique<OwnedTensors>(checkpoint_, config)) {}

Result<ModelFiles> ModelFiles::open(const std::string& model_dir, ModelConfig* config) {
  if (tensor_files::is_gguf(model_dir)) {
    WIDEEP_TRY_ASSIGN(auto tensors, GgufTensors::open(model_dir, config));
    return ModelFiles(std::move(tensors));
  }
  WIDEEP_TRY_ASSIGN(weights::Checkpoint checkpoint, weights::Checkpoint::open(model_dir));
  WIDEEP_TRY(match_tensors(checkpoint, checkpoint.names(), model_dir, config));
  return ModelFiles(std::move(checkpoint), *config);
}

Result<ModelFiles> ModelFiles::reopen(const std::string& model_dir, const ModelConfig& config) {
  if (tensor_files::is_gguf(model_dir)) {
    WIDEEP_TRY_ASSIGN(auto tensors, GgufTensors::reopen(model_dir, config));
    return ModelFiles(std::move(tensors));
  }
  WIDEEP_TRY_ASSIGN(weights::Checkpoint checkpoint, weights::Checkpoint::open(model_dir));
  return ModelFiles(std::move(checkpoint), config);
}

std::vector<std::string> ModelFiles::packing_notes(const ModelConfig& config,
                                                   const ModelForms& forms) const {
  if (gguf_ == nullptr) return rounding_notes(config, forms, *tensors_);
  return model::packing_notes(config, forms, *gguf_);
}

uint64_t ModelFiles::bytes_of(const ListedTensor& tensor) const {
  if (gguf_ != nullptr) return gguf_->bytes_of(tensor.name, tensor.num_elements());
  const tensor_files::TensorEntry* entry = tensors_->find(tensor.name);
  if (!tensor.name.ends_with(".weight")) {
    return entry == nullptr
               ? 0
               : static_cast<uint64_t>(tensor.num_elements()) * dtype_bytes(entry->dtype);
  }
  uint64_t bytes = 0;
  for (const std::string& stored : weights::stored_names(*tensors_, tensor.name)) {
    bytes += checkpoint_->tensor_bytes(stored);
  }
  const weights::StoredModule module = tensors_->module(weights::module_of(tensor.name));
  return bytes / static_cast<uint64_t>(std::max(module.num_experts, 1)) /
         static_cast<uint64_t>(module.parts);
}

}  // namespace wideep::model
