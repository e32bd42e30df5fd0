// SPDX-License-Identifier: Apache-2.0
//
// What fetching from a place takes, as measured: until the first byte, and per byte. The last few
// fetches count most.
//
// A price that was measured to be worse than expected is forgotten by and by: nothing is fetched
// from a place that seems dear, so that it would never be measured again.
//
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace wideep::store {

struct PlacePrice {
  double latency_seconds = 0.0;
  double seconds_per_byte = 0.0;
};

// One fetch of one or more records.
struct FetchTimes {
  double first_seconds = 0.0, last_seconds = 0.0;  // until the first and the last were there
  uint64_t first_bytes = 0, bytes = 0;             // of the first and of all
};

class FetchPrice {
 public:
  // expected: before anything is measured.
  explicit FetchPrice(const PlacePrice& expected) : expected_(expected), measured_(expected) {}

  // now: seconds of a steady clock. REQUIRES: bytes > 0.
  void measured(const FetchTimes& times, double now) {
    PlacePrice sample = measured_;
    if (times.bytes > times.first_bytes) {
      sample.seconds_per_byte = (times.last_seconds - times.first_seconds) /
                                static_cast<double>(times.bytes - times.first_bytes);
    }
    const auto first_bytes = static_cast<double>(times.first_bytes);
    // One record alone says little of either; it never takes less than its bytes.
    sample.seconds_per_byte = std::min(sample.seconds_per_byte, times.first_seconds / first_bytes);
    sample.latency_seconds = times.first_seconds - first_bytes * sample.seconds_per_byte;
    const double share = is_measured_ ? kShare : 1.0;
    measured_.latency_seconds += share * (sample.latency_seconds - measured_.latency_seconds);
    measured_.seconds_per_byte += share * (sample.seconds_per_byte - measured_.seconds_per_byte);
    is_measured_ = true;
    measured_at_ = now;
  }

  PlacePrice at(double now) const {
    const double left = std::exp2(-(now - measured_at_) / kHalfLife);
    const auto price = [&](double expected, double measured) {
      return measured > expected ? expected + left * (measured - expected) : measured;
    };
    return {price(expected_.latency_seconds, measured_.latency_seconds),
            price(expected_.seconds_per_byte, measured_.seconds_per_byte)};
  }

 private:
  static constexpr double kShare = 0.3;      // of the last fetch
  static constexpr double kHalfLife = 60.0;  // seconds, of what is worse than expected

  PlacePrice expected_, measured_;
  double measured_at_ = 0.0;
  bool is_measured_ = false;
};

}  // namespace wideep::store
