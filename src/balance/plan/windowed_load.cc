// SPDX-License-Identifier: Apache-2.0
#include "plan/windowed_load.h"

#include <numeric>

namespace wideep::balance {

Windows parts_of_windows(std::span<const std::vector<double>> windows) {
  Windows parts(windows.begin(), windows.end());
  for (std::vector<double>& window : parts) {
    const double total = std::accumulate(window.begin(), window.end(), 0.0);
    const double scale = total > 0.0 ? 1.0 / total : 0.0;
    for (double& tokens : window) tokens *= scale;
  }
  return parts;
}

}  // namespace wideep::balance
