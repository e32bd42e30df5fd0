// SPDX-License-Identifier: Apache-2.0
//
// Where a server of a group says that it is there. The group's proxy sends it requests from then
// on.
//
// Thread safety: implementations take calls from any thread.
#pragma once

#include "schedule/role.h"

namespace wideep::server {

class Membership {
 public:
  virtual ~Membership() = default;

  // The server takes requests on this port. May start a thread: the process must not fork
  // afterwards.
  virtual void join(int port) = 0;
  virtual void change_role(engine::Role role) = 0;
  // It takes no more requests, for a while or for ever. Does not wait.
  virtual void leave() = 0;
  // It leaves for ever, and waits until that is said, for some seconds at most. The last call.
  virtual void end() = 0;
};

}  // namespace wideep::server
