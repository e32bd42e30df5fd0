// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint of floats made into one of codes, in the layout in which others write and read the
// format (stored_matrix.h): the matrices of attention and of MLPs are quantised, embeddings, the
// head, routers, norms and biases stay as they are.
//
// Files besides the weights (tokenizer, generation_config.json, …) are copied; config.json gets a
// quantization_config.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/weight_format.h"
#include "wideep/status.h"

namespace wideep::weights {

struct QuantizeOptions {
  std::string model_dir;
  std::string output_dir;  // made when absent; must be empty
  kernels::WeightFormat format = kernels::WeightFormat::kInt8;
  uint64_t shard_bytes = uint64_t{2} << 30;  // a file of tensors ends when it is as large as this
};

// What a matrix lost: the signal's power over that of the difference.
struct QuantizedTensor {
  std::string name;
  double signal_to_noise_db = 0.0;
};

struct QuantizeReport {
  uint64_t bytes_before = 0;
  uint64_t bytes_after = 0;
  int group = 0;                         // of k, sharing a scale
  std::vector<QuantizedTensor> tensors;  // in the order of their names
  std::vector<std::string> unfit;        // kept as they are: their columns do not fill groups
};

// Is "<module>.weight" one of the matrices that are quantised?
bool is_quantizable(const std::string& name);

// progress: told after each tensor how many of all are done.
// Errors (invalid input): no float checkpoint, an output directory that is not empty. Errors
// (failed): the output cannot be written.
Result<QuantizeReport> quantize_checkpoint(
    const QuantizeOptions& options, base::ThreadPool& pool,
    const std::function<void(int64_t done, int64_t all)>& progress);

}  // namespace wideep::weights
