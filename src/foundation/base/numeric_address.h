// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "wideep/status.h"

namespace wideep::base {

// The numeric address of a host, of IPv4 if it has one: "10.0.0.1", "::1". host: a name or a numeric
// address, IPv6 also in brackets. Blocks for the look-up of a name. Any thread. Errors (failed): it
// has no address.
Result<std::string> numeric_address(std::string host);

}  // namespace wideep::base
