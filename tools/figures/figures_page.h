// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace wideep::tools {

// The template of the pages of `wideep figures ...`, which the build makes from figures_page/.
std::string_view figures_page();

}  // namespace wideep::tools
