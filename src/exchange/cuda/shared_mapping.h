// SPDX-License-Identifier: Apache-2.0
//
// Device memory that other processes map, too: which way it is shared, and what is done when a way
// fails. What it asks of CUDA is behind MemoryDriver, so that tests need no GPU; symmetric_memory.h
// has it with the real one.
//
// The ways, best first:
//
//   fabric handles      64 bytes, which any process with access to the fabric can open, also on
//                       another node of an NVLink domain (CUDA's IMEX channels)
//   file descriptors    POSIX, between processes of one node
//   peer access         memory of cudaMalloc, for drivers without virtual memory management: by its
//                       address within a process, between processes by CUDA's IPC handles
//
// Memory is created for the first two at once where the driver takes both, else for what it takes;
// a handle has all that there is, and the one who opens it takes the first way that works.
//
// Thread safety: a value that one thread at a time uses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "wideep/status.h"

namespace wideep::cuda {

// Sets of ways.
using SharingWays = uint32_t;
inline constexpr SharingWays kFabricHandle = 1;
inline constexpr SharingWays kFileDescriptor = 2;
inline constexpr SharingWays kPeerAccess = 4;
inline constexpr SharingWays kAnyWay = kFabricHandle | kFileDescriptor | kPeerAccess;

// "fabric handles, file descriptors"
std::string describe(SharingWays ways);

// What one process gives another one so that it can map the memory. Plain bytes but for the
// descriptor, which belongs to the process that has it (send_memory, symmetric_memory.h).
struct MemoryHandle {
  SharingWays ways = 0;
  uint64_t num_bytes = 0;    // that were asked for
  uint64_t whole_bytes = 0;  // that there are, in whole pages; 0: as the driver has them here
  std::array<std::byte, 64> fabric{};
  std::array<std::byte, 64> peer{};  // CUDA's IPC handle
  int64_t process = 0;               // of the owner, where `address` is
  uint64_t address = 0;
  int32_t device = 0;  // of the owner
  int32_t file_descriptor = -1;
};

// What is asked of CUDA, for one GPU. Errors (failed): what it says.
class MemoryDriver {
 public:
  struct Abilities {
    std::string name;         // of the GPU, for people
    SharingWays ways = 0;     // by the driver's attributes
    uint64_t free_bytes = 0;  // of the GPU
  };

  virtual ~MemoryDriver() = default;
  virtual Result<Abilities> abilities() = 0;

  // Virtual memory management. ways: fabric handles, file descriptors or both.
  virtual Result<uint64_t> whole_pages(SharingWays ways, uint64_t num_bytes) = 0;
  virtual Result<uint64_t> create(SharingWays ways, uint64_t num_bytes) = 0;
  virtual Status export_handle(uint64_t memory, SharingWays way, MemoryHandle* to) = 0;
  virtual Result<uint64_t> import_handle(SharingWays way, const MemoryHandle& from) = 0;
  virtual Result<uint64_t> reserve(uint64_t num_bytes) = 0;
  virtual Status map(uint64_t address, uint64_t num_bytes, uint64_t memory) = 0;
  virtual Status allow_access(uint64_t address, uint64_t num_bytes) = 0;
  virtual Status unmap(uint64_t address, uint64_t num_bytes) = 0;
  virtual Status free_address(uint64_t address, uint64_t num_bytes) = 0;
  virtual Status release(uint64_t memory) = 0;

  // Peer access.
  virtual Result<uint64_t> allocate(uint64_t num_bytes) = 0;
  virtual Status free(uint64_t address) = 0;
  virtual Status export_peer(uint64_t address, MemoryHandle* to) = 0;
  virtual Result<uint64_t> open_peer(const MemoryHandle& from) = 0;  // of another process
  virtual Status close_peer(uint64_t address) = 0;
  virtual Status enable_peer(int device) = 0;  // for memory of this process
};

class SharedMapping {
 public:
  // num_bytes of memory of the driver's GPU, to be shared in some of these ways. driver must
  // outlive the mapping. Errors (failed): none of the ways; too little memory; what the driver
  // says.
  static Result<SharedMapping> create(MemoryDriver& driver, uint64_t num_bytes,
                                      SharingWays allowed = kAnyWay);
  // Maps what a peer has shared. The descriptor stays open. Errors (invalid input): other than
  // num_bytes; failed: why none of the handle's ways works.
  static Result<SharedMapping> open(MemoryDriver& driver, const MemoryHandle& handle,
                                    uint64_t num_bytes);

  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&&) = delete;
  ~SharedMapping();

  uint64_t address() const { return address_; }
  SharingWays ways() const { return ways_; }
  // For peers, in the given ways. The caller closes the descriptor. Errors (failed): the driver
  // cannot export it in any of them.
  Result<MemoryHandle> handle(SharingWays wanted = kAnyWay) const;

 private:
  // How address_ has come about, so that it is given back the same way.
  enum class Source { kNone, kMapped, kAllocated, kOpenedPeer, kBorrowed };

  explicit SharedMapping(MemoryDriver& driver) : driver_(&driver) {}
  Status map_memory();
  Status create_mapped(SharingWays ways, uint64_t num_bytes);
  Status open_way(SharingWays way, const MemoryHandle& handle);
  void give_back();

  MemoryDriver* driver_;
  Source source_ = Source::kNone;
  SharingWays ways_ = 0;
  uint64_t address_ = 0;
  uint64_t memory_ = 0;     // the driver's handle; 0: none
  uint64_t num_bytes_ = 0;  // that were asked for
  uint64_t whole_bytes_ = 0;
};

}  // namespace wideep::cuda
