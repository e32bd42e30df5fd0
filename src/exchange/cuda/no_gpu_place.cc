// SPDX-License-Identifier: Apache-2.0
//
// DeviceCommunicator in a build without the CUDA toolkit; gpu_place.cc has the other one.
#include "base/try.h"
#include "cuda/dependent_launches.h"
#include "cuda/device_communicator.h"

namespace wideep::ep {

Status DeviceCommunicator::available() {
  return failed(
      "CUDA: this build of wideep has no kernels for GPUs: build it where nvcc 12.8 or newer is "
      "found (-DWIDEEP_CUDA=ON says why it is not); without them the CPU's communicator runs "
      "(wideep/communicator.h)");
}

Result<DeviceCommunicator> DeviceCommunicator::join(const DeviceCommunicatorOptions& options) {
  WIDEEP_TRY(cuda::check_options(options));
  WIDEEP_TRY(cuda::dependent_launches().status());
  return available();
}

}  // namespace wideep::ep
