// SPDX-License-Identifier: Apache-2.0
#include "recordings/held_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/try.h"

namespace wideep::recordings {
namespace {

Status another_layer(int layer, const char* where) {
  return invalid_input(fmt::format(
      "layer {} is in {} only, expected statistics of the same MoE layers", layer, where));
}

}  // namespace

Result<HeldOut> hold_out_last(const ExpertStatistics& statistics, double fraction) {
  if (!(fraction > 0.0 && fraction < 1.0)) {
    return invalid_input(
        fmt::format("expected a fraction of the iterations between 0 and 1, found {}", fraction));
  }
  const int count = statistics.num_iterations();
  if (count < 2) {
    return invalid_input(
        "expected at least 2 iterations, of which the last are held out, found 1; give a second "
        "statistics file instead of a fraction");
  }
  const int wanted = static_cast<int>(std::lround(fraction * count));
  const int cut = statistics.iter_stop - std::clamp(wanted, 1, count - 1);
  HeldOut held_out;
  WIDEEP_TRY_ASSIGN(held_out.earlier, select_iterations(statistics, {}, cut));
  WIDEEP_TRY_ASSIGN(held_out.later, select_iterations(statistics, cut, {}));
  return held_out;
}

Status check_same_experts(const ExpertStatistics& expected, const ExpertStatistics& found) {
  if (expected.num_experts != found.num_experts) {
    return invalid_input(
        fmt::format("expected {} experts as in the statistics planned on, found {}",
                    expected.num_experts, found.num_experts));
  }
  std::vector<int> only_expected, only_found;
  std::set_difference(expected.layers.begin(), expected.layers.end(), found.layers.begin(),
                      found.layers.end(), std::back_inserter(only_expected));
  std::set_difference(found.layers.begin(), found.layers.end(), expected.layers.begin(),
                      expected.layers.end(), std::back_inserter(only_found));
  if (!only_expected.empty()) {
    return another_layer(only_expected[0], "the statistics planned on");
  }
  return only_found.empty() ? Status() : another_layer(only_found[0], "the held-out statistics");
}

}  // namespace wideep::recordings
