// SPDX-License-Identifier: Apache-2.0
//
// A lower bound for packing items that cannot be divided into bins that hold the same number of
// items each: experts without replicas onto ranks, groups onto nodes.
//
// Thread safety: pure function.
#pragma once

#include <vector>

namespace wideep::balance {

// A lower bound for the heaviest bin: no way to put n items into num_bins bins with K = n /
// num_bins items each has a smaller maximum bin weight. Items are ≥ 0, in any order; num_bins
// divides n ≥ 1. The result is the largest of these bounds (v: weights descending; light(k): the
// sum of the k lightest items):
//   mean         total / num_bins.
//   pigeonhole   of the m·num_bins + 1 heaviest items some m + 1 share a bin, for any m < K: at
//                least the m + 1 lightest of them and light(K − m − 1).
//   top j        of the j ≤ num_bins heaviest two share a bin: ≥ v_{j−1} + v_j + light(K − 2); or
//                they are in j bins with j·(K − 1) other items, which in the mean weigh
//                (v_1 + … + v_j + light(j·(K − 1))) / j, and the bin with the heaviest of these
//                others weighs ≥ v_j + (the j·(K − 1)-th lightest item) + light(K − 2).
// Exact for K = 1 and K = 2.
double packing_bound(std::vector<double> items, int num_bins);

}  // namespace wideep::balance
