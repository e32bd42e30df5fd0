// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <bit>

#include "kernels/row_scales.h"
//
#include "kernels/avx2/begin.h"
//
#include "kernels/avx2/row_format.h"
//
#include "kernels/body/row_format.h"
#include "kernels/body/row_sum.h"
//
#include "kernels/avx2/end.h"
#endif
