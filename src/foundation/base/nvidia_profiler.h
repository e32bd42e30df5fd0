// SPDX-License-Identifier: Apache-2.0
//
// The interface to NVIDIA's profilers (Nsight Systems and others): NVTX ranges of the domain
// "wideep" for spans, and calls that start and stop a profiler's recording.
// nvidia_profiler_with_cuda.cc is used where CMake finds the CUDA toolkit,
// nvidia_profiler_without_cuda.cc elsewhere. Where no profiler is attached, a range costs the test
// of a pointer.
//
// Thread safety: any thread.
#pragma once

#include <string>

#include "base/trace.h"
#include "wideep/status.h"

namespace wideep::base {

// The version of the toolkit in this build, such as "13.0"; empty in a build without CUDA.
std::string cuda_toolkit_version();

// Callbacks that show spans as NVTX ranges, which nest within each thread. all_spans: all spans;
// otherwise iterations only.
// REQUIRES: cuda_toolkit_version() is not empty.
const TraceMarks& nvtx_marks(bool all_spans);

// Starts CUDA's driver, which takes a moment. REQUIRES: the process does not fork afterwards.
// Without CUDA it does nothing. Errors (failed): CUDA's own, such as no driver or no GPU.
Status start_cuda_driver();
// Starts and stops the recording of an attached profiler. REQUIRES: start_cuda_driver() returned
// ok.
Status start_nvidia_profiler();
Status stop_nvidia_profiler();

}  // namespace wideep::base
