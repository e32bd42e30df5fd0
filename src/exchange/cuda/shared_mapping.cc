// SPDX-License-Identifier: Apache-2.0
//
// A way that the driver's attributes promise may still fail on a machine as it is set up, so ways
// are tried and not believed: both kinds of handles together, then each alone, then peer access.
// What a failed try has made is given back before the next. If none works, the error has the
// reasons of all.
#include "cuda/shared_mapping.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/try.h"

namespace wideep::cuda {
namespace {

constexpr SharingWays kVirtualMemory = kFabricHandle | kFileDescriptor;

}  // namespace

std::string describe(SharingWays ways) {
  std::string text;
  const auto add = [&](SharingWays way, const char* name) {
    if ((ways & way) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  };
  add(kFabricHandle, "fabric handles");
  add(kFileDescriptor, "file descriptors");
  add(kPeerAccess, "peer access");
  return text.empty() ? "none" : text;
}

// ---- create ----

Result<SharedMapping> SharedMapping::create(MemoryDriver& driver, uint64_t num_bytes,
                                            SharingWays allowed) {
  WIDEEP_TRY_ASSIGN(const MemoryDriver::Abilities abilities, driver.abilities());
  if (num_bytes > abilities.free_bytes) {
    return failed(fmt::format(
        "symmetric memory: {} bytes on {}, of which {} are free: expected fewer tokens, or a GPU "
        "with more memory left",
        num_bytes, abilities.name, abilities.free_bytes));
  }
  SharedMapping made(driver);
  made.num_bytes_ = num_bytes;
  std::string why;
  const SharingWays possible = abilities.ways & allowed;
  // Attributes promise more than a machine may be set up for: fabric handles need IMEX channels.
  for (const SharingWays ways :
       {possible & kVirtualMemory, possible & kFileDescriptor, possible & kFabricHandle}) {
    if (ways == 0 || ways == made.ways_) continue;
    made.ways_ = ways;
    const Status created = made.create_mapped(ways, num_bytes);
    if (created.ok()) return made;
    made.give_back();
    why += fmt::format("; {}: {}", describe(ways), created.message());
  }
  if ((possible & kPeerAccess) != 0) {
    const Result<uint64_t> allocated = driver.allocate(num_bytes);
    if (allocated.ok()) {
      made.address_ = *allocated;
      made.source_ = Source::kAllocated;
      made.ways_ = kPeerAccess;
      return made;
    }
    why += fmt::format("; {}: {}", describe(kPeerAccess), allocated.status().message());
  }
  return failed(fmt::format(
      "symmetric memory: {} cannot share {} bytes: it supports {}, expected one of {}{}",
      abilities.name, num_bytes, describe(abilities.ways), describe(allowed), why));
}

Status SharedMapping::create_mapped(SharingWays ways, uint64_t num_bytes) {
  WIDEEP_TRY_ASSIGN(whole_bytes_, driver_->whole_pages(ways, num_bytes));
  WIDEEP_TRY_ASSIGN(memory_, driver_->create(ways, whole_bytes_));
  return map_memory();
}

Status SharedMapping::map_memory() {
  WIDEEP_TRY_ASSIGN(const uint64_t address, driver_->reserve(whole_bytes_));
  const Status mapped = driver_->map(address, whole_bytes_, memory_);
  if (!mapped.ok()) {
    driver_->free_address(address, whole_bytes_).ok();  // the first error is the one to tell
    return mapped;
  }
  address_ = address;
  source_ = Source::kMapped;
  return driver_->allow_access(address_, whole_bytes_);
}

// ---- share ----

Result<MemoryHandle> SharedMapping::handle(SharingWays wanted) const {
  MemoryHandle made;
  made.num_bytes = num_bytes_;
  made.whole_bytes = whole_bytes_;
  made.process = getpid();
  made.address = address_;
  std::string why;
  const auto add = [&](SharingWays way, const Status& exported) {
    if (exported.ok()) {
      made.ways |= way;
    } else {
      why += "; " + exported.message();
    }
  };
  for (const SharingWays way : {kFabricHandle, kFileDescriptor}) {
    if ((ways_ & wanted & way) != 0) add(way, driver_->export_handle(memory_, way, &made));
  }
  if ((ways_ & wanted & kPeerAccess) != 0) {
    add(kPeerAccess, driver_->export_peer(address_, &made));
  }
  if (made.ways != 0) return made;
  return failed(fmt::format("symmetric memory: shared by {}, not by {}{}", describe(ways_),
                            describe(wanted), why));
}

// ---- open ----

Result<SharedMapping> SharedMapping::open(MemoryDriver& driver, const MemoryHandle& handle,
                                          uint64_t num_bytes) {
  if (handle.num_bytes != num_bytes) {
    return invalid_input(
        fmt::format("symmetric memory: a peer shares {} bytes, expected {}: all ranks need the "
                    "same shape of exchange",
                    handle.num_bytes, num_bytes));
  }
  WIDEEP_TRY_ASSIGN(const MemoryDriver::Abilities abilities, driver.abilities());
  std::string why;
  for (const SharingWays way : {kFabricHandle, kFileDescriptor, kPeerAccess}) {
    if ((handle.ways & way) == 0) continue;
    if ((abilities.ways & way) == 0) {
      why += fmt::format("; {}: {} does not support them", describe(way), abilities.name);
      continue;
    }
    SharedMapping made(driver);
    made.num_bytes_ = num_bytes;
    const Status opened = made.open_way(way, handle);
    if (opened.ok()) return made;
    why += fmt::format("; {}: {}", describe(way), opened.message());
  }
  return failed(fmt::format(
      "symmetric memory of a peer cannot be mapped on {}: expected GPUs with peer access{}",
      abilities.name, why));
}

Status SharedMapping::open_way(SharingWays way, const MemoryHandle& handle) {
  if (way == kPeerAccess) {
    if (handle.process == getpid()) {
      WIDEEP_TRY(driver_->enable_peer(handle.device));
      address_ = handle.address;
      source_ = Source::kBorrowed;
      return {};
    }
    WIDEEP_TRY_ASSIGN(address_, driver_->open_peer(handle));
    source_ = Source::kOpenedPeer;
    return {};
  }
  whole_bytes_ = handle.whole_bytes;
  if (whole_bytes_ == 0) {
    WIDEEP_TRY_ASSIGN(whole_bytes_, driver_->whole_pages(way, num_bytes_));
  }
  WIDEEP_TRY_ASSIGN(memory_, driver_->import_handle(way, handle));
  return map_memory();
}

// ---- the end ----

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : driver_(other.driver_),
      source_(std::exchange(other.source_, Source::kNone)),
      ways_(other.ways_),
      address_(std::exchange(other.address_, 0)),
      memory_(std::exchange(other.memory_, 0)),
      num_bytes_(other.num_bytes_),
      whole_bytes_(other.whole_bytes_) {}

SharedMapping::~SharedMapping() { give_back(); }

// Nothing can be done about errors here; the driver frees all when the process ends.
void SharedMapping::give_back() {
  switch (std::exchange(source_, Source::kNone)) {
    case Source::kMapped:
      driver_->unmap(address_, whole_bytes_).ok();
      driver_->free_address(address_, whole_bytes_).ok();
      break;
    case Source::kAllocated:
      driver_->free(address_).ok();
      break;
    case Source::kOpenedPeer:
      driver_->close_peer(address_).ok();
      break;
    case Source::kBorrowed:
    case Source::kNone:
      break;
  }
  address_ = 0;
  if (memory_ != 0) driver_->release(std::exchange(memory_, 0)).ok();
}

}  // namespace wideep::cuda
