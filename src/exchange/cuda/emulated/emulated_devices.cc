// SPDX-License-Identifier: Apache-2.0
#include "cuda/emulated/emulated_devices.h"

#include <cstring>

#include "cuda/emulated/emulated_lane.h"

namespace wideep::cuda {

Result<std::byte*> EmulatedDevices::allocate(int /*rank*/, size_t num_bytes, bool /*symmetric*/) {
  return machine_.memory().allocate(num_bytes);
}

Status EmulatedDevices::write(int /*rank*/, void* to, const void* from, size_t num_bytes) {
  machine_.memory().host_write(to, from, num_bytes);
  return {};
}

Status EmulatedDevices::read(int /*rank*/, void* to, const void* from, size_t num_bytes) {
  if (num_bytes > 0) std::memcpy(to, from, num_bytes);
  return {};
}

Status EmulatedDevices::clear(int /*rank*/, void* at, size_t num_bytes) {
  machine_.memory().host_clear(at, num_bytes);
  return {};
}

Status EmulatedDevices::launch(int rank, const Kernel& kernel, const LaunchShape& shape) {
  const int delay = max_delay_ == 0 ? 0 : static_cast<int>(random_() % max_delay_);
  std::visit(
      [&](const auto& body) {
        machine_.launch(rank, {kernel_name(kernel), shape.num_blocks, shape.num_threads,
                               [body](EmulatedLane& lane) { run_kernel(lane, body); }, delay,
                               are_dependent_, shape.shared_bytes});
      },
      kernel);
  return {};
}

}  // namespace wideep::cuda
