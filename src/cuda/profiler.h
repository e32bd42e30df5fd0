// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's profilers (Nsight Systems and others): spans as NVTX ranges of the domain "wideep", and
// the start and end of what they are to look at. Everything of CUDA is behind this header; a build
// without it has another body of the same functions.
//
// No profiler attached: a mark costs a look at a pointer.
//
// Thread safety: any thread.
#pragma once

#include <string>

#include "base/trace.h"
#include "wideep/status.h"

namespace wideep::cuda {

// Of the toolkit that this build has been made with, "13.0"; empty: without it.
std::string toolkit_version();

// Each thread's ranges, one in the other. all_spans: not the iterations alone.
// REQUIRES: toolkit_version() is not empty.
const base::TraceMarks& nvtx_marks(bool all_spans);

// Starts CUDA's driver, which takes a moment, in a process that will not fork. Of a build without
// CUDA nothing. Errors (failed): CUDA's, as where there is no driver or no GPU.
Status start_driver();
// Tell a profiler that waits for it to begin and to end. REQUIRES: start_driver() was ok.
Status start_profiler();
Status stop_profiler();

}  // namespace wideep::cuda
