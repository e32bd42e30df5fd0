// SPDX-License-Identifier: Apache-2.0
#ifndef WIDEEP_WITH_CUDA
#include "cuda/profiler.h"

namespace wideep::cuda {

std::string toolkit_version() { return ""; }

const base::TraceMarks& nvtx_marks(bool) {
  static constexpr base::TraceMarks kNone;
  return kNone;
}

Status start_driver() { return {}; }
Status start_profiler() { return {}; }
Status stop_profiler() { return {}; }

}  // namespace wideep::cuda

#endif  // WIDEEP_WITH_CUDA
