// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "base/aligned_bytes.h"
#include "base/check.h"
#include "kernels/body/decode_tables.h"
//
#include "kernels/avx2/begin.h"
//
#include "kernels/avx2/decode.h"
//
#include "kernels/body/matmul.h"

// Of one tuning: processors of the other have AVX-512.
void matmul(const MatmulArgs& args) { matmul_for<ForZen4>(args); }

void gated_matmul(const GatedMatmulArgs& args) { gated_matmul_for<ForZen4>(args); }

#include "kernels/avx2/end.h"
#endif
