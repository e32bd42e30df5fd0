// SPDX-License-Identifier: Apache-2.0
//
// The text of accuracy_client.py, which bench accuracy gives to Python.
#pragma once

#include <string_view>

namespace wideep::tools {

std::string_view accuracy_client();

}  // namespace wideep::tools
