// SPDX-License-Identifier: Apache-2.0
//
// Where each instruction set's table is defined; used by kernels.cc alone.
#pragma once

#include "kernels/kernels.h"

namespace wideep::kernels {

const Kernels* ref_kernels();
const Kernels* avx2_kernels();    // AVX2 + FMA + F16C
const Kernels* avx512_kernels();  // AVX-512 F, BW, VL, DQ and BF16

}  // namespace wideep::kernels
