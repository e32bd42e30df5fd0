// SPDX-License-Identifier: Apache-2.0
//
// The page of /, made of src/serve/server/chat_page/ and of the Markdown library and the sanitiser
// that Debian packages (WIDEEP_PAGE): one file that loads nothing else, and talks to the API of the
// server that it comes from. "": the command was built without it.
//
// Thread safety: pure function.
#pragma once

#include <string_view>

namespace wideep::server {

std::string_view chat_page();

}  // namespace wideep::server
