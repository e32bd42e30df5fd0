// SPDX-License-Identifier: Apache-2.0
//
// Loads to measure the balancer on: DeepSeek-V3's recorded ones where WIDEEP_DATA_DIR has them, and
// made-up ones.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <string>
#include <vector>

namespace wideep::measure {

using Load = std::vector<double>;  // [E] tokens of each expert of a layer

struct Window {
  std::string name;
  std::vector<Load> layers;
};

// Eight recordings of 58 layers × 256 experts, by name; none where WIDEEP_DATA_DIR lacks them.
std::vector<Window> deepseek_windows();

// Made up, in the place of the recordings: 58 × 256, which drift by 6 and 17 % from one another.
std::vector<Window> lognormal_windows();

// What a planner may meet at worst: one hot expert, ties, no load, Zipf, huge counts, ...
std::vector<Load> extreme_loads(int num_experts);

// Half the sum of differences of the experts' parts of all tokens, in per cent, mean of layers.
double total_variation(const Window& a, const Window& b);

// A load that has changed: planned for `from`, served with `to`.
struct Drift {
  Window from;
  Window to;
};

// All ordered pairs of windows whose total variation is low … high per cent.
std::vector<Drift> drifts_between(const std::vector<Window>& windows, double low, double high);

// Half of the way: `to` becomes the mean of both windows, each with the same number of tokens, so
// that the total variation halves.
Drift halfway(const Drift& drift);

}  // namespace wideep::measure
