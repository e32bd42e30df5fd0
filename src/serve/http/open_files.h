// SPDX-License-Identifier: Apache-2.0
//
// Raises the limit of open files. Every connection is an open file, and the usual default limit of
// a process is 1024.
#pragma once

namespace wideep::server {

// Sets the limit to the hard limit. On errors the limit stays as it was.
void allow_most_open_files();

}  // namespace wideep::server
