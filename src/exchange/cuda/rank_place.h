// SPDX-License-Identifier: Apache-2.0
//
// Where one rank of a DeviceCommunicator runs: a GPU and the caller's stream, or an emulated device
// in tests.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <string>

#include "cuda/devices.h"
#include "wideep/status.h"

namespace wideep::cuda {

class RankPlace {
 public:
  virtual ~RankPlace() = default;

  // Memory, and launches onto the stream of use_stream.
  virtual Devices& devices() = 0;
  virtual Status use_stream(void* stream) = 0;
  // Waits until the device has nothing to do.
  virtual Status finish() = 0;

  virtual int number() const = 0;        // of the GPU; −1: none
  virtual std::string name() const = 0;  // for people
  virtual std::string id() const = 0;    // the same for ranks that share a device, only then
  virtual int num_multiprocessors() const = 0;
  virtual int max_threads() const = 0;  // of a block
  virtual Result<size_t> free_bytes() const = 0;

  // Errors (failed): this device cannot access the memory of that one.
  virtual Status check_access(const std::string& id, const std::string& name) const = 0;

  // This rank's segment; what a peer needs to map it, over a local socket; and a peer's segment.
  virtual Result<std::byte*> make_segment(size_t num_bytes) = 0;
  virtual Status share(int socket) const = 0;
  virtual Result<std::byte*> open(int socket, size_t num_bytes) = 0;
};

}  // namespace wideep::cuda
