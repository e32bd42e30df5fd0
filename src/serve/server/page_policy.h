// SPDX-License-Identifier: Apache-2.0
//
// The Content-Security-Policy under which a page may do only what it was built to do: run its own
// scripts and styles, known by their hashes, and talk to the server it comes from.
//
// Thread safety: pure function.
#pragma once

#include <string>
#include <string_view>

namespace wideep::server {

// The header's value. page: HTML whose scripts and styles stand between "<script>", "<style>"
// (without attributes) and their ends; nothing else in it may have these tags in its text. A script
// may turn text into HTML only through the Trusted Types policy of DOMPurify.
std::string policy_of_page(std::string_view page);

}  // namespace wideep::server
