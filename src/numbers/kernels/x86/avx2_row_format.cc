// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <bit>

#include "kernels/row_scales.h"
#include "kernels/x86/avx2_begin.h"
//
#include "kernels/x86/row_format_avx2.h"
//
#include "kernels/x86/row_format_body.h"
#include "kernels/x86/row_sum_body.h"
//
#include "kernels/x86/avx2_end.h"
#endif
