// SPDX-License-Identifier: Apache-2.0
#include "store/part_cover.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace wideep::store {
namespace {

// Of the payload of `to`: [begin, end).
struct Range {
  uint64_t begin = 0, end = 0;
};
using Ranges = std::vector<Range>;  // in order, with gaps between them

uint64_t total(const Ranges& ranges) {
  uint64_t bytes = 0;
  for (const Range& range : ranges) bytes += range.end - range.begin;
  return bytes;
}

void append(Ranges& ranges, const Range& next) {
  if (!ranges.empty() && next.begin <= ranges.back().end) {
    ranges.back().end = std::max(ranges.back().end, next.end);
  } else {
    ranges.push_back(next);
  }
}

Ranges united(const Ranges& a, const Ranges& b) {
  Ranges all;
  all.reserve(a.size() + b.size());
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const bool takes_a = j == b.size() || (i < a.size() && a[i].begin <= b[j].begin);
    append(all, takes_a ? a[i++] : b[j++]);
  }
  return all;
}

}  // namespace

std::vector<size_t> parts_that_cover(const Part& to, std::span<const Part> from) {
  const uint64_t wanted = to.bytes();
  if (wanted == 0) return {};
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == to) return {i};
  }
  std::vector<Ranges> shared(from.size());
  std::vector<uint64_t> bytes(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    for_each_overlap(from[i], to, [&](const Overlap& overlap) {
      append(shared[i], {overlap.to_at, overlap.to_at + overlap.bytes});
    });
    bytes[i] = total(shared[i]);
  }
  std::vector<size_t> order(from.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Of those that have as much, the smallest: it is read whole.
  std::ranges::sort(order, [&](size_t a, size_t b) {
    if (bytes[a] != bytes[b]) return bytes[a] > bytes[b];
    return std::pair(from[a].bytes(), a) < std::pair(from[b].bytes(), b);
  });
  std::vector<size_t> chosen;
  Ranges covered;
  uint64_t covered_bytes = 0;
  for (const size_t i : order) {
    Ranges more = united(covered, shared[i]);
    const uint64_t with_it = total(more);
    if (with_it == covered_bytes) continue;
    chosen.push_back(i);
    covered = std::move(more);
    covered_bytes = with_it;
    if (covered_bytes == wanted) return chosen;
  }
  return {};
}

}  // namespace wideep::store
