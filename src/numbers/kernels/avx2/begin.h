// SPDX-License-Identifier: Apache-2.0
//
// Opens a region that is compiled for AVX2, FMA and F16C; avx2/end.h closes it. The namespace keeps
// its functions apart from those of other instruction sets. No include guard: one region per file.

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "kernels/tables.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace wideep::kernels::avx2 {
#include "kernels/avx2/simd.h"
//
#include "kernels/body/vectors.h"
