// SPDX-License-Identifier: Apache-2.0
//
// Attention on each instruction set beside the limits of this core, measured in turn with it: the
// multiply-add rate of a loop over registers, and the rate of reading memory that no cache holds.
//
//   of_peak   (products with keys and values, visible positions only) / register loop
//   of_read   (bytes of the pages with visible positions) / reading loop
#include "kernels/attention.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <string>

#include "base/cpu_time.h"
#include "kernels/attention_testing.h"

namespace wideep::kernels {
namespace {

// Processor time: limits and kernels are compared on a machine that others may use too.
double seconds_of(const auto& work) {
  const int64_t start = base::thread_cpu_ns();
  work();
  return 1e-9 * static_cast<double>(base::thread_cpu_ns() - start);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

#if defined(__x86_64__)
constexpr int kChains = 12;
constexpr int kPeakSteps = 20000;

// The accumulators are opaque to the compiler and stay in registers.
__attribute__((target("avx512f,avx512bf16"))) double bf16_loop_flops() {
  __m512 acc[kChains];
  for (__m512& a : acc) a = _mm512_setzero_ps();
  const __m512bh x = (__m512bh)_mm512_set1_epi32(1);
  const int64_t start = base::thread_cpu_ns();
  for (int i = 0; i < kPeakSteps; ++i) {
    for (__m512& a : acc) {
      a = _mm512_dpbf16_ps(a, x, x);
      __asm__ volatile("" : "+v"(a));
    }
  }
  return 64e9 * kChains * kPeakSteps / static_cast<double>(base::thread_cpu_ns() - start);
}

__attribute__((target("avx2,fma"))) double f32_loop_flops() {
  __m256 acc[kChains];
  for (__m256& a : acc) a = _mm256_setzero_ps();
  const __m256 x = _mm256_set1_ps(1e-3f);
  const int64_t start = base::thread_cpu_ns();
  for (int i = 0; i < kPeakSteps; ++i) {
    for (__m256& a : acc) {
      a = _mm256_fmadd_ps(x, x, a);
      __asm__ volatile("" : "+x"(a));
    }
  }
  return 16e9 * kChains * kPeakSteps / static_cast<double>(base::thread_cpu_ns() - start);
}
#endif

double peak_flops(const Kernels& kernels) {
#if defined(__x86_64__)
  return kernels.isa == "avx512" ? bf16_loop_flops() : f32_loop_flops();
#else
  return 0.0;
#endif
}

// Reads `bytes` of memory strictly forward, with many loads under way.
double read_rate(const base::AlignedBytes& bytes, size_t begin, size_t count) {
  const auto* data = bytes.as<uint64_t>() + begin / sizeof(uint64_t);
  uint64_t sums[8] = {};
  const double seconds = seconds_of([&] {
    for (size_t i = 0; i < count / sizeof(uint64_t); i += 64) {
      for (size_t line = 0; line < 8; ++line) {
        __builtin_prefetch(data + i + 8 * line + 512);
        sums[line] += data[i + 8 * line];
      }
    }
  });
  for (uint64_t& sum : sums) benchmark::DoNotOptimize(sum);
  return static_cast<double>(count) / seconds;
}

// Query, key pairs: of the visible positions only.
double num_pairs(const AttentionArgs& args) {
  double pairs = 0.0;
  for (int t = 0; t < args.num_tokens; ++t) {
    const int position = args.first_position + t;
    pairs += position + 1 - first_visible(args.window, args.chunk, position);
  }
  return args.num_heads * pairs;
}

void report(benchmark::State& state, const AttentionArgs& args, const std::vector<double>& seconds,
            const std::vector<double>& of_limit, const char* limit, double bytes) {
  const double flops = 2.0 * num_pairs(args) * (args.key_dim + args.value_dim);
  state.counters["GFLOP/s"] = flops * 1e-9 / median(seconds);
  state.counters["GB/s"] = bytes * 1e-9 / median(seconds);
  state.counters[limit] = median(of_limit);
}

// One run of tokens in blocks of the split that a model would take.
void bench_prefill(benchmark::State& state, const Kernels& kernels, AttentionShape shape) {
  AttentionCase block(kernels, shape, 1);
  const AttentionArgs whole = block.args;
  const AttentionSplit split = choose_split({.num_tokens = shape.num_tokens,
                                             .num_heads = shape.num_heads,
                                             .num_kv_heads = 1,
                                             .num_threads = 2});
  const double flops = 2.0 * num_pairs(whole) * (whole.key_dim + whole.value_dim);
  std::vector<double> seconds, of_peak;
  for (auto _ : state) {
    const double peak = peak_flops(kernels);
    seconds.push_back(seconds_of([&] {
      for (int t = 0; t < whole.num_tokens; t += split.tokens_per_task) {
        AttentionArgs part = whole;
        part.num_tokens = std::min(split.tokens_per_task, whole.num_tokens - t);
        part.first_position += t;
        part.q += t * part.q_token_stride;
        part.out += t * part.out_token_stride;
        kernels.attention(part);
      }
    }));
    state.SetIterationTime(seconds.back());
    of_peak.push_back(flops / seconds.back() / peak);
  }
  report(state, whole, seconds, of_peak, "of_peak", 0.0);
}

// Another sequence with the same rows from page `first` on, in memory of its own.
struct Copy {
  std::vector<base::AlignedBytes> memory;
  std::vector<KvPage> pages;

  Copy(const AttentionCase& source, size_t first) : pages(first) {
    for (size_t i = first; i < source.memory.size(); ++i) {
      const std::byte* from = source.memory[i].data();
      std::byte* to = memory.emplace_back(source.page_bytes()).data();
      std::memcpy(to, from, source.page_bytes());
      pages.push_back({to + (source.pages[i].keys - from), to + (source.pages[i].values - from)});
    }
  }
};

// One token of each of many sequences, together larger than any cache.
void bench_decode(benchmark::State& state, const Kernels& kernels, AttentionShape shape) {
  AttentionCase one(kernels, shape, 1);
  const auto first = static_cast<size_t>(
      first_visible(shape.window, shape.chunk, shape.first_position) / kPageTokens);
  const size_t sequence_bytes = one.page_bytes() * (one.pages.size() - first);
  std::vector<Copy> sequences;
  for (size_t bytes = 0; bytes < size_t{96} << 20; bytes += sequence_bytes) {
    sequences.emplace_back(one, first);
  }
  const size_t flat_bytes = size_t{96} << 20, probe = size_t{4} << 20;
  base::AlignedBytes flat(flat_bytes);
  std::memset(flat.data(), 1, flat_bytes);  // memory that was never written is one page of zeros
  std::vector<double> seconds, of_read;
  size_t at = 0, next = 0;
  for (auto _ : state) {
    const double rate = read_rate(flat, at, probe);
    at = (at + probe) % flat_bytes;
    one.args.pages = sequences[next++ % sequences.size()].pages.data();
    seconds.push_back(seconds_of([&] { kernels.attention(one.args); }));
    state.SetIterationTime(seconds.back());
    of_read.push_back(static_cast<double>(sequence_bytes) / seconds.back() / rate);
  }
  report(state, one.args, seconds, of_read, "of_read", static_cast<double>(sequence_bytes));
}

void add(const std::string& name, const Kernels& kernels, const AttentionShape& shape) {
  benchmark::RegisterBenchmark(fmt::format("{}/{}", name, kernels.isa).c_str(),
                               [&kernels, shape](benchmark::State& state) {
                                 if (shape.num_tokens > 1) {
                                   bench_prefill(state, kernels, shape);
                                 } else {
                                   bench_decode(state, kernels, shape);
                                 }
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.1);
}

void add_all(const Kernels& kernels) {
  for (const int tokens : {512, 4096}) {
    for (const int dim : {64, 128}) {
      add(fmt::format("prefill_{}_group4_dim{}", tokens, dim), kernels,
          {.num_tokens = tokens, .num_heads = 4, .key_dim = dim, .value_dim = dim});
    }
  }
  // DeepSeek-V3's expanded head.
  add("prefill_512_expanded_192_128", kernels,
      {.num_tokens = 512, .key_dim = 192, .value_dim = 128});
  // GPT-OSS's sliding layers: a long context must cost no more than the window.
  for (const int position : {127, 32767}) {
    add(fmt::format("decode_{}_window128_group8_dim64", position + 1), kernels,
        {.num_heads = 8, .first_position = position, .window = 128, .sinks = true});
  }
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF8E4M3}) {
    const std::string name(dtype_name(dtype));
    add("prefill_512_group4_dim64_" + name, kernels,
        {.cache_dtype = dtype, .num_tokens = 512, .num_heads = 4});
    add("decode_8192_group4_dim64_" + name, kernels,
        {.cache_dtype = dtype, .num_heads = 4, .first_position = 8191});
    add("decode_8192_group8_dim128_" + name, kernels,
        {.cache_dtype = dtype,
         .num_heads = 8,
         .first_position = 8191,
         .key_dim = 128,
         .value_dim = 128});
    for (const int heads : {16, 128}) {  // DeepSeek-V3's latent
      add(fmt::format("decode_2048_latent_{}_heads_{}", heads, name), kernels,
          {.cache_dtype = dtype,
           .form = CacheForm::kRows,
           .num_heads = heads,
           .first_position = 2047,
           .key_dim = 576,
           .value_dim = 512});
    }
  }
}

const bool kRegistered = [] {
  for (const Kernels* table : all_kernels()) {
    if (table->supported() && table->isa != "ref") add_all(*table);
  }
  return true;
}();

}  // namespace
}  // namespace wideep::kernels
