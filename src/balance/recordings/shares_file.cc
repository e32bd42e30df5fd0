// SPDX-License-Identifier: Apache-2.0
#include "recordings/shares_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/files.h"

namespace wideep::recordings {

std::string shares_text(const std::map<int, balance::Shares>& shares) {
  std::string text;
  for (const auto& [layer, row] : shares) {
    text += fmt::format("{}\"{}\": [{}]", text.empty() ? "{" : ",\n ", layer, fmt::join(row, ", "));
  }
  return (text.empty() ? "{" : text) + "}\n";
}

Status write_shares(const std::string& path, const std::map<int, balance::Shares>& shares) {
  return formats::write_file(path, shares_text(shares));
}

}  // namespace wideep::recordings
