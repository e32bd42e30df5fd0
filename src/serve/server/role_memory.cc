// SPDX-License-Identifier: Apache-2.0
#include "server/role_memory.h"

#include <atomic>
#include <utility>

#include "base/random_hex.h"
#include "base/try.h"

namespace wideep::server {
namespace {

constexpr int kRoleBits = 8;

std::atomic_ref<uint64_t> word(const base::SharedBytes& bytes) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(bytes.data()));
}

}  // namespace

Result<RoleMemory> RoleMemory::create(engine::Role role) {
  WIDEEP_TRY_ASSIGN(auto bytes, base::SharedBytes::create("roles", sizeof(uint64_t)));
  word(bytes) = static_cast<uint64_t>(role);
  return RoleMemory(std::move(bytes), base::random_hex(8));
}

engine::Role RoleMemory::role() const {
  return static_cast<engine::Role>(word(bytes_).load() & ((1u << kRoleBits) - 1));
}

uint64_t RoleMemory::epoch() const { return word(bytes_).load() >> kRoleBits; }

void RoleMemory::change(engine::Role role) {
  word(bytes_) = ((epoch() + 1) << kRoleBits) | static_cast<uint64_t>(role);
}

}  // namespace wideep::server
