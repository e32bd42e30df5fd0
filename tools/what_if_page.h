// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace wideep::tools {

// The template of the pages of `wideep simulate ... --html`, which the build makes from
// what_if_page/.
std::string_view what_if_page();

}  // namespace wideep::tools
