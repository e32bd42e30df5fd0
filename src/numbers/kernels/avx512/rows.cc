// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <bit>

#include "kernels/quantized_rows.h"
#include "kernels/round_small.h"
//
#include "kernels/avx512/begin.h"
//
#include "kernels/body/quantized_rows.h"
#include "kernels/body/rows.h"
//
#include "kernels/avx512/end.h"
#endif
