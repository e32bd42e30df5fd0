// SPDX-License-Identifier: Apache-2.0
#include "balance/shares_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/files.h"

namespace wideep::balance {

std::string shares_text(const std::map<int, Shares>& shares) {
  std::string text;
  for (const auto& [layer, row] : shares) {
    text += fmt::format("{}\"{}\": [{}]", text.empty() ? "{" : ",\n ", layer, fmt::join(row, ", "));
  }
  return (text.empty() ? "{" : text) + "}\n";
}

Status write_shares(const std::string& path, const std::map<int, Shares>& shares) {
  return formats::write_file(path, shares_text(shares));
}

}  // namespace wideep::balance
