// SPDX-License-Identifier: Apache-2.0
//
// Where recordings are not at hand, lognormal loads stand in, of the same size and with a smaller
// and a larger drift. Seeds follow from the layer, so every program and every run plans the same
// loads. The extreme ones are empty, all ties, or huge and uneven: what a planner must survive.
#include "measure/programs/loads.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>

#include "recordings/statistics_reader.h"

namespace wideep::measure {
namespace {

double sum(const Load& load) { return std::accumulate(load.begin(), load.end(), 0.0); }

Window read_window(const std::filesystem::path& file) {
  const recordings::ExpertStatistics statistics =
      recordings::read_statistics(file.string()).value();
  Window window{.name = file.stem().string(), .layers = {}};
  for (int i = 0; i < statistics.num_layers(); ++i) {
    const std::vector<int64_t> load = statistics.layer_load(i);
    window.layers.emplace_back(load.begin(), load.end());
  }
  return window;
}

// Tokens of experts with normally distributed logarithms.
Load lognormal_load(int num_experts, double sigma, unsigned seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> tokens(8.0, sigma);
  Load load(static_cast<size_t>(num_experts));
  for (double& each : load) each = std::floor(tokens(random));
  return load;
}

// The same load with each expert's tokens multiplied by a lognormal factor.
Load drifted(const Load& load, double sigma, unsigned seed) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> factor(0.0, sigma);
  Load result = load;
  for (double& each : result) each = std::floor(each * factor(random));
  return result;
}

}  // namespace

std::vector<Window> deepseek_windows() {
  std::vector<Window> windows;
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  const std::string folder = std::string(data ? data : "") + "/expert_load_deepseek_v3";
  if (data == nullptr || !std::filesystem::exists(folder)) return windows;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") windows.push_back(read_window(entry.path()));
  }
  std::sort(windows.begin(), windows.end(),
            [](const Window& a, const Window& b) { return a.name < b.name; });
  return windows;
}

std::vector<Window> lognormal_windows() {
  constexpr int kLayers = 58, kExperts = 256;
  std::vector<Window> windows(4);
  for (unsigned layer = 0; layer < kLayers; ++layer) {
    const Load load = lognormal_load(kExperts, 0.7, layer);
    windows[0].layers.push_back(load);
    // Total variation is about 0.4 times the factors' standard deviation.
    windows[1].layers.push_back(drifted(load, 0.15, 1000 + layer));
    windows[2].layers.push_back(drifted(load, 0.43, 2000 + layer));
    windows[3].layers.push_back(lognormal_load(kExperts, 0.7, 3000 + layer));
  }
  for (size_t i = 0; i < windows.size(); ++i) windows[i].name = "made-up-" + std::to_string(i);
  return windows;
}

std::vector<Load> extreme_loads(int num_experts) {
  const auto experts = static_cast<size_t>(num_experts);
  std::vector<Load> loads = {Load(experts, 0.0), Load(experts, 7.0), Load(experts, 1.0)};
  loads[2][experts / 2] = 1e15;  // one hot expert, huge counts
  Load& one = loads.emplace_back(experts, 0.0);
  one[0] = 12.0;
  Load& idle = loads.emplace_back(lognormal_load(num_experts, 0.7, 1));
  std::fill_n(idle.begin(), experts * 2 / 3, 0.0);
  Load& zipf = loads.emplace_back();
  for (size_t e = 0; e < experts; ++e) zipf.push_back(1e9 / static_cast<double>(e + 1));
  Load& powers = loads.emplace_back();
  for (size_t e = 0; e < experts; ++e) powers.push_back(std::exp2(static_cast<double>(e % 50)));
  for (const double sigma : {1.0, 2.0, 3.0}) {
    loads.push_back(lognormal_load(num_experts, sigma, 2));
  }
  return loads;
}

double total_variation(const Window& a, const Window& b) {
  double difference = 0.0;
  for (size_t layer = 0; layer < a.layers.size(); ++layer) {
    const double sum_a = sum(a.layers[layer]), sum_b = sum(b.layers[layer]);
    for (size_t e = 0; e < a.layers[layer].size(); ++e) {
      difference += std::abs(a.layers[layer][e] / sum_a - b.layers[layer][e] / sum_b);
    }
  }
  return 50.0 * difference / static_cast<double>(a.layers.size());
}

std::vector<Drift> drifts_between(const std::vector<Window>& windows, double low, double high) {
  std::vector<Drift> drifts;
  for (const Window& from : windows) {
    for (const Window& to : windows) {
      const double found = total_variation(from, to);
      if (&from != &to && found >= low && found <= high) drifts.push_back({from, to});
    }
  }
  return drifts;
}

Drift halfway(const Drift& drift) {
  Drift half = drift;
  for (size_t layer = 0; layer < half.to.layers.size(); ++layer) {
    const double scale = sum(drift.to.layers[layer]) / sum(drift.from.layers[layer]);
    for (size_t e = 0; e < half.to.layers[layer].size(); ++e) {
      double& tokens = half.to.layers[layer][e];
      tokens = 0.5 * (tokens + scale * drift.from.layers[layer][e]);
    }
  }
  return half;
}

}  // namespace wideep::measure
