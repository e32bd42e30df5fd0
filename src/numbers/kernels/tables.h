// SPDX-License-Identifier: Apache-2.0
//
// Declares the kernels of each instruction set. Only kernels.cc makes tables of them
// (kernel_list.inc says what each does).
#pragma once

#include "base/dtype.h"
#include "kernels/attention.h"
#include "kernels/convolution.h"
#include "kernels/delta_rule.h"
#include "kernels/indexer.h"
#include "kernels/layer_norm.h"
#include "kernels/matmul.h"
#include "kernels/quantized_rows.h"
#include "kernels/reduce.h"
#include "kernels/row_format.h"
#include "kernels/state_space.h"

namespace wideep::kernels {

#define WIDEEP_KERNEL(result, name, parameters) result name parameters;
namespace ref {
#include "kernels/kernel_list.inc"
}  // namespace ref
#if defined(__x86_64__)
#define WIDEEP_KERNEL(result, name, parameters) result name parameters;
namespace avx2 {
#include "kernels/kernel_list.inc"
}  // namespace avx2
#define WIDEEP_KERNEL(result, name, parameters) result name parameters;
namespace avx512 {
#include "kernels/kernel_list.inc"
}  // namespace avx512
#endif

}  // namespace wideep::kernels
