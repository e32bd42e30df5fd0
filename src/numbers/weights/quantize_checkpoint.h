// SPDX-License-Identifier: Apache-2.0
//
// Quantises a checkpoint of floats and writes it in the usual layout of the format
// (stored_matrix.h). The matrices that the caller lists are quantised; so are matrices that are
// called like those of attention and MLPs (has_quantizable_name()) and that the list leaves out,
// as those of layers that are not run. Embeddings, the LM head, routers, norms and biases are
// copied.
//
// Listed matrices keep the names of the files. A matrix that the files hold as a part of a larger
// tensor, as fused experts, is written on its own, under the name that the family has for such
// tensors (NamedTensors::own_name); the larger tensor is left out.
//
// Files besides the weights (tokenizer, generation_config.json, …) are copied too; config.json gets
// a quantization_config.
//
// Thread safety: one thread calls; the pool's threads do the work.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/weight_format.h"
#include "weights/tensor_names.h"
#include "wideep/status.h"

namespace wideep::weights {

// A matrix [n, k] of the model, by its canonical name "<module>.weight".
struct ListedMatrix {
  std::string name;
  int n = 0;
  int k = 0;
};

struct QuantizeOptions {
  std::string model_dir;
  std::string output_dir;  // must be empty or absent; created if absent
  kernels::WeightFormat format = kernels::WeightFormat::kInt8;
  uint64_t shard_bytes = uint64_t{2}
                         << 30;  // the maximal size of a file, unless one tensor is larger
  // As NamedTensors. All parts of a tensor must be listed together, or none.
  TensorNames names = {};
  int num_experts = 0;
  std::vector<ListedMatrix> matrices = {};
};

// The quantisation error of a matrix: Σ w² / Σ (w − dequantised w)², in dB; infinity if there is
// none.
struct QuantizedTensor {
  std::string name;
  double signal_to_noise_db = 0.0;
};

struct QuantizeReport {
  uint64_t bytes_before = 0;
  uint64_t bytes_after = 0;
  int group = 0;                         // columns that share a scale
  std::vector<QuantizedTensor> tensors;  // sorted by name
  std::vector<std::string> unfit;        // copied, because their columns do not fill whole groups
};

// Whether "<module>.weight" names a matrix that is quantised.
bool has_quantizable_name(const std::string& name);

// progress: called after each tensor with the number of tensors done.
// Errors (invalid input): not a checkpoint of floats, a listed matrix that is missing or has
// another shape, an output directory that is not empty, weights that are not finite. Errors
// (failed): the output cannot be written. Files that were written before an error are removed.
Result<QuantizeReport> quantize_checkpoint(
    const QuantizeOptions& options, base::ThreadPool& pool,
    const std::function<void(int64_t done, int64_t all)>& progress);

}  // namespace wideep::weights
