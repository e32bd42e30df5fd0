// SPDX-License-Identifier: Apache-2.0
//
// How often an expert that the router chooses is in memory, by the share of the experts that are:
// of a model larger than memory.
//
// Measured curves come from `wideep balance cache`'s judges (residency/hit_rates.h). Without
// statistics of the model two recorded traces stand for it, held out, with wideep's policy:
// DeepSeek-V2-Lite's (64 experts, top 6) is what is expected, because its router is the less skewed
// one, and gpt-oss-20b's (32 experts, top 4) the upper bound. The lower bound of any policy is a
// uniform router's: the share itself.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace wideep::advise {

struct HitRatePoint {
  double share = 0.0;  // of the experts in memory
  double rate = 0.0;   // of reads from memory
};

struct HitRateCurve {
  std::string source;                // for people: what it was measured on
  std::vector<HitRatePoint> points;  // by rising share, between 0 and 1

  // Between two points, and from nothing in memory to all of it, in proportion.
  double at(double share) const;
};

struct HitRates {
  HitRateCurve expected;
  std::optional<HitRateCurve> upper;  // nothing: the model's own statistics say what is expected
};

// The shares at which curves are measured.
const std::vector<double>& curve_shares();

// Of the recorded traces. tokens: of an iteration, each of another request; measured with 1, 8 and
// 32, between them in proportion to the logarithm. More hit as 32 do, which is too often: many
// tokens choose nearly all experts, and then no policy hits more than the share.
HitRates recorded_hit_rates(double tokens);

}  // namespace wideep::advise
