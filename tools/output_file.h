// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::tools {

// Results are written to a new file that is then renamed to `path`, which would replace a device or
// a pipe. option: name in the message. Errors (invalid input): path exists and is no regular file,
// or a file cannot be written there now.
Status check_output_file(const std::string& path, std::string_view option = "--output");

// Errors (invalid input): both options name one file, so that the second would replace the first.
Status check_different_files(const std::string& first, std::string_view first_option,
                             const std::string& second, std::string_view second_option);

}  // namespace wideep::tools
