// SPDX-License-Identifier: Apache-2.0
#include "cuda/devices.h"

#include <array>

namespace wideep::cuda {

const char* kernel_name(const Kernel& kernel) {
  constexpr std::array<const char*, std::variant_size_v<Kernel>> kNames = {
      "prepare",  "choose", "index",       "dispatch",     "receive",     "expand",
      "finalize", "echo",   "combine f32", "combine bf16", "combine fp8", "combine nvfp4"};
  return kNames[kernel.index()];
}

}  // namespace wideep::cuda
