// SPDX-License-Identifier: Apache-2.0
//
// Which servers a proxy waits for when it starts.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "server/router_options.h"

namespace wideep::disaggregated {

// How many servers of each kind are needed. One that does both counts for both.
struct Needed {
  int context = 0;
  int generation = 0;
};
Needed needed_of(const std::vector<server::RouterMember>& members);

// Those whose /health is 200, all asked at the same time. Blocks for two seconds at most.
std::vector<server::RouterMember> healthy_of(const std::vector<server::RouterMember>& members);

// "context_servers: 1 of 2, missing http://a:8001"; "" if enough are there. expected: the servers
// that are known by name, of which those that are not in `live` are missing.
std::string missing_text(const std::vector<server::RouterMember>& live, const Needed& needed,
                         const std::vector<server::RouterMember>& expected);

}  // namespace wideep::disaggregated
