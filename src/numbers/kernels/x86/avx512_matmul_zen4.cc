// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "base/aligned_bytes.h"
#include "base/check.h"
#include "kernels/x86/decode_tables.h"
//
#include "kernels/x86/avx512_begin.h"
//
#include "kernels/x86/decode_avx512.h"
//
#include "kernels/x86/matmul_body.h"

void matmul_for_zen4(const MatmulArgs& args) { matmul_for<ForZen4>(args); }

void gated_matmul_for_zen4(const GatedMatmulArgs& args) { gated_matmul_for<ForZen4>(args); }

#include "kernels/x86/avx512_end.h"
#endif
