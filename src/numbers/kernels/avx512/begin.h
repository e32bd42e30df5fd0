// SPDX-License-Identifier: Apache-2.0
//
// Opens a region that is compiled for AVX-512 F, BW, DQ, VL, BF16, VNNI and VBMI; avx512/end.h
// closes it. The namespace keeps its functions apart from those of other instruction sets. No
// include guard: one region per file.

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "kernels/tables.h"

#if defined(__clang__)
#pragma clang attribute push(                                                                \
    __attribute__((                                                                          \
        target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,avx512vbmi,fma"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,avx512vbmi,fma")
#endif

namespace wideep::kernels::avx512 {
#include "kernels/avx512/simd.h"
//
#include "kernels/body/vectors.h"
