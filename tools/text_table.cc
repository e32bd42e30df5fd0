// SPDX-License-Identifier: Apache-2.0
#include "text_table.h"

#include <algorithm>

namespace wideep::tools {
namespace {

// Columns of the terminal, not bytes: a text may have signs such as ×.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t width_of(const TextColumn& column) {
  size_t width = width_of(column.title);
  for (const std::string& cell : column.cells) width = std::max(width, width_of(cell));
  return width;
}

}  // namespace

std::string text_table(const std::vector<TextColumn>& columns) {
  if (columns.empty()) return "";
  std::vector<size_t> widths;
  for (const TextColumn& column : columns) widths.push_back(width_of(column));
  const auto line = [&](const auto& text_of) {
    std::string text;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string& cell = text_of(columns[i]);
      const std::string space(widths[i] - width_of(cell), ' ');
      text += (i > 0 ? "  " : "") + (columns[i].is_text ? cell + space : space + cell);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string table = line([](const TextColumn& column) -> const auto& { return column.title; });
  for (size_t row = 0; row < columns[0].cells.size(); ++row) {
    table += line([row](const TextColumn& column) -> const auto& { return column.cells[row]; });
  }
  return table;
}

}  // namespace wideep::tools
