// SPDX-License-Identifier: Apache-2.0
//
// Memory of a GPU that GPUs of other processes map, too (shared_mapping.h: in which ways), on the
// current GPU of the calling thread. It has no name anywhere, and is freed with the last process
// that maps it, for whatever reason that ends.
//
//   auto mine = SymmetricMemory::create(num_bytes);
//   send_memory(socket, *mine);                              // to each peer
//   auto theirs = receive_memory(socket, num_bytes);
//
// Between nodes, where there is no such socket, handle() has the 64 bytes of a fabric handle.
//
// Thread safety: a value that one thread at a time uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cuda/shared_mapping.h"
#include "wideep/status.h"

namespace wideep::cuda {

class SymmetricMemory {
 public:
  // Errors (failed): no driver; the GPU cannot share memory; not enough of it.
  static Result<SymmetricMemory> create(size_t num_bytes, SharingWays allowed = kAnyWay);
  // Maps what a peer has shared. num_bytes: as in its create; see SharedMapping::open. Closes the
  // handle's descriptor.
  static Result<SymmetricMemory> open(const MemoryHandle& handle, size_t num_bytes);
  // The same of a descriptor, which it takes and closes.
  static Result<SymmetricMemory> open(int file_descriptor, size_t num_bytes);

  std::byte* data() const { return reinterpret_cast<std::byte*>(mapping_.address()); }
  SharingWays ways() const { return mapping_.ways(); }
  // For a peer; the caller closes the descriptor.
  Result<MemoryHandle> handle(SharingWays wanted = kAnyWay) const {
    return mapping_.handle(wanted);
  }
  // A descriptor for a peer, which the caller closes.
  Result<int> share() const;

 private:
  SymmetricMemory(std::unique_ptr<MemoryDriver> driver, SharedMapping mapping)
      : driver_(std::move(driver)), mapping_(std::move(mapping)) {}

  std::unique_ptr<MemoryDriver> driver_;
  SharedMapping mapping_;
};

// Passes memory over a local socket in all its ways, or in those wanted. Errors (failed): the peer
// is gone; and as in SharedMapping.
Status send_memory(int socket, const SymmetricMemory& memory, SharingWays wanted = kAnyWay);
Result<SymmetricMemory> receive_memory(int socket, size_t num_bytes);

// Passes a descriptor over a local socket. Errors (failed): the peer is gone.
Status send_file_descriptor(int socket, int file_descriptor);
Result<int> receive_file_descriptor(int socket);

}  // namespace wideep::cuda
