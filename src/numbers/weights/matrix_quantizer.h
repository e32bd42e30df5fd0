// SPDX-License-Identifier: Apache-2.0
//
// Quantises a whole matrix with all threads and measures the loss.
//
// Thread safety: one thread calls; the pool's threads do the work.
#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "kernels/coded_matrix.h"
#include "weights/stored_matrix.h"
#include "wideep/status.h"

namespace wideep::weights {

struct Quantized {
  kernels::QuantizedMatrix matrix;
  double signal_to_noise_db = 0.0;
};

// In parts of 128 rows: fp8 scales are shared by blocks of 128 × 128, so parts of 128 rows are
// independent in every format.
class MatrixQuantizer {
 public:
  MatrixQuantizer(const StoredMatrix& stored, kernels::WeightFormat format, int group);

  // Errors (invalid input): a value that is not finite.
  Result<Quantized> run(base::ThreadPool& pool);

 private:
  static constexpr int kRows = 128;

  // Sums of squares over rows of a matrix.
  struct Power {
    double signal = 0.0;
    double noise = 0.0;
  };

  Status quantize_part(size_t i, float scale);
  Quantized gather();

  const StoredMatrix& stored_;
  kernels::WeightFormat format_;
  int group_;
  std::vector<kernels::QuantizedMatrix> parts_;
  std::vector<Power> powers_;
  std::vector<Status> statuses_;
};

}  // namespace wideep::weights
