// SPDX-License-Identifier: Apache-2.0
//
// Each kernel on each instruction set, beside the limit it runs into: GFLOP/s as a share of the
// peak that a register-only loop reaches on this core in this run, and GB/s of weights read: from
// the caches, and as experts of a decode step come, each from memory.
#include "kernels/kernels.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"

namespace wideep::kernels {
namespace {

struct Product {
  base::AlignedBytes weights, x;
  std::vector<float> y;
  MatmulArgs args;

  Product(WeightFormat format, int m, int n, int k)
      : weights(packed_shape(format, n, k).bytes()),
        x(size_t(m) * row_bytes(format, k)),
        y(size_t(m) * n) {
    const PackedShape shape = packed_shape(format, n, k);
    args = {.m = m,
            .x = {x.data(), row_bytes(format, k)},
            .w = {shape, weights.data()},
            .last_panel = shape.num_panels(),
            .y = {y.data(), size_t(n) * sizeof(float)}};
  }
  static size_t row_bytes(WeightFormat format, int k) {
    if (takes_quantized_rows(format))
      return quantized_row_shape(packed_shape(format, kPanelWidth, k)).bytes();
    return static_cast<size_t>(k) * (format == WeightFormat::kF32 ? 4 : 2);
  }
  double flops() const { return 2.0 * args.m * args.w.n() * args.w.k(); }
};

// Many rows whose operands stay in the nearest caches: as near to the peak as this instruction
// set's tiles get.
double peak_flops(const Kernels& kernels, WeightFormat format) {
  Product product(format, 96, 64, 128);
  double best = 0.0;
  for (int round = 0; round < 20; ++round) {
    const auto start = std::chrono::steady_clock::now();
    constexpr int kRepeats = 200;
    for (int i = 0; i < kRepeats; ++i) kernels.matmul(product.args);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, kRepeats * product.flops() / seconds.count());
  }
  return best;
}

void bench_matmul(benchmark::State& state, const Kernels& kernels, WeightFormat format) {
  const int m = static_cast<int>(state.range(0));
  Product product(format, m, 2048, 2048);
  for (auto _ : state) {
    kernels.matmul(product.args);
    benchmark::DoNotOptimize(product.y.data());
  }
  const double calls = static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] =
      benchmark::Counter(calls * product.flops() * 1e-9, benchmark::Counter::kIsRate);
  state.counters["of_L1_tile"] = benchmark::Counter(
      calls * product.flops() / peak_flops(kernels, format), benchmark::Counter::kIsRate);
  state.counters["weights_GB/s"] = benchmark::Counter(
      calls * static_cast<double>(product.weights.size()) * 1e-9, benchmark::Counter::kIsRate);
}

// Matrices the size of an expert's, so many that each comes from memory.
void bench_experts(benchmark::State& state, const Kernels& kernels, WeightFormat format) {
  constexpr int kHidden = 1024, kColumns = 512;
  constexpr size_t kBytes = size_t{256} << 20;
  Product product(format, static_cast<int>(state.range(0)), kColumns, kHidden);
  const size_t bytes = product.args.w.shape.bytes();
  base::AlignedBytes experts(kBytes);
  std::fill_n(experts.data(), kBytes, std::byte{0x38});  // of each page, and a number in any format
  size_t expert = 0;
  for (auto _ : state) {
    product.args.w.data = experts.data() + expert * bytes;
    kernels.matmul(product.args);
    benchmark::DoNotOptimize(product.y.data());
    expert = (expert + 1) % (kBytes / bytes);
  }
  state.counters["weights_GB/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(bytes) * 1e-9,
      benchmark::Counter::kIsRate);
}

const bool kRegistered = [] {
  for (const Kernels* table : all_kernels()) {
    if (!table->supported() || table->isa == "ref") continue;
    const std::string isa(table->isa);
    for (const WeightFormat format :
         {WeightFormat::kBf16, WeightFormat::kF32, WeightFormat::kFp8, WeightFormat::kInt8,
          WeightFormat::kInt4, WeightFormat::kMxfp4, WeightFormat::kNvfp4}) {
      benchmark::RegisterBenchmark(
          ("matmul_2048x2048_" + std::string(weight_format_name(format)) + "/" + isa).c_str(),
          [table, format](benchmark::State& state) { bench_matmul(state, *table, format); })
          ->ArgName("rows")
          ->Arg(1)
          ->Arg(4)
          ->Arg(16)
          ->Arg(64)
          ->Arg(256);
      benchmark::RegisterBenchmark(
          ("experts_512x1024_" + std::string(weight_format_name(format)) + "/" + isa).c_str(),
          [table, format](benchmark::State& state) { bench_experts(state, *table, format); })
          ->ArgName("rows")
          ->DenseRange(1, 6)
          ->DenseRange(8, 16, 2);
    }
  }
  return true;
}();

}  // namespace
}  // namespace wideep::kernels
