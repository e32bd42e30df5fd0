// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace wideep::tools {

// The page of `wideep balance compare --html`, made of compare_page/ by the build; compare_html
// fills its marks.
std::string_view compare_page();

}  // namespace wideep::tools
