// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "base/aligned_bytes.h"
#include "base/check.h"
#include "kernels/x86/decode_tables.h"
//
#include "kernels/x86/avx512_begin.h"
//
#include "kernels/x86/decode_avx512.h"
//
#include "kernels/x86/matmul_body.h"
//
#include "kernels/x86/avx512_end.h"
#endif
