// SPDX-License-Identifier: Apache-2.0
//
// Closes the region that avx512/begin.h opened.

}  // namespace wideep::kernels::avx512

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
