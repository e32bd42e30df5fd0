// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <array>
#include <bit>

#include "kernels/row_scales.h"
#include "kernels/x86/decode_tables.h"
#include "kernels/x86/e4m3_of_products.h"
//
#include "kernels/x86/avx512_begin.h"
//
#include "kernels/x86/decode_avx512.h"
#include "kernels/x86/row_format_avx512.h"
//
#include "kernels/x86/row_format_body.h"
#include "kernels/x86/row_sum_body.h"
//
#include "kernels/x86/avx512_end.h"
#endif
