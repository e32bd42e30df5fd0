// SPDX-License-Identifier: Apache-2.0
#include "formats/new_directories.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ranges>

#include "base/try.h"
#include "formats/files.h"

namespace wideep::formats {

namespace fs = std::filesystem;

Result<NewDirectories> NewDirectories::create(const std::string& directory) {
  if (directory.empty()) return invalid_input("expected the name of a directory, found none");
  std::vector<std::string> missing;  // innermost first
  std::error_code error;
  for (fs::path each = fs::path(directory).lexically_normal(); !each.empty();
       each = each.parent_path()) {
    if (!each.has_filename()) continue;  // a slash at the end
    if (fs::exists(fs::symlink_status(each, error))) break;
    missing.push_back(each.string());
  }
  NewDirectories result;
  for (const std::string& each : std::views::reverse(missing)) {
    // false without an error: another process has just created it.
    if (fs::create_directory(each, error)) result.created_.push_back(each);
    if (error) {
      return invalid_input(fmt::format("{}: cannot be created: {}", directory, error.message()));
    }
  }
  if (!fs::is_directory(directory, error)) {
    return invalid_input(fmt::format("{}: expected a directory, found another kind", directory));
  }
  WIDEEP_TRY(check_writable((fs::path(directory) / "probe").string()));
  return result;
}

NewDirectories::~NewDirectories() {
  std::error_code ignored;
  for (const std::string& each : std::views::reverse(created_)) fs::remove(each, ignored);
}

}  // namespace wideep::formats
