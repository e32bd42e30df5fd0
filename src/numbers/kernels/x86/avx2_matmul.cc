// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "base/aligned_bytes.h"
#include "base/check.h"
#include "kernels/x86/decode_tables.h"
//
#include "kernels/x86/avx2_begin.h"
//
#include "kernels/x86/decode_avx2.h"
//
#include "kernels/x86/matmul_body.h"

// Of one tuning: processors of the other have AVX-512.
void matmul(const MatmulArgs& args) { matmul_for<ForZen4>(args); }

void gated_matmul(const GatedMatmulArgs& args) { gated_matmul_for<ForZen4>(args); }

#include "kernels/x86/avx2_end.h"
#endif
