// SPDX-License-Identifier: Apache-2.0
//
// Bytes per second of records at random places of a file of 2 GiB, and what bounds them, in TMPDIR,
// which must be on the disk in question:
//   sequential   the file from front to back, past the page cache, 4 MiB at a time
//   bound        records' pieces by as many threads, without a hash (read_bandwidth.h)
//   records      by a RecordReader: in memory, and with their hash
//   one_record   by itself: how long a rank waits for an expert on an idle disk
// Arguments: KiB of a record, pieces in flight, KiB of a piece. The page cache has no part in it,
// but the memory of a virtual machine's host may: then only proportions of lines say something.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/content_hash.h"
#include "base/cpu_time.h"
#include "base/scratch_directory.h"
#include "weights/read_bandwidth.h"
#include "weights/record_reader.h"

namespace wideep::weights {
namespace {

constexpr uint64_t kFileBytes = uint64_t{2} << 30;
constexpr uint64_t kTurnBytes = uint64_t{288} << 20;  // whole records of all sizes
constexpr uint64_t kUnit = uint64_t{64} << 10;        // of the file's content
constexpr int64_t kLongNs = 60'000'000'000;

// Each unit begins with its number, and has the same random bytes behind it.
class BenchFile {
 public:
  BenchFile() {
    std::mt19937_64 rng(1);
    std::generate(unit_.begin(), unit_.end(), rng);
    std::vector<std::byte> bytes(size_t{16} << 20);
    const int file = ::open(path().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    for (uint64_t at = 0; at < kFileBytes; at += bytes.size()) {
      fill(at, bytes);
      if (::write(file, bytes.data(), bytes.size()) < 0) std::perror("record_reader_bench");
    }
    ::fdatasync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
  std::string path() const { return scratch_.file("records"); }

  // Of the records of this size one behind the other.
  std::vector<uint64_t> hashes(uint64_t record_bytes) {
    std::vector<std::byte> record(record_bytes);
    std::vector<uint64_t> all;
    for (uint64_t at = 0; at + record_bytes <= kFileBytes; at += record_bytes) {
      fill(at, record);
      all.push_back(base::content_hash(record.data(), record.size()));
    }
    return all;
  }

 private:
  void fill(uint64_t begin, std::span<std::byte> bytes) {
    for (uint64_t at = 0; at < bytes.size(); at += kUnit) {
      unit_[0] = begin + at;
      std::memcpy(bytes.data() + at, unit_.data(), kUnit);
    }
  }

  base::ScratchDirectory scratch_;
  std::vector<uint64_t> unit_ = std::vector<uint64_t>(kUnit / sizeof(uint64_t));
};

BenchFile& bench_file() {
  static BenchFile file;
  return file;
}

// Where a turn's records go; given by the kernel before.
std::byte* slots() {
  static base::AlignedBytes memory(kTurnBytes + DirectInput::kBlockBytes);
  static std::byte* const first = [] {
    std::memset(memory.data(), 1, memory.size());
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (DirectInput::in_blocks(address) - address);
  }();
  return first;
}

class RandomRecords {
 public:
  explicit RandomRecords(benchmark::State& state)
      : bytes_(static_cast<uint64_t>(state.range(0)) << 10),
        hashes_(bench_file().hashes(bytes_)),
        reader_(*RecordReader::open(
            bench_file().path(), {.depth = static_cast<int>(state.range(1)),
                                  .piece_bytes = static_cast<uint64_t>(state.range(2)) << 10})) {}

  uint64_t bytes() const { return bytes_; }
  // Reads `count` of them together. false: not all are whole.
  bool read(uint64_t count) {
    orders_.clear();
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t record = rng_() % hashes_.size();
      orders_.push_back({.ticket = i,
                         .offset = record * bytes_,
                         .into = slots() + i * bytes_,
                         .bytes = bytes_,
                         .hash = hashes_[record]});
    }
    reader_->submit(orders_);
    uint64_t whole = 0;
    while (const auto end = reader_->wait(base::wall_ns() + kLongNs)) {
      whole += end->end == RecordEnd::kWhole ? 1 : 0;
    }
    return whole == count;
  }

 private:
  std::mt19937_64 rng_{static_cast<uint64_t>(base::wall_ns())};
  uint64_t bytes_;
  std::vector<uint64_t> hashes_;
  std::vector<RecordOrder> orders_;
  std::unique_ptr<RecordReader> reader_;
};

void sequential(benchmark::State& state) {
  constexpr uint64_t kRequest = uint64_t{4} << 20;
  const auto input = DirectInput::open(bench_file().path());
  uint64_t at = 0;
  for (auto _ : state) {
    if (input->read(at, slots(), kRequest) != 0) state.SkipWithError("not read");
    at = (at + kRequest) % kFileBytes;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kRequest));
}

void bound(benchmark::State& state) {
  for (auto _ : state) {
    const auto found = measure_read_bandwidth(
        bench_file().path(), {.record_bytes = static_cast<uint64_t>(state.range(0)) << 10,
                              .num_bytes = kTurnBytes,
                              .depth = static_cast<int>(state.range(1)),
                              .piece_bytes = static_cast<uint64_t>(state.range(2)) << 10});
    if (!found.ok()) return state.SkipWithError(found.status().message().c_str());
    state.SetIterationTime(static_cast<double>(kTurnBytes) / *found);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kTurnBytes));
}

void records(benchmark::State& state) {
  RandomRecords all(state);
  slots();
  for (auto _ : state) {
    if (!all.read(kTurnBytes / all.bytes())) state.SkipWithError("not all were whole");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kTurnBytes));
}

void one_record(benchmark::State& state) {
  RandomRecords all(state);
  slots();
  for (auto _ : state) {
    if (!all.read(1)) state.SkipWithError("not whole");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(all.bytes()));
}

constexpr int64_t kHalfMiB = 512, kTwoMiB = 2048, kEightMiB = 8192, kThirtySixMiB = 36864;

BENCHMARK(sequential)->UseRealTime()->Unit(benchmark::kMillisecond);
void each_depth(benchmark::internal::Benchmark* bench) {
  bench->Unit(benchmark::kMillisecond)
      ->ArgsProduct({{kHalfMiB, kTwoMiB, kEightMiB, kThirtySixMiB}, {1, 4, 8, 16, 64}, {1024}})
      ->ArgsProduct({{kTwoMiB, kThirtySixMiB}, {8}, {256, 512, 2048}});
}
BENCHMARK(bound)->Apply(each_depth)->UseManualTime();
BENCHMARK(records)->Apply(each_depth)->UseRealTime();
BENCHMARK(one_record)
    ->ArgsProduct({{kHalfMiB, kTwoMiB, kEightMiB, kThirtySixMiB}, {8}, {256, 512, 1024, 2048}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace wideep::weights
