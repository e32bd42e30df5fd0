// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "kernels/x86/avx2_begin.h"
//
#include "kernels/x86/convolution_body.h"
//
inline constexpr int kDeltaVectors = 1;  // two would need 17 of 16 registers
#include "kernels/x86/delta_rule_body.h"
//
#include "kernels/x86/avx2_end.h"
#endif
