// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "kernels/avx512/begin.h"
//
#include "kernels/body/convolution.h"
//
inline constexpr int kDeltaVectors = 2;
#include "kernels/body/delta_rule.h"
//
#include "kernels/avx512/end.h"
#endif
