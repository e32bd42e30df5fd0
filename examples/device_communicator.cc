// SPDX-License-Identifier: Apache-2.0
//
// Joins a group of one rank on the current GPU; without a GPU, says what is missing. A call needs
// device memory, which the engine has: docs/cuda.md. In CMake: target_link_libraries(...
// wideep::device).
#include <wideep/device_communicator.h>

#include <cstdio>

using namespace wideep::ep;

int main() {
  const auto joined = DeviceCommunicator::join({.group = "example",
                                                .rank = 0,
                                                .num_ranks = 1,
                                                .slots_per_rank = 8,
                                                .top_k = 2,
                                                .max_tokens = 128,
                                                .hidden = 4096});
  if (!joined.ok()) {
    std::fprintf(stderr, "error: %s\n", joined.status().message().c_str());
    return joined.status().exit_code();
  }
  std::printf("joined as rank %d on GPU %d: %.1f MB, at most %lld rows a call\n", joined->rank(),
              joined->device(), static_cast<double>(joined->device_bytes()) * 1e-6,
              static_cast<long long>(joined->received().max_rows));
}
