// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace wideep::residency {

// What a rank has done with the experts of a layer that it has, where not all are in memory, since
// it has opened them. A plain value.
struct ResidencyCounts {
  int64_t chosen = 0;        // experts of layer calls that had rows
  int64_t hits = 0;          // of them, were in memory because they stay there
  int64_t expected = 0;      // of them, were read ahead, or were being read
  int64_t read_in_vain = 0;  // were expected and not chosen
  int64_t waited_ns = 0;     // for those that had to be read, with nothing to compute
  int64_t lost = 0;          // of those, could not be read
  int64_t came = 0;          // to stay in memory; less num_resident: have left
  int num_resident = 0;      // now
};

inline ResidencyCounts& operator+=(ResidencyCounts& sum, const ResidencyCounts& each) {
  sum.chosen += each.chosen;
  sum.hits += each.hits;
  sum.expected += each.expected;
  sum.read_in_vain += each.read_in_vain;
  sum.waited_ns += each.waited_ns;
  sum.lost += each.lost;
  sum.came += each.came;
  sum.num_resident += each.num_resident;
  return sum;
}

// What has been added to counts of a process since `before`.
inline ResidencyCounts operator-(ResidencyCounts now, const ResidencyCounts& before) {
  now.chosen -= before.chosen;
  now.hits -= before.hits;
  now.expected -= before.expected;
  now.read_in_vain -= before.read_in_vain;
  now.waited_ns -= before.waited_ns;
  now.lost -= before.lost;
  now.came -= before.came;
  now.num_resident -= before.num_resident;
  return now;
}

}  // namespace wideep::residency
