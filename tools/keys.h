// SPDX-License-Identifier: Apache-2.0
//
// Keys that clients send in the header Authorization, as options, files and variables say them. What
// no header can carry is refused where it is said: no client could ever send it. Messages do not
// repeat a key.
#pragma once

#include <string>

#include "wideep/status.h"

namespace wideep::tools {

// What is wrong with a key; "": nothing.
std::string complain_of_key(const std::string& key);

// The first line of a file that only this service can read, as service managers and Kubernetes give
// secrets. option: for messages. Errors (invalid input): it cannot be read, or its first line is no
// key.
Result<std::string> read_key_file(const std::string& option, const std::string& path);

}  // namespace wideep::tools
