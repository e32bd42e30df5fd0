// SPDX-License-Identifier: Apache-2.0
//
// Turns quantised matrices into tensors of a checkpoint, in layouts that StoredMatrix reads:
// DeepSeek's for fp8, compressed-tensors' for int8, int4 and mxfp4, ModelOpt's for nvfp4.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/coded_matrix.h"
#include "tensor_files/safetensors.h"

namespace wideep::weights {

// A tensor that owns its memory.
struct NamedTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  tensor_files::TensorToWrite to_write() const { return {name, dtype, shape, bytes}; }
};

// Whether a matrix with k columns can be written in the format's layout.
bool fits_layout(kernels::WeightFormat format, int group, int k);

// The tensors that store a matrix, named "<module>.weight" and so on. REQUIRES: fits_layout().
std::vector<NamedTensor> quantized_tensors(const std::string& module,
                                           const kernels::QuantizedMatrix& matrix);

// The "quantization_config" of config.json, as the text of a JSON object, for a checkpoint whose
// matrices are stored in the format. ignored: the exact names of modules that are not quantised.
std::string quantization_config(kernels::WeightFormat format, int group,
                                const std::vector<std::string>& ignored);

}  // namespace wideep::weights
