// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "kernels/avx2/begin.h"
//
#include "kernels/body/convolution.h"
//
inline constexpr int kDeltaVectors = 1;  // two would need 17 of 16 registers
inline constexpr int kDeltaVectorsOfOne = 2;
#include "kernels/body/delta_rule.h"
//
inline constexpr int kStateVectors = 1, kStateRows = 2;
#include "kernels/body/state_space.h"
//
#include "kernels/avx2/end.h"
#endif
