// SPDX-License-Identifier: Apache-2.0
//
// Coded matrices as tensors of a checkpoint, in the layouts that StoredMatrix reads: DeepSeek's for
// fp8, compressed-tensors' for int8, int4 and mxfp4, ModelOpt's for nvfp4.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"
#include "kernels/coded_matrix.h"

namespace wideep::weights {

// A tensor with its memory.
struct NamedTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  formats::TensorToWrite to_write() const { return {name, dtype, shape, bytes}; }
};

// Can a matrix with this many columns be written in the format's layout?
bool fits_layout(kernels::WeightFormat format, int group, int k);

// The tensors of "<module>.". REQUIRES: fits_layout.
std::vector<NamedTensor> quantized_tensors(const std::string& module,
                                           const kernels::QuantizedMatrix& matrix);

// config.json's "quantization_config" for a checkpoint whose matrices are in the format, but for
// the modules named by `ignored` (exact names): a JSON object as text.
std::string quantization_config(kernels::WeightFormat format, int group,
                                const std::vector<std::string>& ignored);

}  // namespace wideep::weights
