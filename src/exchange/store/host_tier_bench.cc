// SPDX-License-Identifier: Apache-2.0
//
// Bytes per second of 256 MiB in pages of 1 MiB:
//   offered   into the host tier, whose memory the kernel has given before
//   fetched   out of it, found by name and checked
//   copied    by memcpy from the same memory: the bound
//   of a peer on this machine, through its page server (/0), or mapped (/1)
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "base/aligned_bytes.h"
#include "store/host_tier.h"
#include "store/page_server.h"
#include "store/peer_place.h"
#include "store/records_testing.h"

namespace wideep::store {
namespace {

constexpr uint64_t kPageBytes = uint64_t{1} << 20;
constexpr uint32_t kPages = 256;

struct Filled {
  Filled() : memory(HostTier::create_memory(kPages * kPageBytes).value()) {
    tier = HostTier::open(memory).value();
    for (uint32_t i = 0; i < kPages; ++i) {
      orders.push_back({.head = heads[i], .into = bytes(i)});
      std::memset(bytes(i).data(), 1, kPageBytes);
    }
    offer();
  }
  std::span<std::byte> bytes(uint32_t page) {
    return {pages.data() + page * kPageBytes, kPageBytes};
  }
  void offer() {
    for (uint32_t i = 0; i < kPages; ++i) tier->offer(heads[i], bytes(i), 0.0, kIntact);
  }

  base::SharedBytes memory;
  std::unique_ptr<HostTier> tier;
  std::vector<Head> heads = sequence_of(1, kPages, kPageBytes);
  base::AlignedBytes pages{kPages * kPageBytes};
  std::vector<FetchOrder> orders;
};

Filled& filled() {
  static Filled all;
  return all;
}

void finish(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kPages * kPageBytes));
}

void bench_offered(benchmark::State& state) {
  for (auto _ : state) {
    state.PauseTiming();
    for (const Head& each : filled().heads) filled().tier->forget(each.name, each.kind);
    state.ResumeTiming();
    filled().offer();
  }
  finish(state);
}
BENCHMARK(bench_offered);

void bench_fetched(benchmark::State& state) {
  for (auto _ : state) {
    uint32_t whole = 0;
    const Status status = filled().tier->fetch(filled().orders, [&](size_t, FetchResult result) {
      return result == FetchResult::kWhole && ++whole > 0;
    });
    if (!status.ok() || whole != kPages) state.SkipWithError("not all pages were there");
  }
  finish(state);
}
BENCHMARK(bench_fetched);

void bench_copied(benchmark::State& state) {
  const std::byte* const blocks =
      filled().memory.data() + filled().memory.size() - kPages * kPageBytes;
  for (auto _ : state) {
    std::memcpy(filled().pages.data(), blocks, kPages * kPageBytes);
    benchmark::ClobberMemory();
  }
  finish(state);
}
BENCHMARK(bench_copied);

void bench_of_a_peer(benchmark::State& state) {
  const auto address = transport::resolve("127.0.0.1", 0);
  const auto server = PageServer::start(
      {.address = address.value(), .token = "t", .record_class = "c"}, filled().memory);
  if (!server.ok()) return state.SkipWithError(server.status().message().c_str());
  const auto place = PeerPlace::make({.host = {"127.0.0.1", (*server)->address().port},
                                      .token = "t",
                                      .record_class = "c",
                                      .maps_memory = state.range(0) == 1});
  place.value()->find(filled().heads);  // it is connected then
  for (auto _ : state) {
    uint32_t whole = 0;
    const Status status = place.value()->fetch(filled().orders, [&](size_t, FetchResult result) {
      return result == FetchResult::kWhole && ++whole > 0;
    });
    if (!status.ok() || whole != kPages) state.SkipWithError("not all pages were there");
  }
  finish(state);
}
BENCHMARK(bench_of_a_peer)->Arg(0)->Arg(1)->UseRealTime();

}  // namespace
}  // namespace wideep::store
