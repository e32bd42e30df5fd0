// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace wideep::tools {

// compare_page/page.html as it was when wideep was built; compare_html fills its marks.
std::string_view compare_page();

}  // namespace wideep::tools
