// SPDX-License-Identifier: Apache-2.0
#include "figures/figure.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/try.h"
#include "figures/figures_page.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "formats/page.h"
#include "text_table.h"

namespace wideep::tools {
namespace {

using nlohmann::ordered_json;

ordered_json numbers_json(const std::vector<double>& numbers) {
  ordered_json list = ordered_json::array();
  for (const double number : numbers) {
    // Whole numbers as such: counts and ranks are read as integers.
    if (!std::isfinite(number)) {
      list.push_back(nullptr);
    } else if (number == std::floor(number) && std::abs(number) < 9e15) {
      list.push_back(static_cast<int64_t>(number));
    } else {
      list.push_back(number);
    }
  }
  return list;
}

const char* kind_name(Chart::Kind kind) {
  switch (kind) {
    case Chart::kLines:
      return "lines";
    case Chart::kBars:
      return "bars";
    case Chart::kPoints:
      return "points";
    case Chart::kHeat:
      return "heat";
  }
  WIDEEP_CHECK(false);
}

void check_sizes(const Chart& chart) {
  for (const Series& series : chart.series) {
    const bool has_x = chart.kind != Chart::kBars && chart.categories.empty();
    WIDEEP_CHECK(series.y.size() == (has_x ? series.x.size() : chart.categories.size()));
  }
  for (const HeatPanel& panel : chart.panels) {
    WIDEEP_CHECK(panel.values.size() == chart.rows.size());
    for (const auto& row : panel.values) WIDEEP_CHECK(row.size() == chart.columns.size());
  }
}

ordered_json heat_json(const Chart& chart) {
  ordered_json panels = ordered_json::array();
  for (const HeatPanel& panel : chart.panels) {
    ordered_json values = ordered_json::array();
    for (const auto& row : panel.values) values.push_back(numbers_json(row));
    panels.push_back({{"name", panel.name}, {"published", panel.published}, {"values", values}});
  }
  return panels;
}

ordered_json chart_json(const Chart& chart) {
  check_sizes(chart);
  ordered_json json = {{"title", chart.title},
                       {"kind", kind_name(chart.kind)},
                       {"hint", chart.hint},
                       {"x_label", chart.x_label},
                       {"y_label", chart.y_label}};
  if (chart.kind == Chart::kHeat) {
    json["rows"] = chart.rows;
    json["columns"] = chart.columns;
    json["unit"] = chart.unit;
    json["panels"] = heat_json(chart);
    return json;
  }
  json["log_x"] = chart.log_x;
  json["log_y"] = chart.log_y;
  if (!chart.categories.empty()) json["categories"] = chart.categories;
  json["series"] = ordered_json::array();
  for (const Series& series : chart.series) {
    ordered_json one = {{"name", series.name}, {"published", series.published}};
    if (!series.x.empty()) one["x"] = numbers_json(series.x);
    one["y"] = numbers_json(series.y);
    json["series"].push_back(std::move(one));
  }
  return json;
}

std::string cell_text(const ordered_json& cell) {
  if (cell.is_null()) return "-";
  if (cell.is_string()) return cell.get<std::string>();
  const double number = cell.get<double>();
  if (!std::isfinite(number)) return "-";  // as JSON has it: null
  const bool is_whole = number == std::floor(number) && std::abs(number) < 9e15;
  if (is_whole) return fmt::format("{:.0f}", number);
  // Four digits that count, and no exponent for what people read.
  const int magnitude = static_cast<int>(std::floor(std::log10(std::abs(number))));
  return magnitude < -6 ? fmt::format("{:.3e}", number)
                        : fmt::format("{:.{}f}", number, std::max(0, 3 - magnitude));
}

std::string table_text(const Table& table) {
  std::vector<TextColumn> columns;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    columns.push_back({.title = table.columns[i]});
    for (const auto& row : table.rows) {
      WIDEEP_CHECK(row.size() == table.columns.size());
      columns.back().cells.push_back(cell_text(row[i]));
      columns.back().is_text = columns.back().is_text || row[i].is_string();
    }
  }
  return table.title + "\n" + text_table(columns);
}

std::string path_of(const Figure& figure, const std::string& directory, const char* ending) {
  return fmt::format("{}/{}.{}", directory, figure.name, ending);
}

}  // namespace

ordered_json figure_json(const Figure& figure) {
  ordered_json json = {{"name", figure.name},
                       {"title", figure.title},
                       {"source", figure.source},
                       {"charts", ordered_json::array()},
                       {"tables", ordered_json::array()},
                       {"notes", figure.notes}};
  for (const Chart& chart : figure.charts) json["charts"].push_back(chart_json(chart));
  for (const Table& table : figure.tables) {
    json["tables"].push_back(
        {{"title", table.title}, {"columns", table.columns}, {"rows", table.rows}});
  }
  return json;
}

std::string figure_text(const Figure& figure) {
  std::string text = fmt::format("{} ({})\n", figure.title, figure.source);
  for (const Table& table : figure.tables) text += "\n" + table_text(table);
  if (!figure.notes.empty()) text += "\n";
  for (const std::string& note : figure.notes) text += note + "\n";
  return text;
}

Status write_figure(const Figure& figure, const std::string& directory) {
  const ordered_json json = figure_json(figure);
  const std::string page =
      formats::fill_marks(figures_page(), {{"TITLE", formats::escape_html(figure.title)},
                                           {"DATA", formats::script_json(json)},
                                           {"SUMMARY", formats::escape_html(figure_text(figure))}});
  WIDEEP_TRY(formats::write_file(path_of(figure, directory, "html"), page));
  return formats::write_file(path_of(figure, directory, "json"),
                             formats::json_text(json, 1) + "\n");
}

void add_figure_output(command_line::Command command, FigureOutput* output) {
  command
      .add_option("--output,--output-path", output->directory,
                  "The directory of the page and of its numbers as JSON; made if it is missing")
      .path()
      .show_default();
  command.add_flag("--json", output->json, "Only JSON on stdout; the files are written as well");
}

Result<formats::NewDirectories> prepare_figure(const FigureOutput& output) {
  return formats::NewDirectories::create(output.directory);
}

Status show_figure(const Figure& figure, const FigureOutput& output) {
  WIDEEP_TRY_ASSIGN(const formats::NewDirectories directories, prepare_figure(output));
  WIDEEP_TRY(write_figure(figure, output.directory));
  if (output.json) {
    fmt::print("{}\n", formats::json_text(figure_json(figure), 2));
  } else {
    fmt::print("{}\nwrote {} and its numbers, {}.json\n", figure_text(figure),
               path_of(figure, output.directory, "html"), figure.name);
  }
  return {};
}

}  // namespace wideep::tools
