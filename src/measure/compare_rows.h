// SPDX-License-Identifier: Apache-2.0
//
// What it costs that rows travel in low precision: the same model on the same texts, once with rows
// as the experts take and return them, once with rows in other formats. One rank, in the calling
// process; more ranks give the same bits.
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
#include "measure/score.h"
#include "measure/scored_model.h"
#include "wideep/status.h"

namespace wideep::measure {

struct RowsOptions {
  std::string model_dir;
  kernels::RowFormat dispatch = kernels::RowFormat::kBf16;
  kernels::RowFormat combine = kernels::RowFormat::kBf16;
  int window = 512;  // tokens; a longer text is cut, each piece read without what came before
};

struct RowsComparison {
  size_t plain_bytes = 0;     // of a row as experts take and return it
  size_t dispatch_bytes = 0;  // of a row in the formats asked for
  size_t combine_bytes = 0;
  std::map<int, LayerNoise> layers;  // of the MoE layers
  TextScores plain, coded;
  double mean_kl = 0.0;  // Σ p · ln(p / q) per place: p with plain rows, q with coded ones

  int64_t bytes_plain(const LayerNoise& layer) const;  // that its rows would have taken
  int64_t bytes_coded(const LayerNoise& layer) const;  // that they took
};

// Errors (invalid input): as reading a model; a hidden size that does not fit a format; no text of
// two tokens or more.
Result<RowsComparison> compare_rows(const RowsOptions& options,
                                    const std::vector<std::string>& texts, base::ThreadPool& pool);

}  // namespace wideep::measure
