// SPDX-License-Identifier: Apache-2.0
//
// A server of disaggregated serving, as its proxy sees it.
//
// Thread safety: a plain value.
#pragma once

#include <string>

#include "schedule/role.h"
#include "server/router.h"

namespace wideep::disaggregated {

struct Member {
  server::ReplicaAddress address;
  engine::Role role = engine::Role::kBoth;

  bool prefills() const { return role != engine::Role::kDecode; }
  bool decodes() const { return role != engine::Role::kPrefill; }
  bool operator==(const Member& other) const {
    return address.host == other.address.host && address.port == other.address.port &&
           role == other.role;
  }
};

}  // namespace wideep::disaggregated
