// SPDX-License-Identifier: Apache-2.0
//
// A command describes its answer as columns and rows of JSON values; from these come the table, the
// JSON and the page, so that no command formats anything three times. Widths are counted in
// characters, since titles have signs such as µ.
#include "what_if_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "formats/page.h"
#include "output_file.h"
#include "what_if_page.h"

namespace wideep::tools {
namespace {

using nlohmann::ordered_json;

std::string cell_text(const WhatIf::Column& column, const ordered_json& cell) {
  if (cell.is_null()) return "-";
  if (cell.is_string()) return cell.get<std::string>();
  return fmt::format("{:.{}f}", cell.get<double>(), column.decimals);
}

// Columns of the terminal, not bytes: a text may have signs such as ×.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, bool is_text) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return is_text ? text + space : space + text;
}

std::string table_of(const WhatIf& answer) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < answer.columns.size(); ++i) {
    size_t width = width_of(answer.columns[i].title);
    for (const auto& row : answer.rows) {
      width = std::max(width, width_of(cell_text(answer.columns[i], row[i])));
    }
    widths.push_back(width);
  }
  const auto line = [&](const auto& text_of) {
    std::string text;
    for (size_t i = 0; i < widths.size(); ++i) {
      text += (i > 0 ? "  " : "") + padded(text_of(i), widths[i], answer.columns[i].is_text);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string table;
  for (const std::string& fact : answer.facts) table += fact + "\n";
  table += line([&](size_t i) { return answer.columns[i].title; });
  for (const auto& row : answer.rows) {
    table += line([&](size_t i) { return cell_text(answer.columns[i], row[i]); });
  }
  return table;
}

ordered_json rows_json(const WhatIf& answer) {
  ordered_json rows = ordered_json::array();
  for (const auto& row : answer.rows) {
    ordered_json object = ordered_json::object();
    for (size_t i = 0; i < row.size(); ++i) object[answer.columns[i].key] = row[i];
    rows.push_back(std::move(object));
  }
  return rows;
}

ordered_json page_json(const WhatIf& answer) {
  ordered_json json = {{"command", answer.command},
                       {"facts", answer.facts},
                       {"columns", ordered_json::array()},
                       {"rows", rows_json(answer)},
                       {"charts", ordered_json::array()}};
  for (const WhatIf::Column& column : answer.columns) {
    json["columns"].push_back({{"key", column.key},
                               {"title", column.title},
                               {"decimals", column.decimals},
                               {"is_text", column.is_text}});
  }
  for (const WhatIf::Chart& chart : answer.charts) {
    json["charts"].push_back({{"x", chart.x},
                              {"lines", chart.lines},
                              {"y_title", chart.y_title},
                              {"is_logarithmic", chart.is_logarithmic},
                              {"limit", nullptr},
                              {"limit_text", chart.limit_text}});
    if (chart.limit) json["charts"].back()["limit"] = *chart.limit;
  }
  return json;
}

}  // namespace

void add_what_if_output(command_line::Command command, WhatIfOutput* output) {
  command.add_option("--html", output->html, "Also write a page with pictures to this file");
  command.add_flag("--json", output->json, "Only JSON on stdout");
}

Status show(const WhatIf& answer, const WhatIfOutput& output) {
  if (!output.html.empty()) WIDEEP_TRY(check_output_file(output.html, "--html"));
  if (output.json) {
    const ordered_json json = {{"facts", answer.facts}, {"rows", rows_json(answer)}};
    fmt::print("{}\n", formats::json_text(json, 2));
  } else {
    fmt::print("{}", table_of(answer));
  }
  if (output.html.empty()) return {};
  const std::string page =
      formats::fill_marks(what_if_page(), {{"TITLE", formats::escape_html(answer.title)},
                                           {"DATA", formats::script_json(page_json(answer))},
                                           {"SUMMARY", formats::escape_html(table_of(answer))}});
  WIDEEP_TRY(formats::write_file(output.html, page));
  log::info("wrote {}", output.html);
  return {};
}

}  // namespace wideep::tools
