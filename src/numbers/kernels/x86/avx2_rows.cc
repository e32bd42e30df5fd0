// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <bit>

#include "kernels/quantized_rows.h"
#include "kernels/round_small.h"
#include "kernels/x86/avx2_begin.h"
//
#include "kernels/x86/quantized_rows_body.h"
#include "kernels/x86/rows_body.h"
//
#include "kernels/x86/avx2_end.h"
#endif
