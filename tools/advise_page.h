// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace wideep::tools {

// The template of the page of `wideep advise --html`, which the build makes from advise_page/.
std::string_view advise_page();

}  // namespace wideep::tools
