// SPDX-License-Identifier: Apache-2.0
//
// Every connection is an open file, and systems allow a process 1024 of them unless it asks.
#pragma once

namespace wideep::server {

// As many as the process may ask for (its hard limit). What fails leaves the limit as it was.
void allow_most_open_files();

}  // namespace wideep::server
