// SPDX-License-Identifier: Apache-2.0
//
// Rounding to integers by an addition and a subtraction, which has the same bits on every
// instruction set.
#pragma once

namespace wideep::kernels {

// To the nearest, ties to even, for |x| < 2^22: adding 1.5 · 2^23 leaves no bits for a fraction.
inline constexpr float kRoundSmallShift = 12582912.0f;
inline float round_small(float x) { return (x + kRoundSmallShift) - kRoundSmallShift; }

}  // namespace wideep::kernels
