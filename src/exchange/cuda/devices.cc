// SPDX-License-Identifier: Apache-2.0
#include "cuda/devices.h"

#include <array>

namespace wideep::cuda {

const char* kernel_name(const Kernel& kernel) {
  // clang-format off: a line for each kind
  constexpr auto kNames = std::to_array<const char*>({
      "prepare",
      "choose",
      "index",
      "dispatch",
      "receive",
      "expand",
      "finalize",
      "echo",
      "combine f32",
      "combine bf16",
      "combine fp8",
      "combine nvfp4",
      "small round",
      "copy",
      "offer",
      "count tokens",
      "end iteration",
      "take loads",
      "choose by counts",
      "reduce f32",
      "reduce bf16",
      "reduce fp8",
      "reduce nvfp4",
      "combine reduced f32",
      "combine reduced bf16",
      "combine reduced fp8",
      "combine reduced nvfp4",
  });
  // clang-format on
  static_assert(kNames.size() == std::variant_size_v<Kernel>);
  return kNames[kernel.index()];
}

}  // namespace wideep::cuda
