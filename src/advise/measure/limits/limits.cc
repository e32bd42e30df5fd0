// SPDX-License-Identifier: Apache-2.0
//
// Windows are counted by the clock, not by pieces of work: a thread that loses its processor spoils
// the windows in which it is away, and the quantile over windows passes over them. Threads begin
// together, at a line where they yield, since there may be fewer processors than threads. A round
// in which no piece ended was too short for the machine: the next takes twice as long, so a limit
// is never 0. Each thread touches its own buffer first.
#include "measure/limits/limits.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/cpu_time.h"
#include "measure/limits/loops.h"

namespace wideep::measure::limits {
namespace {

const Loops& best_loops() {
#if defined(__x86_64__)
  for (const Loops* loops : {avx512_loops(), avx2_loops()}) {
    if (loops->supported()) return *loops;
  }
#endif
  return *portable_loops();
}

const Loops::Arithmetic& arithmetic(const Loops& loops, Operation operation) {
  switch (operation) {
    case Operation::kF32:
      return loops.f32;
    case Operation::kBf16:
      return loops.bf16;
    case Operation::kInt8:
      return loops.int8;
  }
  return loops.f32;
}

// An error is ignored: if the processor is not allowed (any more), the thread runs where the kernel
// puts it.
void pin_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(processor), &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

// values: not empty. quantile: 0 is the smallest value, 1 the largest.
double quantile_of(std::vector<double> values, double quantile) {
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(quantile * last);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// A barrier that lets threads begin at the same moment. Waiting threads yield, because there may be
// fewer processors than threads.
class StartLine {
 public:
  explicit StartLine(int num_threads) : missing_(num_threads) {}
  // Returns false if a thread could not be started.
  bool wait() {
    missing_.fetch_sub(1);
    while (missing_.load(std::memory_order_acquire) > 0) {
      if (given_up_.load(std::memory_order_relaxed)) return false;
      std::this_thread::yield();
    }
    return true;
  }
  void give_up() { given_up_.store(true, std::memory_order_relaxed); }

 private:
  std::atomic<int> missing_;
  std::atomic<bool> given_up_{false};
};

// Runs body(thread) on one pinned thread per processor; returns when all have ended. Throws
// std::system_error if the system cannot start a thread; the others are ended first.
void on_threads(const std::vector<int>& processors, const std::function<void(int)>& body) {
  StartLine start(static_cast<int>(processors.size()));
  std::vector<std::thread> threads;
  const auto join = [&] {
    for (std::thread& thread : threads) thread.join();
  };
  for (size_t i = 0; i < processors.size(); ++i) {
    try {
      threads.emplace_back([&, i] {
        pin_to(processors[i]);
        if (start.wait()) body(static_cast<int>(i));
      });
    } catch (const std::system_error&) {
      start.give_up();
      join();
      throw;
    }
  }
  join();
}

// Work that all threads together do in each window. piece(thread) does a short piece of work and
// returns its amount. Windows are counted by the clock, not by pieces, so that a thread that loses
// its processor lowers the sum of that window only.
std::vector<double> work_in_windows(const std::vector<int>& processors, int64_t window_ns,
                                    const std::function<double(int)>& piece) {
  std::vector<std::vector<double>> work(processors.size(), std::vector<double>(Probe::kWindows));
  std::atomic<int64_t> start{0};
  on_threads(processors, [&](int thread) {
    int64_t none = 0;
    start.compare_exchange_strong(none,
                                  base::wall_ns());  // the first thread sets the start for all
    for (;;) {
      const double done = piece(thread);
      const int64_t window = (base::wall_ns() - start.load()) / window_ns;
      if (window >= Probe::kWindows) return;
      work[thread][window] += done;
    }
  });
  std::vector<double> sums(Probe::kWindows);
  for (const std::vector<double>& each : work) {
    for (size_t window = 0; window < sums.size(); ++window) sums[window] += each[window];
  }
  return sums;
}

// Work per nanosecond while none of the threads is disturbed. On a machine so busy that they are in
// almost every window, the best one of several rounds counts. A round in which no piece ended was
// too short for this machine: the next one takes twice as long.
double rate(const std::vector<int>& processors, std::chrono::nanoseconds duration,
            const std::function<double(int)>& piece) {
  constexpr int kRounds = 8;
  int64_t window_ns = std::max<int64_t>(1, duration.count() / Probe::kWindows);
  double best = 0.0;
  for (int round = 1; round <= kRounds || best == 0.0; ++round) {
    std::vector<double> sums = work_in_windows(processors, window_ns, piece);
    const double max = *std::max_element(sums.begin(), sums.end());
    best = std::max(best, max / static_cast<double>(window_ns));
    const double usual = quantile_of(std::move(sums), Probe::kQuantile);
    if (usual > 0.0) return usual / static_cast<double>(window_ns);
    if (max == 0.0) window_ns *= 2;
  }
  return best;
}

// Results go here, so that the compiler cannot remove the loops that compute them.
std::atomic<uint64_t> g_sink{0};

// Bytes of all last-level caches of the machine.
uint64_t last_level_bytes(const base::Topology& topology) {
  if (topology.caches.empty()) return 0;
  const auto& cache = topology.caches.back();
  const auto cores = static_cast<int>(topology.cores.size());
  const int each = std::max(1, cache.num_cores);
  return cache.bytes * static_cast<uint64_t>(std::max(1, (cores + each - 1) / each));
}

constexpr size_t kPiece = size_t{1} << 17;  // a few µs of reading
constexpr size_t kHugePage = size_t{2} << 20;

std::byte* map_touched(size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  WIDEEP_CHECK(data != MAP_FAILED);
  ::madvise(data, bytes, MADV_HUGEPAGE);  // fails harmlessly on a kernel without huge pages
  std::memset(data, 1, bytes);
  return static_cast<std::byte*>(data);
}

// A flag and its answer, 128 bytes apart: processors prefetch cache lines in pairs.
struct Flags {
  alignas(128) std::atomic<int> ping{0};
  alignas(128) std::atomic<int> answer{0};
};

// After many looks it yields: if the other thread has lost its processor to this one, it must not
// wait for the rest of the time slice. Pairs with the release store of the flag.
void await(const std::atomic<int>& flag, int value) {
  for (int looks = 0; flag.load(std::memory_order_acquire) < value; ++looks) {
    if (looks > 10'000) std::this_thread::yield();
  }
}

// Time of one round trip in nanoseconds: the median over batches of exchanges.
double round_trip_ns(const std::vector<int>& processors) {
  constexpr int kBatches = 15, kExchanges = 100;
  Flags flags;
  std::vector<double> batches(kBatches);
  on_threads(processors, [&](int thread) {
    int next = 0;
    for (double& batch : batches) {
      const int64_t start = base::wall_ns();
      for (int i = 0; i < kExchanges; ++i) {
        ++next;
        if (thread == 0) {
          flags.ping.store(next, std::memory_order_release);
          await(flags.answer, next);
        } else {
          await(flags.ping, next);
          flags.answer.store(next, std::memory_order_release);
        }
      }
      if (thread == 0) batch = static_cast<double>(base::wall_ns() - start) / kExchanges;
    }
  });
  return quantile_of(std::move(batches), 0.5);
}

}  // namespace

std::string_view operation_name(Operation operation) {
  switch (operation) {
    case Operation::kF32:
      return "f32";
    case Operation::kBf16:
      return "bf16";
    case Operation::kInt8:
      return "int8";
  }
  return "";
}

std::vector<int> choose_processors(const base::Machine& machine, int count) {
  WIDEEP_CHECK_GE(count, 1);
  const auto is_allowed = [&](int processor) {
    return std::find(machine.allowed.begin(), machine.allowed.end(), processor) !=
           machine.allowed.end();
  };
  std::vector<int> first, others;
  for (const std::vector<int>& core : machine.topology.cores) {
    bool has_one = false;
    for (const int processor : core) {
      if (!is_allowed(processor)) continue;
      (has_one ? others : first).push_back(processor);
      has_one = true;
    }
  }
  first.insert(first.end(), others.begin(), others.end());
  if (first.empty()) first.push_back(0);
  std::vector<int> chosen(count);
  for (int i = 0; i < count; ++i) chosen[i] = first[i % first.size()];
  return chosen;
}

double Limits::gops(Operation operation) const {
  switch (operation) {
    case Operation::kF32:
      return f32_gops;
    case Operation::kBf16:
      return bf16_gops;
    case Operation::kInt8:
      return int8_gops;
  }
  return 0.0;
}

Probe::Probe(std::vector<int> processors, uint64_t bytes)
    : processors_(std::move(processors)), loops_(best_loops()) {
  WIDEEP_CHECK_GE(processors_.size(), 1u);
  if (bytes == 0) {
    const base::Machine machine = base::read_machine();
    // Buffers must be much larger than the caches. All last-level caches of the machine are
    // counted, also those of other guests' processors, but at most an eighth of the memory is used.
    const uint64_t max = machine.usable_memory_bytes() / 8;
    bytes = std::max(kSmallestBytes, std::min(max, 4 * last_level_bytes(machine.topology)));
  }
  const size_t each = (bytes / processors_.size() + kHugePage - 1) / kHugePage * kHugePage;
  buffers_.resize(processors_.size());
  on_threads(processors_, [&](int thread) { buffers_[thread] = {map_touched(each), each}; });
}

Probe::~Probe() {
  for (const Buffer& buffer : buffers_) ::munmap(buffer.data, buffer.bytes);
}

uint64_t Probe::bytes() const { return buffers_.size() * buffers_.front().bytes; }

double Probe::read_gbps() {
  std::vector<size_t> at(buffers_.size());
  return rate(processors_, duration_, [&](int thread) {
    const Buffer& buffer = buffers_[thread];
    g_sink.fetch_xor(loops_.read(buffer.data + at[thread], kPiece), std::memory_order_relaxed);
    at[thread] = (at[thread] + kPiece) % buffer.bytes;
    return static_cast<double>(kPiece);
  });
}

double Probe::copy_gbps() {
  std::vector<size_t> at(buffers_.size());
  return rate(processors_, duration_, [&](int thread) {
    const Buffer& buffer = buffers_[thread];
    const size_t half = buffer.bytes / 2;
    loops_.copy(buffer.data + at[thread], buffer.data + half + at[thread], kPiece);
    at[thread] = (at[thread] + kPiece) % half;
    return 2.0 * static_cast<double>(kPiece);
  });
}

double Probe::gops(Operation operation) {
  const Loops::Arithmetic& loop = arithmetic(loops_, operation);
  if (loop.run == nullptr) return 0.0;
  constexpr int64_t kRounds = 2000;  // some 5 µs
  return rate(processors_, duration_, [&](int) {
    g_sink.fetch_xor(loop.run(kRounds), std::memory_order_relaxed);
    return static_cast<double>(kRounds) * loop.operations_per_round;
  });
}

double Probe::flag_one_way_ns() {
  if (processors_.size() < 2 || processors_[0] == processors_[1]) return 0.0;
  return round_trip_ns({processors_[0], processors_[1]}) / 2;
}

Limits Probe::measure() {
  return {.read_gbps = read_gbps(),
          .copy_gbps = copy_gbps(),
          .f32_gops = gops(Operation::kF32),
          .bf16_gops = gops(Operation::kBf16),
          .int8_gops = gops(Operation::kInt8),
          .flag_one_way_ns = flag_one_way_ns()};
}

}  // namespace wideep::measure::limits
