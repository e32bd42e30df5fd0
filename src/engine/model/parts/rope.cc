// SPDX-License-Identifier: Apache-2.0
#include "model/parts/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace wideep::model {
namespace {

// The (fractional) dimension that rotates `rotations` times within the original context (YaRN,
// section 3.2).
double dimension_of_rotations(const RopeConfig& config, int dim, double rotations) {
  const double wave = static_cast<double>(config.original_max_position_embeddings) /
                      (rotations * 2.0 * std::numbers::pi);
  return dim * std::log(wave) / (2.0 * std::log(config.theta));
}

// The weight of the unscaled frequency of pair i: 1 for high frequencies, 0 for low ones, linear in
// between.
double unscaled_share(const RopeConfig& config, int dim, int i) {
  double low = dimension_of_rotations(config, dim, config.beta_fast);
  double high = dimension_of_rotations(config, dim, config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;  // as transformers: no division by zero
  return 1.0 - std::clamp((i - low) / (high - low), 0.0, 1.0);
}

// Long wavelengths are divided by the factor, short ones stay, and those between are in between.
double llama3_frequency(const RopeConfig& config, double base) {
  const double original = static_cast<double>(config.original_max_position_embeddings);
  const double wave = 2.0 * std::numbers::pi / base;
  if (wave < original / config.high_freq_factor) return base;
  if (wave > original / config.low_freq_factor) return base / config.factor;
  const double smooth = (original / wave - config.low_freq_factor) /
                        (config.high_freq_factor - config.low_freq_factor);
  return (1.0 - smooth) * base / config.factor + smooth * base;
}

}  // namespace

Rope::Rope(const RopeConfig& config, int rope_dim)
    : attention_factor_(static_cast<float>(config.attention_factor)),
      interleaved_(config.interleaved) {
  WIDEEP_CHECK(config.divisors.empty() ||
               config.divisors.size() == static_cast<size_t>(rope_dim / 2));
  for (int i = 0; i < rope_dim / 2; ++i) {
    double base = 1.0 / std::pow(config.theta, 2.0 * i / rope_dim);
    if (!config.divisors.empty()) base /= config.divisors[static_cast<size_t>(i)];
    double frequency = base;
    if (config.scaling == RopeConfig::Scaling::kLinear) frequency = base / config.factor;
    // YaRN, "NTK by parts": high frequencies stay, low ones are divided by the factor.
    if (config.scaling == RopeConfig::Scaling::kYarn) {
      const double share = unscaled_share(config, rope_dim, i);
      frequency = base * share + base / config.factor * (1.0 - share);
    }
    if (config.scaling == RopeConfig::Scaling::kLlama3) frequency = llama3_frequency(config, base);
    if (config.rotating_pairs > 0 && i >= config.rotating_pairs) frequency = 0.0;
    inverse_frequencies_.push_back(static_cast<float>(frequency));
  }
}

void Rope::angles(int position, float* cos_sin) const {
  const size_t half = inverse_frequencies_.size();
  for (size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * inverse_frequencies_[i];
    cos_sin[i] = std::cos(angle) * attention_factor_;
    cos_sin[half + i] = std::sin(angle) * attention_factor_;
  }
}

}  // namespace wideep::model
