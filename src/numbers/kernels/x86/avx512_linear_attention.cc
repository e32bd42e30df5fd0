// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "kernels/x86/avx512_begin.h"
//
#include "kernels/x86/convolution_body.h"
//
inline constexpr int kDeltaVectors = 2;
#include "kernels/x86/delta_rule_body.h"
//
#include "kernels/x86/avx512_end.h"
#endif
