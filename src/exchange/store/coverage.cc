// SPDX-License-Identifier: Apache-2.0
#include "store/coverage.h"

#include <algorithm>

namespace wideep::store {
namespace {

using Range = std::pair<uint64_t, uint64_t>;

void append_range(std::vector<Range>& ranges, const Range& range) {
  if (!ranges.empty() && range.first <= ranges.back().second) {
    ranges.back().second = std::max(ranges.back().second, range.second);
  } else {
    ranges.push_back(range);
  }
}

// What `part` has of the wanted payload, as copy_overlap() finds it.
std::vector<Range> overlap(const Part& part, const Part& wanted) {
  std::vector<Range> ranges;
  for (uint64_t i = 0; i < wanted.count; ++i) {
    const uint64_t begin = wanted.first + i * wanted.stride;
    const uint64_t end = begin + wanted.length;
    uint64_t j = begin <= part.first || part.stride == 0 ? 0 : (begin - part.first) / part.stride;
    for (; j < part.count; ++j) {
      const uint64_t piece = part.first + j * part.stride;
      if (piece >= end) break;
      const uint64_t low = std::max(begin, piece);
      const uint64_t high = std::min(end, piece + part.length);
      const uint64_t at = i * wanted.length;
      if (low < high) append_range(ranges, {at + low - begin, at + high - begin});
    }
  }
  return ranges;
}

}  // namespace

uint64_t Coverage::add(const Part& part) {
  if (is_whole()) return 0;
  const std::vector<Range> more =
      part == wanted_ ? std::vector<Range>{{0, wanted_.bytes()}} : overlap(part, wanted_);
  std::vector<Range> sorted(ranges_.size() + more.size());
  std::merge(ranges_.begin(), ranges_.end(), more.begin(), more.end(), sorted.begin());
  ranges_.clear();
  uint64_t covered = 0;
  for (const Range& range : sorted) append_range(ranges_, range);
  for (const Range& range : ranges_) covered += range.second - range.first;
  return covered - std::exchange(covered_, covered);
}

}  // namespace wideep::store
