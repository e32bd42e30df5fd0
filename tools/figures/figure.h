// SPDX-License-Identifier: Apache-2.0
//
// A figure of the texts that wideep grew from, drawn again with numbers of this program: charts,
// tables and remarks. From one value come the table on the terminal, the JSON and the page.
//
//   Figure figure{.name = "sent-tokens", .title = "…", .source = "blog 1, figure 1"};
//   figure.charts.push_back({.kind = Chart::kLines, .title = "Time of an iteration",
//                            .x_label = "ranks", .y_label = "time, ms"});
//   figure.charts[0].series = {{.name = "this machine", .x = {2, 4}, .y = {8.0, 4.4}},
//                              {.name = "published", .x = {4}, .y = {1.2}, .published = true}};
//   return show_figure(figure, output);
//
// A number that is not finite (kNoNumber) is a gap: null in JSON.
//
// Thread safety: plain values; functions may be called from any thread.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command_line/command_line.h"
#include "formats/new_directories.h"
#include "wideep/status.h"

namespace wideep::tools {

inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// What is drawn in one colour.
struct Series {
  std::string name;
  std::vector<double> x = {};  // of lines and points, as long as y; lines join them in this order
  std::vector<double> y = {};  // of bars: one for each category
  bool published = false;      // a number of the text itself: drawn apart, hollow
};

// One map of a heat chart.
struct HeatPanel {
  std::string name;
  std::vector<std::vector<double>> values;  // [rows][columns], ≥ 0 or kNoNumber
  bool published = false;
};

struct Chart {
  // With categories, lines and points have no x: their y stand over the categories, side by side.
  enum Kind { kLines, kBars, kPoints, kHeat };

  Kind kind = kLines;
  std::string title;
  std::string hint = {};              // a sentence below the title
  std::string x_label, y_label;       // with units
  bool log_x = false, log_y = false;  // not of kHeat; only numbers > 0 are drawn
  std::vector<std::string> categories = {};
  std::vector<Series> series = {};

  // Of kHeat: panels that share rows, columns and one scale of colours.
  std::vector<std::string> rows = {}, columns = {};
  std::string unit = {};  // of the values
  std::vector<HeatPanel> panels = {};
};

struct Table {
  std::string title;
  std::vector<std::string> columns;
  // [rows][columns]: numbers, texts, or null: there is none. Printed with four digits that count,
  // whole numbers with all.
  std::vector<std::vector<nlohmann::ordered_json>> rows = {};
};

struct Figure {
  std::string name;    // of the command and of its files: "sent-tokens"
  std::string title;   // of the page
  std::string source;  // whose figure it is: "blog 1, figures 1 and 6"
  std::vector<Chart> charts = {};
  std::vector<Table> tables = {};
  std::vector<std::string> notes = {};  // sentences
};

// All numbers of the figure, as the page has them.
nlohmann::ordered_json figure_json(const Figure& figure);

// Title, source, tables and notes, for the terminal.
std::string figure_text(const Figure& figure);

// DIR/NAME.html, a page that loads nothing, and DIR/NAME.json, the same numbers. Errors: a file
// cannot be written. REQUIRES: series, panels and tables have the sizes that are said above.
Status write_figure(const Figure& figure, const std::string& directory);

// The options of all figures.
struct FigureOutput {
  std::string directory = "figures";
  bool json = false;
};

// Adds --output and --json. `output` must outlive the parsing.
void add_figure_output(command_line::Command command, FigureOutput* output);

// Makes the directory, before what may take minutes. Errors (invalid input): it cannot be made, or
// no file can be written in it.
Result<formats::NewDirectories> prepare_figure(const FigureOutput& output);

// Writes the files, and prints the text and where they are, or with --json only the JSON.
Status show_figure(const Figure& figure, const FigureOutput& output);

}  // namespace wideep::tools
