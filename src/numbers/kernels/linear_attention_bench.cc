// SPDX-License-Identifier: Apache-2.0
//
// The kernels of models with linear attention and of sparse attention, on each instruction set:
// medians of processor time.
//
//   delta_rule    32 value heads of 128 × 128 (Qwen3-Next), `tokens` per call; ns per token of all
//                 heads. of_peak: of the register loop's multiply-adds, three per element of the
//                 state (Sᵀ k, the update, Sᵀ q; the decay is not counted). of_memory: of the
//                 speed at which a loop reads, scales and writes the states once a token
//   channel_decay the same with a decay for each channel of the key (Kimi-Linear), which makes four
//                 operations per element for of_peak
//   state_space   64 heads of 128 × 64 (Nemotron-3 Nano), 8 heads share b and c; ns per token of all
//                 heads. of_peak: three operations per element (the decay, the update, Sᵀ c)
//   convolution   8192 channels, width 4, with SiLU (Qwen3-Next); ns per token
//   index_scores  64 heads of 128 (DeepSeek-V3.2) over `positions` cached keys in bf16, one token
//   select_top    2048 of `positions` scores; the same for all instruction sets
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/cpu_time.h"
#include "kernels/kernels.h"

namespace wideep::kernels {
namespace {

std::vector<float> random_floats(size_t count, float scale) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

double seconds_of(const auto& work) {
  const int64_t start = base::thread_cpu_ns();
  work();
  return 1e-9 * static_cast<double>(base::thread_cpu_ns() - start);
}

#if defined(__x86_64__)
constexpr int kChains = 12;
constexpr int kPeakSteps = 20000;

// Multiply-adds per second of a loop over registers, which are opaque to the compiler.
__attribute__((target("avx512f"))) double avx512_rate() {
  __m512 acc[kChains];
  for (__m512& a : acc) a = _mm512_setzero_ps();
  const __m512 x = _mm512_set1_ps(1e-3f);
  const double seconds = seconds_of([&]() __attribute__((target("avx512f"))) {
    for (int i = 0; i < kPeakSteps; ++i) {
      for (__m512& a : acc) {
        a = _mm512_fmadd_ps(x, x, a);
        __asm__ volatile("" : "+v"(a));
      }
    }
  });
  return 16.0 * kChains * kPeakSteps / seconds;
}

__attribute__((target("avx2,fma"))) double avx2_rate() {
  __m256 acc[kChains];
  for (__m256& a : acc) a = _mm256_setzero_ps();
  const __m256 x = _mm256_set1_ps(1e-3f);
  const double seconds = seconds_of([&]() __attribute__((target("avx2,fma"))) {
    for (int i = 0; i < kPeakSteps; ++i) {
      for (__m256& a : acc) {
        a = _mm256_fmadd_ps(x, x, a);
        __asm__ volatile("" : "+x"(a));
      }
    }
  });
  return 8.0 * kChains * kPeakSteps / seconds;
}
#endif

double peak_rate(const Kernels& kernels) {
#if defined(__x86_64__)
  return kernels.isa == "avx512" ? avx512_rate() : avx2_rate();
#else
  return 0.0;
#endif
}

// Seconds of the least that a token does with states in memory.
double pass_seconds(float* states, size_t size, const Kernels& kernels) {
  return seconds_of([&] {
    kernels.scale_row(0.999f, static_cast<int>(size), states);
    benchmark::ClobberMemory();
  });
}

void bench_delta_rule(benchmark::State& state, const Kernels& kernels, bool channels) {
  constexpr int kHeads = 32, kDim = 128;
  const int tokens = static_cast<int>(state.range(0));
  const size_t row = kHeads * kDim, size = static_cast<size_t>(tokens) * row;
  base::AlignedBytes memory(row * kDim * sizeof(float));  // as states of sequences are
  auto* states = reinterpret_cast<float*>(memory.data());
  std::fill_n(states, row * kDim, 0.0f);
  std::vector<float> out(size);
  const auto q = random_floats(size, 0.09f), k = random_floats(size, 0.09f);
  const auto v = random_floats(size, 1.0f);
  const std::vector<float> decay(size, 0.97f);
  const std::vector<float> beta(static_cast<size_t>(tokens), 0.5f);
  const double per_element = channels ? 4.0 : 3.0;
  std::vector<double> seconds, of_peak, of_memory;
  for (auto _ : state) {
    const double peak = peak_rate(kernels);
    const double pass = tokens * pass_seconds(states, row * kDim, kernels);
    const double now = seconds_of([&] {
      for (int head = 0; head < kHeads; ++head) {
        const size_t at = static_cast<size_t>(head) * kDim;
        kernels.delta_rule({.num_tokens = tokens,
                            .key_dim = kDim,
                            .value_dim = kDim,
                            .state = states + at * kDim,
                            .q = q.data() + at,
                            .q_stride = row,
                            .k = k.data() + at,
                            .k_stride = row,
                            .v = v.data() + at,
                            .v_stride = row,
                            .decay = decay.data() + (channels ? at : 0),
                            .decay_stride = channels ? row : 1,
                            .channel_decay = channels,
                            .beta = beta.data(),
                            .beta_stride = 1,
                            .out = out.data() + at,
                            .out_stride = row});
      }
    });
    state.SetIterationTime(now);
    seconds.push_back(now);
    of_memory.push_back(pass / now);
    of_peak.push_back(per_element * kDim * static_cast<double>(size) / now / peak);
  }
  state.counters["ns_per_token"] = 1e9 * median(seconds) / tokens;
  state.counters["of_peak"] = median(of_peak);
  state.counters["of_memory"] = median(of_memory);
}

void bench_state_space(benchmark::State& state, const Kernels& kernels) {
  constexpr int kHeads = 64, kHeadDim = 64, kStateDim = 128, kHeadsOfGroup = 8;
  const int tokens = static_cast<int>(state.range(0));
  const size_t row = kHeads * kHeadDim, size = static_cast<size_t>(tokens) * row;
  const size_t shared_row = kHeads / kHeadsOfGroup * kStateDim;
  std::vector<float> states(row * kStateDim, 0.0f), out(size);
  const auto x = random_floats(size, 1.0f);
  const auto b = random_floats(static_cast<size_t>(tokens) * shared_row, 0.3f);
  const auto c = random_floats(static_cast<size_t>(tokens) * shared_row, 0.3f);
  const std::vector<float> decay(static_cast<size_t>(tokens), 0.97f);
  const std::vector<float> step(static_cast<size_t>(tokens), 0.5f);
  std::vector<double> seconds, of_peak;
  for (auto _ : state) {
    const double peak = peak_rate(kernels);
    const double now = seconds_of([&] {
      for (int head = 0; head < kHeads; ++head) {
        const size_t at = static_cast<size_t>(head) * kHeadDim;
        const size_t group = static_cast<size_t>(head / kHeadsOfGroup) * kStateDim;
        kernels.state_space({.num_tokens = tokens,
                             .state_dim = kStateDim,
                             .head_dim = kHeadDim,
                             .state = states.data() + at * kStateDim,
                             .x = x.data() + at,
                             .x_stride = row,
                             .b = b.data() + group,
                             .b_stride = shared_row,
                             .c = c.data() + group,
                             .c_stride = shared_row,
                             .decay = decay.data(),
                             .decay_stride = 1,
                             .step = step.data(),
                             .step_stride = 1,
                             .skip = 1.0f,
                             .out = out.data() + at,
                             .out_stride = row});
      }
    });
    state.SetIterationTime(now);
    seconds.push_back(now);
    of_peak.push_back(3.0 * kStateDim * static_cast<double>(size) / now / peak);
  }
  state.counters["ns_per_token"] = 1e9 * median(seconds) / tokens;
  state.counters["of_peak"] = median(of_peak);
}

void bench_convolution(benchmark::State& state, const Kernels& kernels) {
  constexpr int kChannels = 8192, kWidth = 4;
  const int tokens = static_cast<int>(state.range(0));
  const auto x = random_floats(static_cast<size_t>(tokens) * kChannels, 1.0f);
  const auto weight = random_floats(kWidth * kChannels, 0.5f);
  std::vector<float> memory((kWidth - 1) * kChannels, 0.0f), out(x.size());
  std::vector<double> seconds;
  for (auto _ : state) {
    const double now = seconds_of([&] {
      kernels.convolve({.num_tokens = tokens,
                        .num_channels = kChannels,
                        .width = kWidth,
                        .x = x.data(),
                        .x_stride = kChannels,
                        .weight = weight.data(),
                        .silu = true,
                        .state = memory.data(),
                        .out = out.data(),
                        .out_stride = kChannels});
    });
    state.SetIterationTime(now);
    seconds.push_back(now);
  }
  state.counters["ns_per_token"] = 1e9 * median(seconds) / tokens;
}

void bench_index_scores(benchmark::State& state, const Kernels& kernels) {
  constexpr int kHeads = 64, kDim = 128;
  const int positions = static_cast<int>(state.range(0));
  const auto q = random_floats(kHeads * kDim, 1.0f), weights = random_floats(kHeads, 1.0f);
  const auto keys = random_floats(static_cast<size_t>(positions) * kDim, 1.0f);
  const std::vector<Bf16> rows(keys.begin(), keys.end());
  std::vector<KvPage> pages;
  for (int p = 0; p < positions; p += kPageTokens) {
    pages.push_back({reinterpret_cast<const std::byte*>(rows.data() + size_t(p) * kDim), nullptr});
  }
  std::vector<float> scores(static_cast<size_t>(positions));
  IndexArgs args{.num_tokens = 1,
                 .num_heads = kHeads,
                 .first_position = positions - 1,
                 .dim = kDim,
                 .q = q.data(),
                 .q_head_stride = kDim,
                 .weights = weights.data(),
                 .cache_dtype = Dtype::kBf16,
                 .row_stride = kDim,
                 .pages = pages.data(),
                 .num_pages = static_cast<int>(pages.size()),
                 .scores = scores.data()};
  base::AlignedBytes scratch(index_scratch_bytes(args));
  args.scratch = scratch.data();
  std::vector<double> seconds;
  for (auto _ : state) {
    const double now = seconds_of([&] { kernels.index_scores(args); });
    state.SetIterationTime(now);
    seconds.push_back(now);
  }
  const double each = median(seconds);
  state.counters["ns_per_position"] = 1e9 * each / positions;
  state.counters["GFLOP/s"] = 2e-9 * kHeads * kDim * positions / each;
}

void bench_select_top(benchmark::State& state) {
  const int positions = static_cast<int>(state.range(0));
  const auto scores = random_floats(static_cast<size_t>(positions), 1.0f);
  std::vector<int32_t> selected(2048);
  std::vector<double> seconds;
  for (auto _ : state) {
    const double now = seconds_of([&] {
      benchmark::DoNotOptimize(select_top(scores.data(), positions, 2048, selected.data()));
    });
    state.SetIterationTime(now);
    seconds.push_back(now);
  }
  state.counters["ns_per_position"] = 1e9 * median(seconds) / positions;
}

template <typename Function>
benchmark::internal::Benchmark* add(const std::string& name, const Function& function) {
  return benchmark::RegisterBenchmark(name.c_str(), function)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.1);
}

const bool kRegistered = [] {
  for (const Kernels* table : all_kernels()) {
    if (!table->supported() || table->isa == "ref") continue;
    const auto with = [table](void (*bench)(benchmark::State&, const Kernels&)) {
      return [table, bench](benchmark::State& state) { bench(state, *table); };
    };
    for (const bool channels : {false, true}) {
      add(fmt::format("{}/{}", channels ? "channel_decay" : "delta_rule", table->isa),
          [table, channels](benchmark::State& state) { bench_delta_rule(state, *table, channels); })
          ->ArgName("tokens")
          ->Arg(1)
          ->Arg(4)
          ->Arg(64)
          ->Arg(512);
    }
    add(fmt::format("state_space/{}", table->isa), with(bench_state_space))
        ->ArgName("tokens")
        ->Arg(1)
        ->Arg(4)
        ->Arg(64)
        ->Arg(512);
    add(fmt::format("convolution/{}", table->isa), with(bench_convolution))
        ->ArgName("tokens")
        ->Arg(1)
        ->Arg(64)
        ->Arg(512);
    add(fmt::format("index_scores/{}", table->isa), with(bench_index_scores))
        ->ArgName("positions")
        ->Arg(4096)
        ->Arg(32768);
  }
  add("select_top", bench_select_top)->ArgName("positions")->Arg(4096)->Arg(32768)->Arg(131072);
  return true;
}();

}  // namespace
}  // namespace wideep::kernels
