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

void matmul_for_zen4(const MatmulArgs& args) { matmul_for<ForZen4>(args); }

void gated_matmul_for_zen4(const GatedMatmulArgs& args) { gated_matmul_for<ForZen4>(args); }

#include "kernels/avx512/end.h"
#endif
