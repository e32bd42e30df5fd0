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

Result<CUmemAllocationProp> properties() {
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) {
    return failed(fmt::format("CUDA: {}", cudaGetErrorString(error)));
  }
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  return wanted;
}

// In whole pages of the device.
Result<size_t> whole_pages(const CUmemAllocationProp& wanted, size_t num_bytes) {
  size_t page = 0;
  WIDEEP_DRIVER(cuMemGetAllocationGranularity, &page, &wanted,
                CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  return (num_bytes + page - 1) / page * page;
}

}  // namespace

Result<SymmetricMemory> SymmetricMemory::create(size_t num_bytes) {
  WIDEEP_TRY_ASSIGN(const CUmemAllocationProp wanted, properties());
  SymmetricMemory made;
  WIDEEP_TRY_ASSIGN(const size_t bytes, whole_pages(wanted, num_bytes));
  CUmemGenericAllocationHandle handle = 0;
  WIDEEP_DRIVER(cuMemCreate, &handle, bytes, &wanted, 0);
  made.handle_ = handle;
  made.num_bytes_ = bytes;
  WIDEEP_TRY(made.map());
  return made;
}

Result<SymmetricMemory> SymmetricMemory::open(int file_descriptor, size_t num_bytes) {
  SymmetricMemory made;
  const auto import = [&]() -> Status {
    WIDEEP_TRY_ASSIGN(const CUmemAllocationProp wanted, properties());
    WIDEEP_TRY_ASSIGN(const size_t bytes, whole_pages(wanted, num_bytes));
    CUmemGenericAllocationHandle handle = 0;
    WIDEEP_DRIVER(cuMemImportFromShareableHandle, &handle,
                  reinterpret_cast<void*>(static_cast<intptr_t>(file_descriptor)),
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    made.handle_ = handle;
    made.num_bytes_ = bytes;
    return made.map();
  };
  const Status imported = import();
  close(file_descriptor);
  if (!imported.ok()) return imported;
  return made;
}

Status SymmetricMemory::map() {
  CUdeviceptr address = 0;
  WIDEEP_DRIVER(cuMemAddressReserve, &address, num_bytes_, 0, 0, 0);
  const auto map_there = [&]() -> Status {
    WIDEEP_DRIVER(cuMemMap, address, num_bytes_, 0, handle_, 0);
    return {};
  };
  const auto give_back = [&]() -> Status {
    WIDEEP_DRIVER(cuMemAddressFree, address, num_bytes_);
    return {};
  };
  const Status mapped = map_there();
  if (!mapped.ok()) {
    give_back().ok();  // the first error is the one to tell
    return mapped;
  }
  address_ = address;
  WIDEEP_TRY_ASSIGN(const CUmemAllocationProp wanted, properties());
  CUmemAccessDesc access{};
  access.location = wanted.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  WIDEEP_DRIVER(cuMemSetAccess, address, num_bytes_, &access, 1);
  return {};
}

Result<int> SymmetricMemory::share() const {
  int file_descriptor = -1;
  WIDEEP_DRIVER(cuMemExportToShareableHandle, &file_descriptor, handle_,
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  return file_descriptor;
}

SymmetricMemory::SymmetricMemory(SymmetricMemory&& other) noexcept
    : address_(std::exchange(other.address_, 0)),
      handle_(std::exchange(other.handle_, 0)),
      num_bytes_(other.num_bytes_) {}

// Nothing can be done about errors here; the driver frees all when the process ends.
SymmetricMemory::~SymmetricMemory() {
  const auto unmap = [&]() -> Status {
    WIDEEP_DRIVER(cuMemUnmap, address_, num_bytes_);
    WIDEEP_DRIVER(cuMemAddressFree, address_, num_bytes_);
    return {};
  };
  const auto release = [&]() -> Status {
    WIDEEP_DRIVER(cuMemRelease, handle_);
    return {};
  };
  if (address_ != 0) unmap().ok();
  if (handle_ != 0) release().ok();
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
