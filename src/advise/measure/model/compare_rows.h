// SPDX-License-Identifier: Apache-2.0
//
// The cost of dispatching and combining rows in low precision: runs a model twice on the same
// texts, once with plain rows (as the experts take and return them), once with coded rows (in the
// formats asked for). One rank, in the calling process; more ranks give the same bits.
//
// Thread safety: one run at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/row_format.h"
#include "measure/model/score.h"
#include "measure/model/scored_model.h"
#include "wideep/status.h"

namespace wideep::measure {

struct RowsOptions {
  std::string model_dir;
  kernels::RowFormat dispatch = kernels::RowFormat::kBf16;
  kernels::RowFormat combine = kernels::RowFormat::kBf16;
  int window = 512;  // tokens; longer texts are cut into pieces that are scored independently
};

struct RowsComparison {
  size_t plain_bytes = 0;            // of a plain row
  size_t dispatch_bytes = 0;         // of a dispatched row in its format
  size_t combine_bytes = 0;          // of a returned row in its format
  std::map<int, LayerNoise> layers;  // of the MoE layers
  TextScores plain, coded;
  double mean_kl = 0.0;  // mean over tokens of Σ p · ln(p / q), in nats: p with plain rows, q coded

  int64_t bytes_plain(const LayerNoise& layer) const;  // of the layer's rows, if they were plain
  int64_t bytes_coded(const LayerNoise& layer) const;  // of the layer's rows as sent
};

// Errors (invalid input): the model cannot be read; its hidden size does not fit a format; no text
// of two tokens or more.
Result<RowsComparison> compare_rows(const RowsOptions& options,
                                    const std::vector<std::string>& texts, base::ThreadPool& pool);

}  // namespace wideep::measure
