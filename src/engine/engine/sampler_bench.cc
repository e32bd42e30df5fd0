// SPDX-License-Identifier: Apache-2.0
//
// What a row costs to sample, greedy, over 200,000 logits: as it is, and with a part of the tokens
// allowed, of which the likeliest is none, so that the likeliest allowed one has to be found.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "engine/sampler.h"
#include "kernels/kernels.h"

namespace wideep::engine {
namespace {

constexpr size_t kVocab = 200'000;

const std::vector<float>& logits() {
  static const std::vector<float> kLogits = [] {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    std::vector<float> values(kVocab);
    for (float& each : values) each = normal(rng);
    return values;
  }();
  return kLogits;
}

// per_mille: allowed tokens; 1001: no mask at all.
void BM_SampleGreedy(benchmark::State& state) {
  const auto per_mille = static_cast<uint64_t>(state.range(0));
  const kernels::Kernels& kernels = *kernels::select_kernels(nullptr).value();
  std::vector<uint64_t> bits((kVocab + 63) / 64);
  std::mt19937_64 rng(2);
  for (size_t i = 0; i < kVocab; ++i) {
    if (rng() % 1000 < per_mille) bits[i / 64] |= uint64_t{1} << (i % 64);
  }
  const AllowedTokens allowed{.has = [](int32_t) { return false; },
                              .bits = [&]() -> std::span<const uint64_t> { return bits; }};
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        sample(kernels, logits(), {}, {}, per_mille > 1000 ? nullptr : &allowed));
  }
}
BENCHMARK(BM_SampleGreedy)->Arg(1001)->Arg(970)->Arg(500)->Arg(10)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace wideep::engine
