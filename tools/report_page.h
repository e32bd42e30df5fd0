// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace wideep::tools {

// The template of the page of `wideep balance picture`, which the build makes from report_page/;
// recordings::fill_page fills its placeholders.
std::string_view report_page();

}  // namespace wideep::tools
