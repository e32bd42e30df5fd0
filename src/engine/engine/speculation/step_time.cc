// SPDX-License-Identifier: Apache-2.0
//
// The number of distinct experts is computed for powers of two only and interpolated between them:
// by repeated squaring of (1 − p_e) all points cost one pass over the experts.
//
// The fit forgets only in the direction of what was just observed. Usual forgetting would lose what
// larger steps cost while only small ones run, and the next guess for them would be wild. The first
// observation scales the prior: shares of a step's time are known from the sizes of weights, the
// speed of the machine is not.
#include "engine/speculation/step_time.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace wideep::engine {
namespace {

constexpr double kKeptLoad = 0.9;     // of the loads, at each update()
constexpr double kForgetting = 0.98;  // an observation counts for half after 34 more
// How uncertain the first parameters are, as a multiple of the noise of a measurement: a token's
// own price less, since it is small.
constexpr double kVariances[] = {1.0, 1.0, 0.1, 1.0};
// The first price of a miss, in reads of an expert from memory: NVMe disks read 3 to 7 GB/s, memory
// that a few cores use 20 to 80.
constexpr double kFirstMissPrice = 10.0;
// Of the last step, in the mean share of misses: about ten steps count.
constexpr double kLastShare = 0.1;
// Other work on the machine makes single steps long; they count as this much of what is expected.
constexpr double kLongest = 2.0;

}  // namespace

// ---- experts ----

ExpertSpread::ExpertSpread(int num_experts, int top_k) : num_experts_(num_experts), top_k_(top_k) {
  WIDEEP_CHECK(top_k >= 1 && top_k <= num_experts);
  update();
}

void ExpertSpread::add(int layer, std::span<const int32_t> counts) {
  const auto index = static_cast<size_t>(layer);
  if (loads_.size() <= index) loads_.resize(index + 1);
  loads_[index].resize(static_cast<size_t>(num_experts_));
  for (size_t e = 0; e < loads_[index].size(); ++e) loads_[index][e] += counts[e];
}

// A token chooses expert e with probability p_e, top_k · load_e / Σ load; N tokens leave it out
// with (1 − p_e)^N.
void ExpertSpread::update() {
  std::array<double, kPoints> sums = {};
  double layers = 0;
  const auto add_layer = [&](auto probability) {
    ++layers;
    for (int e = 0; e < num_experts_; ++e) {
      double left_out = 1.0 - std::min(probability(e), 1.0);
      for (double& sum : sums) {
        sum += 1.0 - left_out;
        left_out *= left_out;
      }
    }
  };
  for (std::vector<double>& loads : loads_) {
    double all = 0;
    for (const double load : loads) all += load;
    if (all > 0) {
      add_layer([&](int e) { return top_k_ * loads[static_cast<size_t>(e)] / all; });
    }
    for (double& load : loads) load *= kKeptLoad;
  }
  if (layers == 0) {
    add_layer([&](int) { return static_cast<double>(top_k_) / num_experts_; });
  }
  for (size_t i = 0; i < sums.size(); ++i) curve_[i] = sums[i] / layers;
}

double ExpertSpread::distinct(int tokens) const {
  if (tokens <= 0) return 0.0;
  const double at = std::min(std::log2(static_cast<double>(tokens)), kPoints - 1.0);
  const auto before = std::min(static_cast<size_t>(at), curve_.size() - 2);
  // Between two points the curve is nearly linear in the number of tokens.
  const double first = std::exp2(static_cast<double>(before));
  const double share = std::min(static_cast<double>(tokens) / first - 1.0, 1.0);
  return curve_[before] + share * (curve_[before + 1] - curve_[before]);
}

// ---- time ----

StepTime::StepTime(const ExpertSpread& spread, const StepTimeOptions& options)
    : spread_(spread), options_(options) {}

// In units in which one token has the features 1, 1, 1 and its misses as a share of its experts.
// With all in memory the last one is 0, and the others are fitted as if there were no such thing.
StepTime::Vector StepTime::features(int tokens, double misses) const {
  const double one = spread_.distinct(1);
  return {1.0, spread_.distinct(tokens) / one, static_cast<double>(tokens), misses / one};
}

void StepTime::observe(int tokens, double seconds, double misses) {
  if (tokens <= 0 || seconds <= 0) return;
  const Vector x = features(tokens, misses);
  const double share = misses / spread_.distinct(tokens);
  miss_share_ += (has_observed() ? kLastShare : 1.0) * (share - miss_share_);
  if (num_observed_++ == 0) {
    const double dense = options_.dense_share, each = options_.token_share;
    const Vector shares = {dense, 1.0 - dense, each, kFirstMissPrice * (1.0 - dense)};
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += shares[i] * x[i];
    const double scale = seconds / sum;
    for (size_t i = 0; i < x.size(); ++i) {
      parameters_[i] = shares[i] * scale;
      covariance_[i][i] = kVariances[i];
    }
    return;
  }
  Vector px = {};
  double expected = 0, xpx = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) px[i] += covariance_[i][j] * x[j];
    expected += parameters_[i] * x[i];
    xpx += x[i] * px[i];
  }
  const double longest = expected > 0 ? kLongest * expected : seconds;
  const double error = std::min(seconds, longest) - expected;
  for (size_t i = 0; i < x.size(); ++i) parameters_[i] += px[i] / (1.0 + xpx) * error;
  // Forgetting in the direction that was observed alone: what is known of others stays.
  const double beta = kForgetting - (1.0 - kForgetting) / xpx;
  if (beta == 0.0) return;
  const double scale = 1.0 / (1.0 / beta + xpx);
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) covariance_[i][j] -= px[i] * px[j] * scale;
  }
}

// Never less than for one token, whatever the fit says about what was not observed.
double StepTime::predict(int tokens) const {
  WIDEEP_CHECK(has_observed());
  double time = 0, min = 0;
  const auto expected = [&](int size) {
    return features(size, miss_share_ * spread_.distinct(size));
  };
  const Vector x = expected(tokens), one = expected(1);
  for (size_t i = 0; i < x.size(); ++i) {
    time += parameters_[i] * x[i];
    min += parameters_[i] * one[i];
  }
  return std::max({time, min, 1e-9});
}

}  // namespace wideep::engine
