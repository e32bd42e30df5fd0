// SPDX-License-Identifier: Apache-2.0
//
// Closes the region that avx2/begin.h opened.

}  // namespace wideep::kernels::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
