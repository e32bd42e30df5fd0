// SPDX-License-Identifier: Apache-2.0
//
// Random weights in which attention's output projections (`wo`) are stored in NVFP4, as in
// checkpoints of ModelOpt that quantise them, and all else in bf16: to measure what that is worth.
//
// All layers have the same codes: products take the same time whatever they are.
//
// Thread safety: all calls.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "weights/quantized_tensors.h"
#include "weights/random_tensors.h"

namespace wideep::measure {

class Fp4OutputTensors : public weights::RandomTensors {
 public:
  // Errors (invalid input): the projection's columns are no whole groups of NVFP4.
  static Result<std::unique_ptr<weights::TensorSource>> make(const model::ModelConfig& config,
                                                             uint64_t seed);

  using weights::RandomTensors::tensor;
  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>& shape,
                                                  std::span<const Dtype> dtypes) const override;
  const tensor_files::TensorEntry* find(const std::string& name) const override;

 private:
  explicit Fp4OutputTensors(uint64_t seed) : RandomTensors(seed) {}

  std::vector<weights::NamedTensor> stored_;                  // of one module
  std::map<std::string, tensor_files::TensorEntry> entries_;  // of all layers
};

}  // namespace wideep::measure
