// SPDX-License-Identifier: Apache-2.0
//
// Devices that are emulated on this CPU (machine.h).
//
// Thread safety: see Machine.
#pragma once

#include <random>

#include "cuda/devices.h"
#include "cuda/emulated/machine.h"

namespace wideep::cuda {

class EmulatedDevices final : public Devices {
 public:
  explicit EmulatedDevices(const MachineOptions& options)
      : machine_(options), random_(options.seed * 7919 + 1) {}

  Machine& machine() { return machine_; }
  // Launches are delayed by up to so many choices of the scheduler; 0: not at all.
  void set_max_delay(int delay) { max_delay_ = delay; }

  // All launches from here on may begin before the ones before them have ended (machine.h).
  void set_dependent_launches(bool on) { are_dependent_ = on; }

  Result<std::byte*> allocate(int rank, size_t num_bytes, bool symmetric) override;
  Status write(int rank, void* to, const void* from, size_t num_bytes) override;
  Status read(int rank, void* to, const void* from, size_t num_bytes) override;
  Status clear(int rank, void* at, size_t num_bytes) override;
  Status launch(int rank, const Kernel& kernel, const LaunchShape& shape) override;
  Status finish() override { return machine_.run(); }
  void forget(const void* at, size_t num_bytes) override {
    machine_.memory().forget(at, num_bytes);
  }
  bool is_written(const void* at, size_t num_bytes) const override {
    return machine_.memory().is_written(at, num_bytes);
  }

 private:
  mutable Machine machine_;
  std::mt19937_64 random_;
  int max_delay_ = 0;
  bool are_dependent_ = false;
};

}  // namespace wideep::cuda
