// SPDX-License-Identifier: Apache-2.0
//
// Rows that travel, at hidden 7,168: encoding a bf16 row, decoding to bf16, and the sum over eight
// rows of a token; GB/s of the row's bf16 form, beside copying that form, over as many rows as the
// second-level cache holds in both forms, and over more than all caches do.
#include "kernels/row_format.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"
#include "kernels/kernels.h"

namespace wideep::kernels {
namespace {

constexpr int kHidden = 7168, kTopK = 8;
constexpr int kCachedRows = 32, kUncachedRows = 4096;
constexpr size_t kPlainBytes = kHidden * sizeof(Bf16);

// Rows that take turns: plain[i] is to be coded[i].
struct Rows {
  size_t coded_bytes;
  base::AlignedBytes plain, coded;

  Rows(const Kernels& kernels, RowFormat format, int64_t count)
      : coded_bytes(row_bytes(format, kHidden)),
        plain(static_cast<size_t>(count) * kPlainBytes),
        coded(static_cast<size_t>(count) * coded_bytes) {
    std::vector<float> x(kHidden);
    for (int row = 0; row < count; ++row) {
      for (int i = 0; i < kHidden; ++i) {
        x[i] = static_cast<float>((i * 37 + row * 11) % 101) - 50.5f;
      }
      kernels.to_bf16(x.data(), kHidden, plain_row(row));
      kernels.encode_row(Dtype::kF32, x.data(), format, kHidden, coded_row(row));
    }
  }
  Bf16* plain_row(int row) {
    return reinterpret_cast<Bf16*>(plain.data() + static_cast<size_t>(row) * kPlainBytes);
  }
  std::byte* coded_row(int row) { return coded.data() + static_cast<size_t>(row) * coded_bytes; }
};

// step(row) for one row after the other, `rows` of them at a time.
template <typename Step>
void run(benchmark::State& state, int rows, Step step) {
  int row = 0;
  for (auto _ : state) {
    step(row);
    benchmark::ClobberMemory();
    row = (row + rows) % static_cast<int>(state.range(0));
  }
  state.counters["bf16_GB/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * rows * kPlainBytes * 1e-9,
                         benchmark::Counter::kIsRate);
}

void bench_copy(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0)) * kPlainBytes;
  base::AlignedBytes from(bytes), to(bytes);
  std::fill_n(from.data(), from.size(), std::byte{1});
  std::fill_n(to.data(), to.size(), std::byte{1});
  run(state, 1, [&](int row) {
    const size_t at = static_cast<size_t>(row) * kPlainBytes;
    std::memcpy(to.data() + at, from.data() + at, kPlainBytes);
  });
}
BENCHMARK(bench_copy)->Name("copy_bf16")->ArgName("rows")->Arg(kCachedRows)->Arg(kUncachedRows);

void bench_encode(benchmark::State& state, const Kernels& kernels, RowFormat format) {
  Rows rows(kernels, format, state.range(0));
  run(state, 1, [&](int row) {
    kernels.encode_row(Dtype::kBf16, rows.plain_row(row), format, kHidden, rows.coded_row(row));
  });
}

void bench_decode(benchmark::State& state, const Kernels& kernels, RowFormat format) {
  Rows rows(kernels, format, state.range(0));
  run(state, 1, [&](int row) {
    kernels.decode_row(format, rows.coded_row(row), kHidden, Dtype::kBf16, rows.plain_row(row));
  });
}

void bench_reduce(benchmark::State& state, const Kernels& kernels, RowFormat format) {
  Rows rows(kernels, format, state.range(0));
  std::vector<float> x(kHidden), weights(kTopK, 0.125f);
  std::vector<const std::byte*> pointers(kTopK);
  run(state, kTopK, [&](int row) {
    for (int k = 0; k < kTopK; ++k) pointers[k] = rows.coded_row(row + k);
    kernels.reduce_experts({.n = kHidden,
                            .top_k = kTopK,
                            .format = format,
                            .rows = pointers.data(),
                            .weights = weights.data(),
                            .x = x.data()});
  });
}

const bool kRegistered = [] {
  for (const Kernels* table : all_kernels()) {
    if (!table->supported() || table->isa == "ref") continue;
    for (const RowFormat format : {RowFormat::kBf16, RowFormat::kFp8, RowFormat::kNvfp4}) {
      const auto add = [&](const char* what, auto bench) {
        benchmark::RegisterBenchmark(
            (what + std::string(row_format_name(format)) + "/" + std::string(table->isa)).c_str(),
            [table, format, bench](benchmark::State& state) { bench(state, *table, format); })
            ->ArgName("rows")
            ->Arg(kCachedRows)
            ->Arg(kUncachedRows);
      };
      add("encode_", bench_encode);
      add("decode_", bench_decode);
      add("reduce_8_", bench_reduce);
    }
  }
  return true;
}();

}  // namespace
}  // namespace wideep::kernels
