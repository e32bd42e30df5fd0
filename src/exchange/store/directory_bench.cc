// SPDX-License-Identifier: Apache-2.0
//
// Records to a directory and back, beside a plain file past the page cache in requests of 4 MiB,
// which is the bound. In TMPDIR, which must be on the disk in question.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/scratch_directory.h"
#include "store/directory.h"

namespace wideep::store {
namespace {

constexpr uint64_t kAll = uint64_t{512} << 20;
constexpr uint64_t kRequest = uint64_t{4} << 20;

Head head_of(uint32_t page, uint64_t bytes) {
  Head head = {.page = page, .canonical_bytes = bytes, .part = Part::whole(bytes)};
  std::memcpy(head.name.bytes.data(), &page, sizeof(page));
  return head;
}

std::unique_ptr<Directory> open(const std::string& path) {
  auto directory = Directory::open(
      {.path = path, .max_bytes = 16 * kAll, .record_class = "bench", .segment_bytes = 2 * kAll});
  return directory.ok() ? std::move(*directory) : nullptr;
}

bool write_all(Directory& directory, uint64_t bytes, std::span<const std::byte> payload) {
  for (uint32_t page = 0; page < kAll / bytes; ++page) {
    const Head head = head_of(page, bytes);
    if (directory.offer(head, payload.first(bytes), 0.1, nullptr) != OfferResult::kTaken) {
      return false;
    }
  }
  return true;
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kAll));
}

void plain_write(benchmark::State& state) {
  BlockMemory memory;
  const std::span bytes(memory.at_least(kRequest), kRequest);
  std::memset(bytes.data(), 1, bytes.size());
  for (auto _ : state) {
    const base::ScratchDirectory scratch;
    DirectFile file;
    int error = file.open(scratch.file("plain"), /*is_new=*/true);
    if (error == 0) error = file.reserve(kAll);
    for (uint64_t at = 0; error == 0 && at < kAll; at += kRequest) error = file.write(at, bytes);
    if (error != 0) state.SkipWithError(std::strerror(error));
  }
  count_bytes(state);
}

void plain_read(benchmark::State& state) {
  const base::ScratchDirectory scratch;
  BlockMemory memory;
  const std::span bytes(memory.at_least(kRequest), kRequest);
  std::memset(bytes.data(), 1, bytes.size());
  DirectFile file;
  int error = file.open(scratch.file("plain"), /*is_new=*/true);
  for (uint64_t at = 0; error == 0 && at < kAll; at += kRequest) error = file.write(at, bytes);
  for (auto _ : state) {
    for (uint64_t at = 0; error == 0 && at < kAll; at += kRequest) error = file.read(at, bytes);
    if (error != 0) state.SkipWithError(std::strerror(error));
  }
  count_bytes(state);
}

void write_records(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0)) << 10;
  const std::vector<std::byte> payload(bytes, std::byte{1});
  for (auto _ : state) {
    const base::ScratchDirectory scratch;
    const auto directory = open(scratch.path());
    if (directory == nullptr || !write_all(*directory, bytes, payload)) {
      state.SkipWithError("not written");
    }
  }
  count_bytes(state);
}

void read_records(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0)) << 10;
  const base::ScratchDirectory scratch;
  BlockMemory pages;
  const std::span memory(pages.at_least(kAll), kAll);
  ::madvise(memory.data(), kAll, MADV_NOHUGEPAGE);
  std::memset(memory.data(), 1, kAll);
  const auto directory = open(scratch.path());
  if (directory == nullptr || !write_all(*directory, bytes, memory)) {
    state.SkipWithError("not written");
    return;
  }
  std::vector<FetchOrder> orders;
  for (uint32_t page = 0; page < kAll / bytes; ++page) {
    orders.push_back({head_of(page, bytes), memory.subspan(page * bytes, bytes)});
  }
  for (auto _ : state) {
    state.PauseTiming();  // a cache's pages are not there before their first use
    ::madvise(memory.data(), kAll, MADV_DONTNEED);
    state.ResumeTiming();
    const Status status = directory->fetch(orders, [&](size_t, FetchResult result) {
      if (result != FetchResult::kWhole) state.SkipWithError("not read");
      return result == FetchResult::kWhole;
    });
    if (!status.ok()) state.SkipWithError(status.message().c_str());
  }
  count_bytes(state);
}

BENCHMARK(plain_write)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(plain_read)->UseRealTime()->Unit(benchmark::kMillisecond);
// A rank's part of a page, in KiB.
BENCHMARK(write_records)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond)
    ->Arg(64)
    ->Arg(1024)
    ->Arg(4608);
BENCHMARK(read_records)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond)
    ->Arg(64)
    ->Arg(1024)
    ->Arg(4608);

}  // namespace
}  // namespace wideep::store
