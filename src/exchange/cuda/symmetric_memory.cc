// SPDX-License-Identifier: Apache-2.0
//
// The driver's functions are looked up by the runtime, so that a program with this file also starts
// where there is no driver.
#include "cuda/symmetric_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/try.h"

namespace wideep::cuda {
namespace {

constexpr unsigned kDriverVersion = 12000;

// Finds the driver's function of that name and type.
template <typename Function>
Status find_driver_function(const char* name, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kDriverVersion, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
    return failed(fmt::format("CUDA: the driver has no {} ({})", name, cudaGetErrorString(error)));
  }
  *function = reinterpret_cast<Function>(found);
  return {};
}

Status driver_status(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return {};
  return failed(fmt::format("CUDA: {}: driver error {}", what, static_cast<int>(result)));
}

// Calls the driver's function of this name.
#define WIDEEP_DRIVER(name, ...)                             \
  do {                                                       \
    decltype(&name) function = nullptr;                      \
    WIDEEP_TRY(find_driver_function(#name, &function));      \
    WIDEEP_TRY(driver_status(function(__VA_ARGS__), #name)); \
  } while (false)

CUmemAllocationHandleType handle_type(SharingWays way) {
  return way == kFabricHandle ? CU_MEM_HANDLE_TYPE_FABRIC
                              : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

// The driver's functions for one GPU, which is made the current one for calls that depend on it.
class CudaMemoryDriver final : public MemoryDriver {
 public:
  // Of the calling thread's current GPU.
  static Result<std::unique_ptr<MemoryDriver>> find() {
    auto made = std::make_unique<CudaMemoryDriver>();
    WIDEEP_TRY(runtime_status(cudaGetDevice(&made->device_), "the current GPU"));
    WIDEEP_TRY(runtime_status(cudaFree(nullptr), "a context on the GPU"));
    return std::unique_ptr<MemoryDriver>(std::move(made));
  }

  Result<Abilities> abilities() override {
    cudaDeviceProp properties;
    WIDEEP_TRY(
        runtime_status(cudaGetDeviceProperties(&properties, device_), "the GPU's properties"));
    size_t free = 0, total = 0;
    WIDEEP_TRY(runtime_status(cudaMemGetInfo(&free, &total), "the GPU's free memory"));
    Abilities found{fmt::format("GPU {} ({})", device_, properties.name), kPeerAccess, free};
    WIDEEP_TRY_ASSIGN(const bool is_virtual,
                      has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
    if (!is_virtual) return found;
    WIDEEP_TRY_ASSIGN(const bool files,
                      has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED));
    if (files) found.ways |= kFileDescriptor;
    // Drivers older than 12.3 do not know this attribute.
    const Result<bool> fabric = has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
    if (fabric.ok() && *fabric) found.ways |= kFabricHandle;
    return found;
  }

  Result<uint64_t> whole_pages(SharingWays ways, uint64_t num_bytes) override {
    const CUmemAllocationProp wanted = properties(ways);
    size_t page = 0;
    WIDEEP_DRIVER(cuMemGetAllocationGranularity, &page, &wanted,
                  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    return (num_bytes + page - 1) / page * page;
  }
  Result<uint64_t> create(SharingWays ways, uint64_t num_bytes) override {
    const CUmemAllocationProp wanted = properties(ways);
    CUmemGenericAllocationHandle memory = 0;
    WIDEEP_DRIVER(cuMemCreate, &memory, num_bytes, &wanted, 0);
    return memory;
  }
  Status export_handle(uint64_t memory, SharingWays way, MemoryHandle* to) override {
    if (way == kFileDescriptor) {
      int descriptor = -1;
      WIDEEP_DRIVER(cuMemExportToShareableHandle, &descriptor, memory, handle_type(way), 0);
      to->file_descriptor = descriptor;
      return {};
    }
    CUmemFabricHandle fabric{};
    WIDEEP_DRIVER(cuMemExportToShareableHandle, &fabric, memory, handle_type(way), 0);
    static_assert(sizeof(fabric) == sizeof(to->fabric));
    std::memcpy(to->fabric.data(), &fabric, sizeof(fabric));
    return {};
  }
  Result<uint64_t> import_handle(SharingWays way, const MemoryHandle& from) override {
    CUmemFabricHandle fabric{};
    std::memcpy(&fabric, from.fabric.data(), sizeof(fabric));
    void* handle = way == kFileDescriptor
                       ? reinterpret_cast<void*>(static_cast<intptr_t>(from.file_descriptor))
                       : &fabric;
    CUmemGenericAllocationHandle memory = 0;
    WIDEEP_DRIVER(cuMemImportFromShareableHandle, &memory, handle, handle_type(way));
    return memory;
  }
  Result<uint64_t> reserve(uint64_t num_bytes) override {
    CUdeviceptr address = 0;
    WIDEEP_DRIVER(cuMemAddressReserve, &address, num_bytes, 0, 0, 0);
    return address;
  }
  Status map(uint64_t address, uint64_t num_bytes, uint64_t memory) override {
    WIDEEP_DRIVER(cuMemMap, address, num_bytes, 0, memory, 0);
    return {};
  }
  Status allow_access(uint64_t address, uint64_t num_bytes) override {
    CUmemAccessDesc access{};
    access.location = properties(0).location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    WIDEEP_DRIVER(cuMemSetAccess, address, num_bytes, &access, 1);
    return {};
  }
  Status unmap(uint64_t address, uint64_t num_bytes) override {
    WIDEEP_DRIVER(cuMemUnmap, address, num_bytes);
    return {};
  }
  Status free_address(uint64_t address, uint64_t num_bytes) override {
    WIDEEP_DRIVER(cuMemAddressFree, address, num_bytes);
    return {};
  }
  Status release(uint64_t memory) override {
    WIDEEP_DRIVER(cuMemRelease, memory);
    return {};
  }

  Result<uint64_t> allocate(uint64_t num_bytes) override {
    void* memory = nullptr;
    WIDEEP_TRY(runtime_status(cudaMalloc(&memory, num_bytes), "device memory"));
    return reinterpret_cast<uint64_t>(memory);
  }
  Status free(uint64_t address) override {
    return runtime_status(cudaFree(reinterpret_cast<void*>(address)), "freeing device memory");
  }
  Status export_peer(uint64_t address, MemoryHandle* to) override {
    cudaIpcMemHandle_t peer;
    WIDEEP_TRY(runtime_status(cudaIpcGetMemHandle(&peer, reinterpret_cast<void*>(address)),
                              "a handle of device memory"));
    static_assert(sizeof(peer) == sizeof(to->peer));
    std::memcpy(to->peer.data(), &peer, sizeof(peer));
    to->device = device_;
    return {};
  }
  Result<uint64_t> open_peer(const MemoryHandle& from) override {
    cudaIpcMemHandle_t peer;
    std::memcpy(&peer, from.peer.data(), sizeof(peer));
    void* memory = nullptr;
    WIDEEP_TRY(runtime_status(cudaIpcOpenMemHandle(&memory, peer, cudaIpcMemLazyEnablePeerAccess),
                              "opening a peer's device memory"));
    return reinterpret_cast<uint64_t>(memory);
  }
  Status close_peer(uint64_t address) override {
    return runtime_status(cudaIpcCloseMemHandle(reinterpret_cast<void*>(address)),
                          "closing a peer's device memory");
  }
  Status enable_peer(int device) override {
    if (device == device_) return {};
    const cudaError_t error = cudaDeviceEnablePeerAccess(device, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // the next call must not find it
      return {};
    }
    return runtime_status(error, "peer access");
  }

 private:
  static Status runtime_status(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return {};
    cudaGetLastError();  // the caller's next call must not find it
    return failed(fmt::format("CUDA: {}: {}", what, cudaGetErrorString(error)));
  }
  Result<bool> has(CUdevice_attribute attribute) const {
    int value = 0;
    WIDEEP_DRIVER(cuDeviceGetAttribute, &value, attribute, device_);
    return value != 0;
  }
  CUmemAllocationProp properties(SharingWays ways) const {
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    unsigned types = 0;
    for (const SharingWays way : {kFabricHandle, kFileDescriptor}) {
      if ((ways & way) != 0) types |= static_cast<unsigned>(handle_type(way));
    }
    wanted.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types);
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = device_;
    return wanted;
  }

  int device_ = 0;
};

}  // namespace

Result<SymmetricMemory> SymmetricMemory::create(size_t num_bytes, SharingWays allowed) {
  WIDEEP_TRY_ASSIGN(std::unique_ptr<MemoryDriver> driver, CudaMemoryDriver::find());
  WIDEEP_TRY_ASSIGN(SharedMapping mapping, SharedMapping::create(*driver, num_bytes, allowed));
  return SymmetricMemory(std::move(driver), std::move(mapping));
}

Result<SymmetricMemory> SymmetricMemory::open(const MemoryHandle& handle, size_t num_bytes) {
  const auto map = [&]() -> Result<SymmetricMemory> {
    WIDEEP_TRY_ASSIGN(std::unique_ptr<MemoryDriver> driver, CudaMemoryDriver::find());
    WIDEEP_TRY_ASSIGN(SharedMapping mapping, SharedMapping::open(*driver, handle, num_bytes));
    return SymmetricMemory(std::move(driver), std::move(mapping));
  };
  Result<SymmetricMemory> opened = map();
  if (handle.file_descriptor >= 0) close(handle.file_descriptor);
  return opened;
}

Result<SymmetricMemory> SymmetricMemory::open(int file_descriptor, size_t num_bytes) {
  MemoryHandle handle;
  handle.ways = kFileDescriptor;
  handle.num_bytes = num_bytes;
  handle.file_descriptor = file_descriptor;
  return open(handle, num_bytes);
}

Result<int> SymmetricMemory::share() const {
  WIDEEP_TRY_ASSIGN(const MemoryHandle exported, handle(kFileDescriptor));
  return exported.file_descriptor;
}

Status send_memory(int socket, const SymmetricMemory& memory, SharingWays wanted) {
  WIDEEP_TRY_ASSIGN(const MemoryHandle handle, memory.handle(wanted));
  Status sent;
  if (send(socket, &handle, sizeof(handle), MSG_NOSIGNAL) != sizeof(handle)) {
    sent = failed(fmt::format("sending a memory's handle: {}", std::strerror(errno)));
  }
  if ((handle.ways & kFileDescriptor) == 0) return sent;
  if (sent.ok()) sent = send_file_descriptor(socket, handle.file_descriptor);
  close(handle.file_descriptor);
  return sent;
}

Result<SymmetricMemory> receive_memory(int socket, size_t num_bytes) {
  MemoryHandle handle;
  if (recv(socket, &handle, sizeof(handle), MSG_WAITALL) != sizeof(handle)) {
    return failed("receiving a memory's handle: the peer is gone");
  }
  handle.file_descriptor = -1;
  if ((handle.ways & kFileDescriptor) != 0) {
    WIDEEP_TRY_ASSIGN(handle.file_descriptor, receive_file_descriptor(socket));
  }
  return SymmetricMemory::open(handle, num_bytes);
}

// ---- descriptors over sockets ----

Status send_file_descriptor(int socket, int file_descriptor) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &file_descriptor, sizeof(int));
  if (sendmsg(socket, &message, MSG_NOSIGNAL) == 1) return {};
  return failed(fmt::format("sending a file descriptor: {}", std::strerror(errno)));
}

Result<int> receive_file_descriptor(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = received == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    return failed("receiving a file descriptor: the peer is gone");
  }
  int file_descriptor = -1;
  std::memcpy(&file_descriptor, CMSG_DATA(header), sizeof(int));
  return file_descriptor;
}

}  // namespace wideep::cuda
