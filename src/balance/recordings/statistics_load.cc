// SPDX-License-Identifier: Apache-2.0
#include "recordings/statistics_load.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::recordings {
namespace {

using balance::ModelLoad;
using balance::WindowedLoad;
using balance::Windows;

void add_iteration(const ExpertStatistics& statistics, int iteration, int layer,
                   std::vector<double>* sum) {
  const std::vector<int64_t> tokens = statistics.iteration_load(iteration, layer);
  for (size_t e = 0; e < tokens.size(); ++e) (*sum)[e] += static_cast<double>(tokens[e]);
}

Windows windows_of_layer(const ExpertStatistics& statistics, int layer, int num_windows,
                         int iterations) {
  const auto experts = static_cast<size_t>(statistics.num_experts);
  Windows windows(static_cast<size_t>(num_windows), std::vector<double>(experts, 0.0));
  for (int i = 0; i < statistics.num_iterations(); ++i) {
    const int window = std::min(i / iterations, num_windows - 1);
    add_iteration(statistics, i, layer, &windows[static_cast<size_t>(window)]);
  }
  return windows;
}

}  // namespace

ModelLoad model_load(const ExpertStatistics& statistics) {
  ModelLoad load{.num_experts = statistics.num_experts, .layers = statistics.layers, .load = {}};
  for (int i = 0; i < statistics.num_layers(); ++i) {
    const std::vector<int64_t> tokens = statistics.layer_load(i);
    load.load.emplace_back(tokens.begin(), tokens.end());
  }
  return load;
}

Result<WindowedLoad> windowed_load(const ExpertStatistics& statistics, int iterations) {
  const int count = statistics.num_iterations();
  if (iterations < 0 || iterations > count) {
    return invalid_input(fmt::format(
        "expected windows of 1 to {} iterations (all recorded), found {}", count, iterations));
  }
  if (iterations == 0) iterations = (count + kMaxWindows - 1) / kMaxWindows;
  // Rounded: a rest of at least half a window becomes one of its own.
  const int num_windows = std::max(1, (count + iterations / 2) / iterations);
  WindowedLoad result{.num_experts = statistics.num_experts,
                      .iterations_per_window = iterations,
                      .layers = statistics.layers,
                      .load = {}};
  for (int layer = 0; layer < statistics.num_layers(); ++layer) {
    result.load.push_back(windows_of_layer(statistics, layer, num_windows, iterations));
  }
  return result;
}

}  // namespace wideep::recordings
