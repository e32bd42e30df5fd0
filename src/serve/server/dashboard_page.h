// SPDX-License-Identifier: Apache-2.0
//
// The page of /dashboard, made of src/serve/server/dashboard_page/ by the build: one file that
// loads nothing but its data, from /dashboard/data.
//
// Thread safety: pure function.
#pragma once

#include <string_view>

namespace wideep::server {

std::string_view dashboard_page();

}  // namespace wideep::server
