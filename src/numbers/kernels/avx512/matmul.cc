// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "base/aligned_bytes.h"
#include "base/check.h"
#include "kernels/body/decode_tables.h"
//
#include "kernels/avx512/begin.h"
//
#include "kernels/avx512/decode.h"
//
#include "kernels/body/matmul.h"

// In avx512/matmul_zen4.cc: both tunings in one file would be the longest compilation by far.
void matmul_for_zen4(const MatmulArgs& args);
void gated_matmul_for_zen4(const GatedMatmulArgs& args);

void matmul(const MatmulArgs& args) {
  args.tuning == Tuning::kZen5 ? matmul_for<ForZen5>(args) : matmul_for_zen4(args);
}

void gated_matmul(const GatedMatmulArgs& args) {
  args.tuning == Tuning::kZen5 ? gated_matmul_for<ForZen5>(args) : gated_matmul_for_zen4(args);
}

#include "kernels/avx512/end.h"
#endif
