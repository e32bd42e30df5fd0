// SPDX-License-Identifier: Apache-2.0
//
// Load by window: how a layer's load changes while it is served. A plan that is balanced for the
// sum of all windows need not be balanced in any of them.
//
// Thread safety: plain values; pure function.
#pragma once

#include <span>
#include <vector>

namespace wideep::balance {

using Windows = std::vector<std::vector<double>>;  // [window][E] tokens

struct WindowedLoad {
  int num_experts = 0;
  int iterations_per_window = 1;
  std::vector<int> layers;    // the model's layer indices, ascending
  std::vector<Windows> load;  // [layer]

  int num_windows() const { return load.empty() ? 0 : static_cast<int>(load[0].size()); }
};

// Tokens of each expert as parts of its window's tokens, [window][E]: every window counts the same.
// Zeros for a window without tokens.
Windows parts_of_windows(std::span<const std::vector<double>> windows);

}  // namespace wideep::balance
