// SPDX-License-Identifier: Apache-2.0
#include "weights/read_bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/check.h"
#include "base/cpu_time.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "weights/direct_input.h"

namespace wideep::weights {
namespace {

struct DrawnPiece {
  uint64_t offset;
  uint64_t bytes;
};

// Other records in each measurement: the same ones would come from memory of the host.
std::vector<DrawnPiece> draw_pieces(const BandwidthProbe& probe, uint64_t num_records) {
  std::mt19937_64 rng(static_cast<uint64_t>(base::wall_ns()));
  std::vector<DrawnPiece> pieces;
  for (uint64_t drawn = 0; drawn < probe.num_bytes; drawn += probe.record_bytes) {
    const uint64_t begin = rng() % num_records * probe.record_bytes;
    for (uint64_t at = 0; at < probe.record_bytes; at += probe.piece_bytes) {
      pieces.push_back({begin + at, std::min(probe.piece_bytes, probe.record_bytes - at)});
    }
  }
  return pieces;
}

// A piece for each thread, in huge pages as the slots of experts, and there before the clock runs.
class PieceMemory {
 public:
  PieceMemory(int pieces, uint64_t piece_bytes)
      : piece_bytes_(piece_bytes),
        bytes_(static_cast<uint64_t>(pieces) * piece_bytes + 2 * kHugePageBytes) {
    std::memset(bytes_.data(), 1, bytes_.size());
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    first_ = bytes_.data() + (kHugePageBytes - address % kHugePageBytes);
  }
  std::byte* at(int64_t piece) { return first_ + static_cast<uint64_t>(piece) * piece_bytes_; }

 private:
  static constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

  uint64_t piece_bytes_;
  base::AlignedBytes bytes_;
  std::byte* first_;
};

}  // namespace

Result<double> measure_read_bandwidth(const std::string& path, const BandwidthProbe& probe) {
  WIDEEP_CHECK(probe.num_bytes > 0 && probe.record_bytes > 0 && probe.piece_bytes > 0);
  WIDEEP_CHECK_EQ(probe.record_bytes % DirectInput::kBlockBytes, 0u);
  WIDEEP_TRY_ASSIGN(const DirectInput input, DirectInput::open(path));
  const uint64_t num_records = input.size() / probe.record_bytes;
  if (num_records == 0) {
    return invalid_input(fmt::format("{}: has {} bytes, fewer than a record of {}", path,
                                     input.size(), probe.record_bytes));
  }
  const std::vector<DrawnPiece> pieces = draw_pieces(probe, num_records);
  PieceMemory memory(probe.depth, probe.piece_bytes);
  std::atomic<size_t> next_piece = 0;
  std::atomic<int> error = 0;
  const auto read = [&](int64_t thread, int64_t) {
    for (size_t i = next_piece++; i < pieces.size() && error == 0; i = next_piece++) {
      const int found = input.read(pieces[i].offset, memory.at(thread), pieces[i].bytes);
      if (found != 0) error = found;
    }
  };
  base::ThreadPool threads(probe.depth);
  const int64_t begin_ns = base::wall_ns();
  threads.parallel_for(probe.depth, 1, read);
  const double seconds = static_cast<double>(base::wall_ns() - begin_ns) * 1e-9;
  if (error != 0) return failed(fmt::format("{}: {}", path, std::strerror(error)));
  uint64_t bytes = 0;
  for (const DrawnPiece& each : pieces) bytes += each.bytes;
  return static_cast<double>(bytes) / seconds;
}

}  // namespace wideep::weights
