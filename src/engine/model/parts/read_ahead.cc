// SPDX-License-Identifier: Apache-2.0
#include "model/parts/read_ahead.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace wideep::model {
namespace {

// Right reads gain the time in which the disk would be idle, vain ones cost what is left of them
// when somebody waits: about the same.
constexpr double kWorth = 0.6;
// Forgets what is older than a few hundred guesses.
constexpr double kKept = 0.995;
constexpr uint64_t kProbeEvery = 16;

// Rows that are no numbers, because an expert was lost, have no weights.
bool is_guess(float weight) { return std::isfinite(weight) && weight > 0.0F; }

}  // namespace

bool ReadAhead::Record::is_worth_a_read() const { return right >= kWorth * made; }

int ReadAhead::record_of(float weight) {
  return std::clamp(std::ilogb(weight) + 7, 0, kRecords - 1);
}

bool ReadAhead::is_due() {
  return num_calls_++ % kProbeEvery == 0 ||
         std::ranges::any_of(records_, [](const Record& each) { return each.is_worth_a_read(); });
}

void ReadAhead::guess(int layer, std::span<const float> weights) {
  layer_ = layer;
  weights_.assign(weights.begin(), weights.end());
  worth_reading_.clear();
  for (size_t expert = 0; expert < weights_.size(); ++expert) {
    if (!is_guess(weights_[expert])) continue;
    const auto record = static_cast<size_t>(record_of(weights_[expert]));
    if (records_[record].is_worth_a_read()) worth_reading_.push_back(static_cast<int>(expert));
  }
  std::ranges::sort(worth_reading_, [&](int a, int b) {
    const float of_a = weights_[static_cast<size_t>(a)], of_b = weights_[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
}

void ReadAhead::learn(int layer, std::span<const int32_t> counts) {
  worth_reading_.clear();
  if (std::exchange(layer_, -1) != layer) return;
  for (size_t expert = 0; expert < weights_.size(); ++expert) {
    if (!is_guess(weights_[expert])) continue;
    Record& record = records_[static_cast<size_t>(record_of(weights_[expert]))];
    record.made = record.made * kKept + 1.0;
    record.right = record.right * kKept + (counts[expert] > 0 ? 1.0 : 0.0);
  }
}

}  // namespace wideep::model
