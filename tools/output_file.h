// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "wideep/status.h"

namespace wideep::tools {

// Results are written by renaming a new file over `path`: a device or pipe of that name would be
// lost. Errors (invalid input): path exists and is no regular file.
Status check_output_file(const std::string& path);

}  // namespace wideep::tools
