// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include <fmt/format.h>

#include <filesystem>

namespace wideep::tools {

Status check_output_file(const std::string& path) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  using std::filesystem::file_type;
  if (kind == file_type::regular || kind == file_type::not_found) return {};
  return invalid_input(
      fmt::format("--output: {}: expected a new or regular file, found another kind", path));
}

}  // namespace wideep::tools
