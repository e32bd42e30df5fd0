// SPDX-License-Identifier: Apache-2.0
#include "measure/programs/stopwatch.h"

#include <time.h>

#include <algorithm>

namespace wideep::measure {
namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(const std::function<void()>& run) {
  const double start = thread_seconds();
  run();
  return thread_seconds() - start;
}

}  // namespace

std::vector<double> interleaved_medians(const std::vector<std::function<void()>>& runs,
                                        int rounds) {
  for (const auto& run : runs) run();
  std::vector<std::vector<double>> seconds(runs.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < runs.size(); ++i) seconds[i].push_back(seconds_of(runs[i]));
  }
  std::vector<double> medians;
  for (auto& each : seconds) {
    const auto middle = each.begin() + static_cast<std::ptrdiff_t>(each.size() / 2);
    std::nth_element(each.begin(), middle, each.end());
    medians.push_back(*middle);
  }
  return medians;
}

}  // namespace wideep::measure
