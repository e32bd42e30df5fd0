// SPDX-License-Identifier: Apache-2.0
//
// A rank's segment of device memory that other processes of the node map, too: allocated by CUDA's
// virtual memory management and passed on as a POSIX file descriptor. It has no name anywhere, and
// is freed with the last process that maps it, for whatever reason that ends.
//
//   auto mine = SymmetricMemory::create(num_bytes);
//   send_file_descriptor(socket, *mine->share());          // to each peer
//   auto theirs = SymmetricMemory::open(receive…, num_bytes);
//
// Thread safety: a value that one thread at a time uses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wideep/status.h"

namespace wideep::cuda {

class SymmetricMemory {
 public:
  // Errors (failed): no driver; the GPU cannot share memory; not enough of it.
  static Result<SymmetricMemory> create(size_t num_bytes);
  // Maps what a peer has shared. num_bytes: as in its create. Takes the descriptor and closes it.
  static Result<SymmetricMemory> open(int file_descriptor, size_t num_bytes);

  SymmetricMemory(SymmetricMemory&& other) noexcept;
  SymmetricMemory& operator=(SymmetricMemory&&) = delete;
  ~SymmetricMemory();

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  // A descriptor for a peer, which the caller closes.
  Result<int> share() const;

 private:
  SymmetricMemory() = default;
  Status map();

  uint64_t address_ = 0;  // of the device
  uint64_t handle_ = 0;
  size_t num_bytes_ = 0;  // in whole pages of the device
};

// Passes a descriptor over a local socket. Errors (failed): the peer is gone.
Status send_file_descriptor(int socket, int file_descriptor);
Result<int> receive_file_descriptor(int socket);

}  // namespace wideep::cuda
