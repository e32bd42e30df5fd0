// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <array>
#include <bit>

#include "kernels/body/decode_tables.h"
#include "kernels/body/e4m3_of_products.h"
#include "kernels/row_scales.h"
//
#include "kernels/avx512/begin.h"
//
#include "kernels/avx512/decode.h"
#include "kernels/avx512/row_format.h"
//
#include "kernels/body/row_format.h"
#include "kernels/body/row_sum.h"
//
#include "kernels/avx512/end.h"
#endif
