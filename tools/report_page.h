// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace wideep::tools {

// The page of `wideep balance picture`, made of report_page/ by the build; recordings::fill_page
// fills its marks.
std::string_view report_page();

}  // namespace wideep::tools
