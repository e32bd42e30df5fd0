// SPDX-License-Identifier: Apache-2.0
//
// Loads to measure the balancer on: recorded ones of DeepSeek-V3 if WIDEEP_DATA_DIR has them, and
// synthetic ones.
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

// Eight recordings of 58 layers × 256 experts, by name; empty if WIDEEP_DATA_DIR does not have
// them.
std::vector<Window> deepseek_windows();

// Synthetic windows to use instead of the recordings: 58 × 256, which differ by 6 and 17 %
// (total_variation).
std::vector<Window> lognormal_windows();

// The hardest inputs of a planner: one hot expert, ties, no load, Zipf, huge counts, ...
std::vector<Load> extreme_loads(int num_experts);

// Total variation distance in per cent, mean over layers: half the sum over experts of the absolute
// difference of their shares of the tokens.
double total_variation(const Window& a, const Window& b);

// A load that has changed: planned for `from`, served with `to`.
struct Drift {
  Window from;
  Window to;
};

// All ordered pairs of windows with a total variation between low and high per cent.
std::vector<Drift> drifts_between(const std::vector<Window>& windows, double low, double high);

// Half the drift: `to` becomes the mean of both windows, scaled to the same number of tokens, so
// that the total variation is halved.
Drift halfway(const Drift& drift);

}  // namespace wideep::measure
