// SPDX-License-Identifier: Apache-2.0
#include "measure/ep/ep_board.h"

#include <algorithm>
#include <limits>

#include "base/try.h"

namespace wideep::measure {
namespace {

constexpr size_t kLine = 128;  // two cache lines: processors prefetch them in pairs
constexpr size_t kHeaderBytes = 3 * kLine;

double microseconds(int64_t ns) { return static_cast<double>(ns) * 1e-3; }

// Median over rounds of the largest value over ranks: a round is over when its slowest rank is.
template <typename Get>
double slowest(const EpBoard& board, int num_ranks, Get get) {
  std::vector<double> values(static_cast<size_t>(board.num_rounds()), 0.0);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::max(values[i], microseconds(get(board.block(rank).rounds[i])));
    }
  }
  return median_of(std::move(values));
}

}  // namespace

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Result<EpBoard> EpBoard::create(int num_ranks) {
  EpBoard board;
  const size_t bytes = kHeaderBytes + static_cast<size_t>(num_ranks) * sizeof(EpRankBlock);
  WIDEEP_TRY_ASSIGN(board.bytes_, base::SharedBytes::create("timings", bytes));
  return board;
}

int& EpBoard::num_rounds() const { return *reinterpret_cast<int*>(bytes_.data()); }

std::atomic<uint32_t>& EpBoard::ping_pong_flag(int rank) const {
  std::byte* line = bytes_.data() + kLine * static_cast<size_t>(1 + rank);
  return *reinterpret_cast<std::atomic<uint32_t>*>(line);
}

EpRankBlock& EpBoard::block(int rank) const {
  return reinterpret_cast<EpRankBlock*>(bytes_.data() + kHeaderBytes)[rank];
}

EpBlock block_of_group(const EpBoard& board, int num_ranks) {
  EpBlock block{.num_rounds = board.num_rounds()};
  block.round = slowest(board, num_ranks, [](const EpPhases& p) { return p.all(); });
  block.prepare = slowest(board, num_ranks, [](const EpPhases& p) { return p.prepare; });
  block.dispatch = slowest(board, num_ranks, [](const EpPhases& p) { return p.dispatch; });
  block.combine = slowest(board, num_ranks, [](const EpPhases& p) { return p.combine; });
  int64_t start = std::numeric_limits<int64_t>::max(), end = 0;
  const double rounds = block.num_rounds, rank_rounds = rounds * num_ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const EpRankBlock& mine = board.block(rank);
    start = std::min(start, mine.start_ns);
    end = std::max(end, mine.end_ns);
    block.cpu += microseconds(mine.cpu_ns) / rank_rounds;
    block.wait_cpu += microseconds(mine.wait_ns) / rank_rounds;
    block.bytes += static_cast<double>(mine.bytes);
  }
  block.mean = microseconds(end - start) / rounds;
  return block;
}

}  // namespace wideep::measure
