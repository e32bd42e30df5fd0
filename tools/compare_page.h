// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace wideep::tools {

// The template of the page of `wideep balance compare --html`, which the build makes from
// compare_page/; compare_html fills its placeholders.
std::string_view compare_page();

}  // namespace wideep::tools
