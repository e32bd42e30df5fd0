// SPDX-License-Identifier: Apache-2.0
//
// Writes the tensors of any source as a checkpoint in which some matrices are quantised, as
// quantize_checkpoint() does for checkpoints: for GGUF files, whose codes are decoded first.
//
// Thread safety: one thread calls; the pool's threads do the work.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "weights/quantize_checkpoint.h"
#include "weights/tensor_source.h"

namespace wideep::weights {

// A tensor of the source, and its name in the checkpoint.
struct SourceTensor {
  std::string asked;
  std::string own;
  std::vector<int64_t> shape;  // [n] or [n, k]
  bool quantizes = false;      // [n, k] only
  Dtype dtype = Dtype::kBf16;  // otherwise: kBf16 or kF32
};

struct QuantizeSourceOptions {
  std::string output_dir;  // must be empty or absent; created if absent
  kernels::WeightFormat format = kernels::WeightFormat::kInt8;
  uint64_t shard_bytes = uint64_t{2} << 30;
  uint64_t bytes_before = 0;  // for the report
  nlohmann::ordered_json config;
  std::vector<std::pair<std::string, std::string>> files;  // names and contents, beside config.json
};

// Errors: as quantize_checkpoint().
Result<QuantizeReport> quantize_source(
    const TensorSource& source, const std::vector<SourceTensor>& tensors,
    const QuantizeSourceOptions& options, base::ThreadPool& pool,
    const std::function<void(int64_t done, int64_t all)>& progress);

}  // namespace wideep::weights
