// SPDX-License-Identifier: Apache-2.0
//
// Why pages of prompts did not come from other servers, for the log. A client may have named the
// server, so what it said is for the operator only, and a line comes once a minute for each server.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "run/event.h"

namespace wideep::server {

class TransferLog {
 public:
  static constexpr double kPauseSeconds = 60.0;
  static constexpr size_t kMaxPeers = 64;  // of whom lines are written within a pause

  // The line to write now; "": none. peer: as engine::Request::peer. now: seconds of a steady clock.
  std::string line_of(const run::PromptTransfer& transfer, std::string_view peer, double now);

 private:
  std::map<std::string, double> told_;  // when, by "host:port"
};

}  // namespace wideep::server
