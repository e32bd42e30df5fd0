// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "formats/files.h"

namespace wideep::tools {

Status check_output_file(const std::string& path, std::string_view option) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  using std::filesystem::file_type;
  if (kind == file_type::regular || kind == file_type::not_found) {
    return formats::check_writable(path).at(std::string(option));
  }
  return invalid_input(
      fmt::format("{}: {}: expected a new or regular file, found another kind", option, path));
}

Status check_different_files(const std::string& first, std::string_view first_option,
                             const std::string& second, std::string_view second_option) {
  std::error_code ignored;
  const auto whole = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(path, ignored);
  };
  if (whole(first) != whole(second)) return {};
  return invalid_input(fmt::format("{}: {}: is the file of {} too, name another", second_option,
                                   second, first_option));
}

}  // namespace wideep::tools
