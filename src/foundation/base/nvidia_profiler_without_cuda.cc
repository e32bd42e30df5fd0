// SPDX-License-Identifier: Apache-2.0
#ifndef WIDEEP_WITH_CUDA
#include "base/nvidia_profiler.h"

namespace wideep::base {

std::string cuda_toolkit_version() { return ""; }

const TraceMarks& nvtx_marks(bool) {
  static constexpr TraceMarks kNone;
  return kNone;
}

Status start_cuda_driver() { return {}; }
Status start_nvidia_profiler() { return {}; }
Status stop_nvidia_profiler() { return {}; }

}  // namespace wideep::base

#endif  // WIDEEP_WITH_CUDA
