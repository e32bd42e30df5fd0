// SPDX-License-Identifier: Apache-2.0
//
// For NVIDIA's profilers (Nsight Systems and others): marks that show spans as NVTX ranges of the
// domain "wideep", and calls that begin and end what a profiler records.
// nvidia_profiler_with_cuda.cc is compiled where CMake finds the CUDA toolkit,
// nvidia_profiler_without_cuda.cc elsewhere. Where no profiler is attached, a mark costs the test
// of a pointer.
//
// Thread safety: any thread.
#pragma once

#include <string>

#include "base/trace.h"
#include "wideep/status.h"

namespace wideep::base {

// The toolkit's version in this build, such as "13.0"; empty in a build without it.
std::string cuda_toolkit_version();

// Ranges nest within each thread. all_spans: every span rather than iterations alone.
// REQUIRES: cuda_toolkit_version() is not empty.
const TraceMarks& nvtx_marks(bool all_spans);

// Starts CUDA's driver, which takes a moment. REQUIRES: the process will not fork afterwards.
// Without CUDA it does nothing. Errors (failed): CUDA's own, such as no driver or no GPU.
Status start_cuda_driver();
// Tells a waiting profiler to begin, and to end. REQUIRES: start_cuda_driver() was ok.
Status start_nvidia_profiler();
Status stop_nvidia_profiler();

}  // namespace wideep::base
