// SPDX-License-Identifier: Apache-2.0
//
// Whether launches are dependent (programmatic dependent launch), as the environment says:
//
//   TRTLLM_ENABLE_PDL                0 or 1, TensorRT-LLM's variable
//   WIDEEP_CUDA_DEPENDENT_LAUNCHES   0 or 1, the older name
//
// Thread safety: as getenv.
#pragma once

#include "wideep/status.h"

namespace wideep::cuda {

// True if neither is set (or empty). Errors (invalid input): another value; two that differ.
Result<bool> dependent_launches();

}  // namespace wideep::cuda
