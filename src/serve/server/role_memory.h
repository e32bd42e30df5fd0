// SPDX-License-Identifier: Apache-2.0
//
// What a server prefers to do, and how often that has been said, over all processes that serve one
// after the other.
//
// Thread safety: create() before the processes fork; one process at a time changes it.
#pragma once

#include <cstdint>
#include <string>

#include "base/shared_bytes.h"
#include "schedule/role.h"
#include "wideep/status.h"

namespace wideep::server {

class RoleMemory {
 public:
  // Errors (failed): no memory.
  static Result<RoleMemory> create(engine::Role role);

  engine::Role role() const;
  uint64_t epoch() const;  // 0: no rank has been told yet
  // Begins the next epoch.
  void change(engine::Role role);
  // Hexadecimal; another server's, or that of a later start, differs.
  const std::string& instance() const { return instance_; }

 private:
  RoleMemory(base::SharedBytes bytes, std::string instance)
      : bytes_(std::move(bytes)), instance_(std::move(instance)) {}

  base::SharedBytes bytes_;  // a word: epoch and role together, as a process may die in between
  std::string instance_;
};

}  // namespace wideep::server
