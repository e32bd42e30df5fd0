// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "kernels/avx512/begin.h"
//
#include "kernels/body/convolution.h"
//
inline constexpr int kDeltaVectors = 2;
inline constexpr int kDeltaVectorsOfOne = 4;
#include "kernels/body/delta_rule.h"
//
inline constexpr int kStateVectors = 2, kStateRows = 8;
#include "kernels/body/state_space.h"
//
#include "kernels/avx512/end.h"
#endif
