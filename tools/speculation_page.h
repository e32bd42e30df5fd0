// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace wideep::tools {

// The template of the page of `wideep bench speculation --html`, which the build makes from
// speculation_page/.
std::string_view speculation_page();

}  // namespace wideep::tools
