// SPDX-License-Identifier: Apache-2.0
//
// A command describes its answer as columns and rows of JSON values; from these come the table, the
// JSON and the page, so that no command formats anything three times.
#include "what_if_output.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "formats/page.h"
#include "output_file.h"
#include "text_table.h"
#include "what_if_page.h"

namespace wideep::tools {
namespace {

using nlohmann::ordered_json;

std::string cell_text(const WhatIf::Column& column, const ordered_json& cell) {
  if (cell.is_null()) return "-";
  if (cell.is_string()) return cell.get<std::string>();
  return fmt::format("{:.{}f}", cell.get<double>(), column.decimals);
}

std::string table_of(const WhatIf& answer) {
  std::string text;
  for (const std::string& fact : answer.facts) text += fact + "\n";
  std::vector<TextColumn> columns;
  for (size_t i = 0; i < answer.columns.size(); ++i) {
    const WhatIf::Column& column = answer.columns[i];
    columns.push_back({.title = column.title, .is_text = column.is_text});
    for (const auto& row : answer.rows) columns.back().cells.push_back(cell_text(column, row[i]));
  }
  return text + text_table(columns);
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
  command.add_option("--html", output->html, "Also write a page with pictures to this file").path();
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
