// SPDX-License-Identifier: Apache-2.0
//
// The limits of this machine (memory bandwidth, peak of multiply-adds, flag latency), measured in
// the process that also measures something else, so that a speed can be given as a share of its
// limit.
//
// The limits of a virtual machine change as its cores move and other guests come and go, so a limit
// only holds for the moments around its measurement. A probe is therefore short (about 50 ms per
// limit), to be repeated between measurements.
//
// Every limit is a sum over threads, each pinned to its own processor, in the same window of time:
// about 45 ms are cut into kWindows windows. In some windows another guest takes one of the
// processors, which does not show the machine's limit. So the figure is not the median over windows
// but the quantile kQuantile; without disturbance the two differ by less than two probes do.
//
//   limits::Probe probe(limits::choose_processors(base::read_machine(), 2));
//   const double before = probe.read_gbps();
//   ... what is to be measured ...
//   const double after = probe.read_gbps();
//
// Thread safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/machine.h"

namespace wideep::measure::limits {

struct Loops;  // loops.h

// The multiply-add instructions of matrix products.
enum class Operation {
  kF32,   // fused multiply-add of float32
  kBf16,  // pairs of bf16 into float32 (vdpbf16ps)
  kInt8,  // fours of int8 into int32 (vpdpbusd)
};
inline constexpr Operation kOperations[] = {Operation::kF32, Operation::kBf16, Operation::kInt8};
std::string_view operation_name(Operation operation);  // "f32", "bf16", "int8"

// The processors for `count` threads: first one hardware thread of each core, then the other ones;
// from the start again if there are more threads than processors. REQUIRES: count >= 1.
std::vector<int> choose_processors(const base::Machine& machine, int count);

struct Limits {
  double read_gbps = 0.0;  // reading memory, 10⁹ bytes per second
  double copy_gbps = 0.0;  // copying memory, bytes read plus bytes written
  // 10⁹ operations per second, a multiply-add counted as two; 0: no such instruction
  double f32_gops = 0.0;
  double bf16_gops = 0.0;
  double int8_gops = 0.0;
  double flag_one_way_ns = 0.0;  // see Probe::flag_one_way_ns

  double gops(Operation operation) const;
};

class Probe {
 public:
  static constexpr int kWindows = 30;
  static constexpr double kQuantile = 0.9;

  // One thread per entry, pinned to that processor. Allocates and touches a buffer per thread, in
  // huge pages where the kernel makes them: together four times the last-level caches, at most an
  // eighth of the usable memory, at least kSmallestBytes; this takes up to a second. bytes: that
  // total; 0: as described.
  explicit Probe(std::vector<int> processors, uint64_t bytes = 0);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  static constexpr uint64_t kSmallestBytes = 256ull << 20;

  int num_threads() const { return static_cast<int>(processors_.size()); }
  uint64_t bytes() const;  // of all buffers
  // Duration of the measurement of one limit.
  void set_duration(std::chrono::nanoseconds duration) { duration_ = duration; }

  double read_gbps();
  double copy_gbps();  // copies the first half of each buffer to the second
  // Works in registers alone. 0 if this processor has no such instruction.
  double gops(Operation operation);
  // Time from a store on one core until another core sees it, between the first two processors; 0
  // with one thread. Two cores on one die take about 20 to 60 ns, on two dies over 200.
  double flag_one_way_ns();

  Limits measure();

 private:
  struct Buffer {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };

  std::vector<int> processors_;
  const Loops& loops_;
  std::chrono::nanoseconds duration_{45'000'000};
  std::vector<Buffer> buffers_;  // one per thread
};

}  // namespace wideep::measure::limits
