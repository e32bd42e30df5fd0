// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace wideep::tools {

// report_page.html as it was when wideep was built; its marks are filled by recordings::fill_page.
std::string_view report_page();

}  // namespace wideep::tools
