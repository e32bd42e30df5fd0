// SPDX-License-Identifier: Apache-2.0
//
// Writes all weights of a model into a packed file (packed/packed_file.h): the parts of each layer
// that ModelWeights has, then the records of its experts.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <optional>

#include "base/thread_pool.h"
#include "kernels/weight_format.h"
#include "model/config/config.h"
#include "packed/packed_writer.h"
#include "weights/tensor_source.h"
#include "wideep/status.h"

namespace wideep::model {

struct PackOrder {
  const ModelConfig& config;
  const weights::TensorSource& tensors;
  std::optional<kernels::WeightFormat> format;  // as of WeightLoader
  int num_slices = 1;                           // of each expert; records of others stay beside
  base::ThreadPool* threads = nullptr;          // null: the caller only
  // Called with bytes of the checkpoint that were read, as WeightLoader does.
  std::function<void(uint64_t)> progress = [](uint64_t) {};
};

// Whether all that pack_weights() writes is there.
bool are_packed(const PackOrder& order, const packed::PackedFile& file);

// What the writer has already is not read. Memory: a layer without experts, half a GiB beside it.
// Errors: as WeightLoader and PackedWriter; the checkpoint has changed since it was opened.
Status pack_weights(const PackOrder& order, packed::PackedWriter& writer);

}  // namespace wideep::model
