// SPDX-License-Identifier: Apache-2.0
//
// The page gets sums, not the log: windows of 1, 2, 5, 10, … iterations, as many as a screen can
// show, and longer ones for the numbers from rank to rank, which are R² for each layer. Windows
// begin at multiples of their length, so that those of two runs lie beside each other.
#include "recordings/routing_picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "formats/page.h"
#include "recordings/routing_summary.h"
#include "recordings/shown_moves.h"

namespace wideep::recordings {
namespace {

using nlohmann::ordered_json;
using Grid = std::vector<std::vector<int64_t>>;

ordered_json optional_number(std::optional<double> value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json to_json(const RoutingImbalance& imbalance) {
  return {{"average", imbalance.average},
          {"prompt", optional_number(imbalance.prompt)},
          {"generation", optional_number(imbalance.generation)},
          {"weighted", imbalance.weighted}};
}

// 1, 2, 5, 10, 20, ... iterations, so that `span` of them make at most `most` windows.
int64_t window_size(int64_t span, int64_t max) {
  int64_t decade = 1;
  while (true) {
    for (const int64_t factor : {1, 2, 5}) {
      if (span <= factor * decade * max) return factor * decade;
    }
    decade *= 10;
  }
}

int64_t iterations_spanned(const RoutingLog& log) {
  return int64_t{log.iterations.back().iteration} - log.iterations.front().iteration + 1;
}

// Both runs use the same windows, so that their heat maps are comparable.
int64_t window_size(const Picture& picture, int64_t max) {
  const int64_t before = iterations_spanned(picture.before.log);
  const int64_t after = picture.after ? iterations_spanned(picture.after->log) : 0;
  return window_size(std::max(before, after), max);
}

template <typename T>
void add_to(std::vector<int64_t>* sums, const std::vector<T>& row) {
  sums->resize(row.size(), 0);
  for (size_t i = 0; i < row.size(); ++i) (*sums)[i] += row[i];
}

// The pairs of each expert, [L][E], by the first iteration of the window.
ordered_json windows_json(const RoutingLog& log, int64_t size) {
  std::map<int64_t, Grid> windows;
  for (const RoutingLog::Iteration& iteration : log.iterations) {
    // Windows begin at multiples of their size, not at the first iteration, so those of two runs
    // align.
    Grid& grid = windows[iteration.iteration / size * size];
    grid.resize(log.layers.size());
    for (size_t layer = 0; layer < grid.size(); ++layer) {
      for (const auto& row : iteration.counts[layer]) add_to(&grid[layer], row);
    }
  }
  ordered_json list = ordered_json::array();
  for (const auto& [start, grid] : windows) list.push_back({{"start", start}, {"experts", grid}});
  return list;
}

// How many windows of [L][R][R] the page has room for.
int64_t max_sent_windows(const RoutingLog& log) {
  const int64_t cells =
      int64_t{log.ep_size} * log.ep_size * static_cast<int64_t>(log.layers.size());
  return std::clamp<int64_t>(kMaxPictureSent / cells, 1, kMaxPictureWindows);
}

// [L][R][R], by the first iteration of the window.
ordered_json sent_json(const RoutingLog& log, int64_t size) {
  std::map<int64_t, std::vector<Grid>> windows;
  for (const RoutingLog::Iteration& iteration : log.iterations) {
    std::vector<Grid>& sums = windows[iteration.iteration / size * size];
    sums.resize(log.layers.size(), Grid(static_cast<size_t>(log.ep_size)));
    for (size_t layer = 0; layer < sums.size(); ++layer) {
      for (size_t rank = 0; rank < sums[layer].size(); ++rank) {
        add_to(&sums[layer][rank], iteration.sent[layer][rank]);
      }
    }
  }
  ordered_json list = ordered_json::array();
  for (const auto& [start, sent] : windows) list.push_back({{"start", start}, {"sent", sent}});
  return list;
}

ordered_json moves_json(const RoutingLog& log) {
  ordered_json list = ordered_json::array();
  for (const ShownMove& move : shown_moves(log, kMaxPictureMoves, kPictureAroundMove)) {
    ordered_json phases = ordered_json::array();
    for (const ShownMove::Phase& phase : move.phases) {
      phases.push_back({{"first", phase.first},
                        {"last", phase.last},
                        {"iterations", phase.num_recorded},
                        {"sent", phase.sent}});
    }
    list.push_back({{"layer", move.layer_idx},
                    {"decided", move.decided},
                    {"switched", move.switched},
                    {"moves", move.moves},
                    {"phases", std::move(phases)}});
  }
  return list;
}

ordered_json iterations_json(const RoutingLog& log) {
  ordered_json list = ordered_json::array();
  for (const RoutingLog::Iteration& iteration : log.iterations) {
    Grid received;
    for (size_t layer = 0; layer < log.layers.size(); ++layer) {
      received.push_back(received_pairs(iteration, layer));
    }
    list.push_back({{"iteration", iteration.iteration},
                    {"prompt_tokens", iteration.prompt_tokens},
                    {"generated_tokens", iteration.generated_tokens},
                    {"received", received}});
  }
  return list;
}

ordered_json requests_json(const RoutingLog& log) {
  ordered_json list = ordered_json::array();
  const size_t shown = std::min(log.requests.size(), kMaxPictureRequests);
  for (size_t i = 0; i < shown; ++i) {
    list.push_back({{"label", log.requests[i]}, {"counts", log.request_counts[i]}});
  }
  return list;
}

ordered_json summary_json(const RoutingLog& log) {
  const RoutingSummary summary = summarize_routing(log);
  ordered_json layers = ordered_json::array();
  for (const RoutingImbalance& layer : summary.layers) layers.push_back(to_json(layer));
  return {{"layers", layers},
          {"mean", to_json(summary.mean)},
          {"layer_critical_path_ms", summary.critical_path_ms},
          {"prompt_tokens", summary.prompt_tokens},
          {"generated_tokens", summary.generated_tokens},
          {"critical_path_ms", log.critical_path_ms},
          {"tokens_per_second", log.tokens_per_second},
          {"wall_ms", log.wall_ms}};
}

ordered_json run_json(const PictureRun& run, int64_t window, int64_t sent_window) {
  const RoutingLog& log = run.log;
  return {{"file", run.file},
          {"name", run.name},
          {"model", log.model},
          {"ep_size", log.ep_size},
          {"num_experts", log.num_experts},
          {"num_slots", log.num_slots},
          {"top_k", log.top_k},
          {"layers", log.layers},
          {"summary", summary_json(log)},
          {"iterations", iterations_json(log)},
          {"sent", sent_json(log, sent_window)},
          {"moves", moves_json(log)},
          {"windows", windows_json(log, window)},
          {"num_requests", log.requests.size()},
          {"requests", requests_json(log)}};
}

std::string title_of(const Picture& picture) {
  if (!picture.title.empty()) return picture.title;
  const std::string& model = picture.before.log.model;
  return "Expert load" + (model.empty() ? "" : " of " + model);
}

Status different(const PictureRun& before, const PictureRun& after, const char* key,
                 const auto& expected, const auto& found) {
  return invalid_input(
      fmt::format("{}: {}: expected {} as in {}, found {}; compare runs of one model with one "
                  "number of ranks",
                  after.file, key, expected, before.file, found));
}

std::string summary_line(const char* what, const Picture& picture, auto value_of) {
  std::string line = fmt::format("{:<34}{:>14}", what, value_of(picture.before.log));
  if (picture.after) line += fmt::format("{:>14}", value_of(picture.after->log));
  return line + "\n";
}

}  // namespace

Status check_comparable(const PictureRun& before, const PictureRun& after) {
  const RoutingLog& a = before.log;
  const RoutingLog& b = after.log;
  if (a.ep_size != b.ep_size) return different(before, after, "ep_size", a.ep_size, b.ep_size);
  if (a.num_experts != b.num_experts) {
    return different(before, after, "num_experts", a.num_experts, b.num_experts);
  }
  if (a.top_k != b.top_k) return different(before, after, "top_k", a.top_k, b.top_k);
  if (a.layers == b.layers) return {};
  return different(before, after, "layers", fmt::format("[{}]", fmt::join(a.layers, ", ")),
                   fmt::format("[{}]", fmt::join(b.layers, ", ")));
}

std::string picture_summary(const Picture& picture) {
  std::string text =
      fmt::format("{:<34}{:>14}{}\n", "", picture.after ? picture.before.name : "run",
                  picture.after ? fmt::format("{:>14}", picture.after->name) : "");
  const auto add = [&](const char* what, auto value_of) {
    text += summary_line(what, picture, value_of);
  };
  add("imbalance ratio, mean", [](const RoutingLog& log) {
    return fmt::format("{:.3f}", summarize_routing(log).mean.average);
  });
  add("imbalance ratio, by tokens", [](const RoutingLog& log) {
    return fmt::format("{:.3f}", summarize_routing(log).mean.weighted);
  });
  add("critical path of the experts, ms",
      [](const RoutingLog& log) { return fmt::format("{:.1f}", log.critical_path_ms); });
  add("generated tokens/s",
      [](const RoutingLog& log) { return fmt::format("{:.1f}", log.tokens_per_second); });
  add("wall time, ms", [](const RoutingLog& log) { return fmt::format("{:.1f}", log.wall_ms); });
  add("slots per layer", [](const RoutingLog& log) { return fmt::format("{}", log.num_slots); });
  return text;
}

std::string picture_data(const Picture& picture) {
  const int64_t window = window_size(picture, kMaxPictureWindows);
  const int64_t sent_window = window_size(picture, max_sent_windows(picture.before.log));
  ordered_json runs = ordered_json::array();
  runs.push_back(run_json(picture.before, window, sent_window));
  if (picture.after) runs.push_back(run_json(*picture.after, window, sent_window));
  const ordered_json root = {{"title", title_of(picture)},
                             {"window", window},
                             {"sent_window", sent_window},
                             {"runs", runs}};
  return formats::script_json(root);
}

std::string fill_page(std::string_view page, const Picture& picture) {
  return formats::fill_marks(page, {{"TITLE", formats::escape_html(title_of(picture))},
                                    {"SUMMARY", formats::escape_html(picture_summary(picture))},
                                    {"DATA", picture_data(picture)}});
}

}  // namespace wideep::recordings
