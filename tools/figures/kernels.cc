// SPDX-License-Identifier: Apache-2.0
//
// wideep figures kernels: where the time of an iteration goes, over sizes of expert parallelism.
//
// Each trace that `--profile-output` wrote is a column. A part's time is its own, without the parts
// inside it, mean over ranks and iterations; what travels beside the computing thread is shown
// apart, since it adds nothing while that thread has other work.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/trace.h"
#include "base/try.h"
#include "commands.h"
#include "figures/figure.h"
#include "measure/model/trace_breakdown.h"

namespace wideep::tools {
namespace {

using measure::SpanTime;
using measure::TraceBreakdown;

struct Options {
  std::vector<std::string> traces;
  FigureOutput output;
};

struct Column {
  std::string label;
  std::string path;
  TraceBreakdown trace;
};

// What the text speaks of together. The last group has all other spans.
struct Group {
  const char* name;
  const char* published;  // what the text says of it over growing EP; empty: nothing
  std::vector<base::Span> spans;
};

const std::vector<Group>& groups() {
  using base::Span;
  static const std::vector<Group> kGroups = {
      {"experts", "shrink", {Span::kExperts}},
      {"attention", "stays", {Span::kAttention}},
      {"MoE auxiliary",
       "grew before their optimisation, then stays",
       {Span::kRouter, Span::kChooseSlots, Span::kReduce}},
      {"communication",
       "grew before its optimisation",
       {Span::kBegin, Span::kPush, Span::kAwaitRows, Span::kAwaitResults, Span::kAgree,
        Span::kMeet}},
      {"MLP and shared expert", "", {Span::kMlp, Span::kSharedExpert}},
      {"other", "", {}}};
  return kGroups;
}

size_t group_of(const std::string& name) {
  for (size_t i = 0; i + 1 < groups().size(); ++i) {
    const bool has = std::ranges::any_of(
        groups()[i].spans, [&](base::Span span) { return name == base::span_name(span); });
    if (has) return i;
  }
  return groups().size() - 1;
}

// "LABEL=FILE" or "FILE". A path may have '=' in a directory: a label has no '/'.
std::pair<std::string, std::string> label_and_path(const std::string& argument) {
  const size_t equals = argument.find('=');
  const bool has_label = equals != std::string::npos && equals > 0 &&
                         argument.substr(0, equals).find('/') == std::string::npos;
  if (!has_label || std::filesystem::exists(argument)) return {"", argument};
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

Result<std::vector<Column>> read_columns(const std::vector<std::string>& arguments) {
  std::vector<Column> columns;
  for (const std::string& argument : arguments) {
    const auto [label, path] = label_and_path(argument);
    WIDEEP_TRY_ASSIGN(TraceBreakdown trace, measure::break_down_trace(path));
    const std::string name = label.empty() ? fmt::format("EP {}", trace.num_ranks) : label;
    for (const Column& other : columns) {
      if (other.label != name) continue;
      return invalid_input(
          fmt::format("{} and {} would both be the column \"{}\": name one, as "
                      "LABEL={}",
                      other.path, path, name, path));
    }
    columns.push_back({name, path, std::move(trace)});
  }
  return columns;
}

const SpanTime* find(const std::vector<SpanTime>& times, const std::string& name) {
  const auto found = std::ranges::find(times, name, &SpanTime::name);
  return found == times.end() ? nullptr : &*found;
}

// The names of all columns, in the order in which an iteration has them.
std::vector<std::string> names_of(const std::vector<Column>& columns,
                                  std::vector<SpanTime> TraceBreakdown::* times) {
  std::vector<std::string> names;
  for (const Column& column : columns) {
    for (const SpanTime& each : column.trace.*times) {
      if (std::ranges::find(names, each.name) == names.end()) names.push_back(each.name);
    }
  }
  return names;
}

Chart bars_of(const std::vector<Column>& columns, std::vector<SpanTime> TraceBreakdown::* times) {
  Chart chart{.kind = Chart::kBars, .y_label = "µs of an iteration"};
  chart.categories = names_of(columns, times);
  for (const Column& column : columns) {
    Series series{.name = column.label};
    for (const std::string& name : chart.categories) {
      const SpanTime* time = find(column.trace.*times, name);
      series.y.push_back(time == nullptr ? 0.0 : time->us);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

Table table_of(const std::vector<Column>& columns) {
  Table table{.title = "Own time of each part, µs of an iteration of a rank (least … most rank)",
              .columns = {"part"}};
  for (const Column& column : columns) {
    table.columns.insert(table.columns.end(), {column.label, "least", "most", "share, %"});
  }
  const auto add = [&](std::vector<SpanTime> TraceBreakdown::* times, bool has_share) {
    for (const std::string& name : names_of(columns, times)) {
      std::vector<nlohmann::ordered_json> row = {name};
      for (const Column& column : columns) {
        const SpanTime* time = find(column.trace.*times, name);
        if (time == nullptr) {
          row.insert(row.end(), 4, nullptr);
          continue;
        }
        row.insert(row.end(), {time->us, time->us_low, time->us_high});
        row.push_back(has_share ? nlohmann::ordered_json(100.0 * time->us / column.trace.us())
                                : nlohmann::ordered_json(nullptr));
      }
      table.rows.push_back(std::move(row));
    }
  };
  add(&TraceBreakdown::parts, true);
  std::vector<nlohmann::ordered_json> all = {"all"};
  for (const Column& column : columns)
    all.insert(all.end(), {column.trace.us(), nullptr, nullptr, 100.0});
  table.rows.push_back(std::move(all));
  add(&TraceBreakdown::beside, false);
  return table;
}

std::vector<double> group_times(const Column& column) {
  std::vector<double> times(groups().size(), 0.0);
  for (const SpanTime& part : column.trace.parts) times[group_of(part.name)] += part.us;
  return times;
}

void add_groups(const std::vector<Column>& columns, Figure* figure) {
  Chart chart{.kind = Chart::kLines,
              .title = "The same in groups, over sizes of expert parallelism",
              .y_label = "µs of an iteration"};
  Table table{.title = "From the first trace to the last", .columns = {"group"}};
  for (const Column& column : columns) {
    chart.categories.push_back(column.label);
    table.columns.push_back(column.label + ", µs");
  }
  table.columns.insert(table.columns.end(), {"last / first", "the text says with more EP"});
  for (size_t i = 0; i < groups().size(); ++i) {
    Series series{.name = groups()[i].name};
    for (const Column& column : columns) series.y.push_back(group_times(column)[i]);
    if (std::ranges::all_of(series.y, [](double us) { return us == 0.0; })) continue;
    std::vector<nlohmann::ordered_json> row = {series.name};
    row.insert(row.end(), series.y.begin(), series.y.end());
    const double first = series.y.front();
    row.push_back(first > 0.0 ? nlohmann::ordered_json(series.y.back() / first)
                              : nlohmann::ordered_json(nullptr));
    row.push_back(groups()[i].published[0] == '\0' ? nlohmann::ordered_json(nullptr)
                                                   : nlohmann::ordered_json(groups()[i].published));
    table.rows.push_back(std::move(row));
    chart.series.push_back(std::move(series));
  }
  figure->charts.push_back(std::move(chart));
  figure->tables.push_back(std::move(table));
}

Figure figure_of(const std::vector<Column>& columns) {
  Figure figure{.name = "kernels",
                .title = "Time of each part of an iteration, by expert parallelism",
                .source = "blog 2, figures 1, 3 and 4"};
  figure.charts.push_back(bars_of(columns, &TraceBreakdown::parts));
  figure.charts.back().title = "Parts of the computing thread";
  figure.charts.back().hint = "Without the parts inside them; mean over ranks and iterations.";
  if (!names_of(columns, &TraceBreakdown::beside).empty()) {
    figure.charts.push_back(bars_of(columns, &TraceBreakdown::beside));
    figure.charts.back().title = "Beside the computing thread";
    figure.charts.back().hint =
        "It costs no time of an iteration as long as the computing thread has other work.";
  }
  figure.tables.push_back(table_of(columns));
  if (columns.size() > 1) add_groups(columns, &figure);
  for (const Column& column : columns) {
    figure.notes.push_back(fmt::format(
        "{}: {}, {} ranks, {} iterations{}", column.label, column.path, column.trace.num_ranks,
        column.trace.num_iterations,
        column.trace.num_dropped > 0
            ? fmt::format("; {} spans did not fit into the recorder", column.trace.num_dropped)
            : ""));
  }
  figure.notes.push_back(
      "The text's figures 1, 3 and 4 have no numbers: its words are in the last table.");
  return figure;
}

Status run(const Options& options) {
  WIDEEP_TRY_ASSIGN(const std::vector<Column> columns, read_columns(options.traces));
  return show_figure(figure_of(columns), options.output);
}

}  // namespace

void add_figure_kernels_command(command_line::Command figures, Status* status) {
  const command_line::Command command = figures.add_command(
      "kernels", "Where the time of an iteration goes, from traces of --profile-output");
  auto options = std::make_shared<Options>();
  command
      .add_option("traces", options->traces,
                  "Traces, one for each size of expert parallelism, as FILE or LABEL=FILE "
                  "(default label: EP and the trace's ranks)")
      .path()
      .required();
  add_figure_output(command, &options->output);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
