// SPDX-License-Identifier: Apache-2.0
//
// Marks functions that nvcc compiles for a GPU, in headers that other compilers read, too.
#pragma once

#if defined(__CUDACC__)
#define WIDEEP_DEVICE __device__ __forceinline__
#define WIDEEP_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define WIDEEP_DEVICE inline
#define WIDEEP_HOST_DEVICE inline
#endif
