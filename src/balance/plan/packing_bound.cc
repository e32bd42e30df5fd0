// SPDX-License-Identifier: Apache-2.0
#include "plan/packing_bound.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace wideep::balance {
namespace {

struct SortedItems {
  size_t bins, per_bin;
  std::vector<double> weight;  // descending
  std::vector<double> top;     // [n + 1] sums of the heaviest
  std::vector<double> light;   // [n + 1] sums of the lightest

  double lightest(size_t k) const { return weight[weight.size() - k]; }  // the k-th, from 1
};

SortedItems sort_items(std::vector<double> items, int num_bins) {
  std::sort(items.begin(), items.end(), std::greater<>());
  SortedItems sorted{static_cast<size_t>(num_bins),
                     items.size() / static_cast<size_t>(num_bins),
                     std::move(items),
                     {0.0},
                     {0.0}};
  for (size_t i = 0; i < sorted.weight.size(); ++i) {
    sorted.top.push_back(sorted.top.back() + sorted.weight[i]);
    sorted.light.push_back(sorted.light.back() + sorted.lightest(i + 1));
  }
  return sorted;
}

// The bounds and their reasons: packing_bound.h.
double pigeonhole(const SortedItems& items) {
  double bound = 0.0;
  for (size_t m = 0; m < items.per_bin; ++m) {
    const size_t count = m * items.bins + 1;
    const double together = items.top[count] - items.top[count - m - 1];
    bound = std::max(bound, together + items.light[items.per_bin - m - 1]);
  }
  return bound;
}

double top_apart_or_together(const SortedItems& items, size_t j) {
  if (items.per_bin == 1) return items.weight[0];
  const size_t others = j * (items.per_bin - 1);
  const double rest = items.light[items.per_bin - 2];
  const double apart = std::max((items.top[j] + items.light[others]) / static_cast<double>(j),
                                items.weight[j - 1] + items.lightest(others) + rest);
  if (j == 1) return apart;
  return std::min(apart, items.weight[j - 2] + items.weight[j - 1] + rest);
}

}  // namespace

double packing_bound(std::vector<double> items, int num_bins) {
  WIDEEP_CHECK(!items.empty() && items.size() % static_cast<size_t>(num_bins) == 0);
  const SortedItems sorted = sort_items(std::move(items), num_bins);
  double bound = std::max(sorted.top.back() / num_bins, pigeonhole(sorted));
  for (size_t j = 1; j <= sorted.bins; ++j) {
    bound = std::max(bound, top_apart_or_together(sorted, j));
  }
  return bound;
}

}  // namespace wideep::balance
