// SPDX-License-Identifier: Apache-2.0
//
// Where a set of buffers lies in a rank's segment, with m micro-batches in flight:
//
//   offset │ m × [header, rows]        written by the stage before
//          │ m × [count, words]        written by the last stage
//
// Micro-batch n uses set n % m, and its flag has the value n + 1. A rank writes into its peer's
// memory and then raises the flag: no copy at the receiver, and no answer that says "read", since
// the tokens of an earlier micro-batch say it already (pipeline.h).
#include "engine/pipeline.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/cpu_time.h"
#include "base/trace.h"
#include "base/try.h"

namespace wideep::engine {
namespace {

using transport::Channel;

constexpr size_t kAlignment = 64;  // a cache line: buffers of different writers do not share one

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The flag value of micro-batch `number`. Flags begin at 0, so the first value raised must be 1.
uint32_t flag_of(uint64_t number) { return static_cast<uint32_t>(number + 1); }

}  // namespace

// Lies in front of the rows of a set.
struct alignas(kAlignment) Pipeline::Header {
  int32_t num_tokens = 0;
  int32_t ends = 0;
  uint64_t num_commands = 0;
};

size_t PipelineLayout::rows_bytes() const {
  const size_t rows = static_cast<size_t>(max_tokens) * static_cast<size_t>(hidden);
  return kAlignment + aligned(rows * sizeof(float));
}

size_t PipelineLayout::tokens_bytes() const {
  return aligned(sizeof(int64_t) + static_cast<size_t>(max_words) * sizeof(int32_t));
}

size_t PipelineLayout::bytes() const {
  if (num_stages == 1) return 0;
  return static_cast<size_t>(micro_batches) * (rows_bytes() + tokens_bytes());
}

Pipeline::Pipeline(transport::Endpoint& world, std::vector<int> ranks, const PipelineLayout& layout,
                   size_t offset)
    : layout_(layout), offset_(offset) {
  if (ranks.size() == 1) return;
  ranks_.emplace(world, transport::Group::kPipeline, std::move(ranks));
  WIDEEP_CHECK_GE(world.memory().segment_bytes(), offset + layout.bytes());
}

Pipeline::Header& Pipeline::header(int rank, uint64_t number) const {
  const size_t set = number % static_cast<uint64_t>(layout_.micro_batches);
  return *reinterpret_cast<Header*>(ranks_->segment(rank) + offset_ + set * layout_.rows_bytes());
}

// Layout: an int64_t count, then that many words. Rows and tokens have separate areas because
// different stages write them.
std::byte* Pipeline::tokens(int rank, uint64_t number) const {
  const auto sets = static_cast<uint64_t>(layout_.micro_batches);
  return ranks_->segment(rank) + offset_ + sets * layout_.rows_bytes() +
         number % sets * layout_.tokens_bytes();
}

Status Pipeline::wait(Channel channel, int peer, uint64_t number,
                      const transport::Awaited& awaited) {
  const base::TraceSpan span(base::Span::kAwaitStage);
  const int64_t start_ns = base::wall_ns();
  const Status status = ranks_->wait(channel, peer, flag_of(number), awaited);
  waited_ns_ += base::wall_ns() - start_ns;
  return status;
}

Result<Pipeline::Received> Pipeline::receive(int64_t iteration) {
  const int me = ranks_->rank();
  WIDEEP_TRY(wait(Channel::kRows, me - 1, received_,
                  {.what = "rows of the stage before", .iteration = iteration}));
  const Header& found = header(me, received_++);
  return Received{.rows = reinterpret_cast<const float*>(&found + 1),
                  .num_tokens = found.num_tokens,
                  .ends = found.ends != 0,
                  .num_commands = found.num_commands};
}

float* Pipeline::next_rows() {
  return reinterpret_cast<float*>(&header(ranks_->rank() + 1, sent_) + 1);
}

void Pipeline::send(int num_tokens, bool ends, uint64_t num_commands) {
  if (is_last()) return;
  const int next = ranks_->rank() + 1;
  Header& rows = header(next, sent_);
  rows = {.num_tokens = num_tokens, .ends = ends ? 1 : 0, .num_commands = num_commands};
  const size_t bytes =
      static_cast<size_t>(num_tokens) * static_cast<size_t>(layout_.hidden) * sizeof(float);
  ranks_->forward_to(next, {reinterpret_cast<const std::byte*>(&rows), sizeof(rows) + bytes});
  // Raising the flag publishes the header and the rows: it is a release that pairs with the acquire
  // of wait() in receive().
  ranks_->raise(Channel::kRows, next, flag_of(sent_++));
}

void Pipeline::send_tokens(std::span<const int32_t> words) {
  if (!ranks_) return;
  WIDEEP_CHECK_LE(words.size(), static_cast<size_t>(layout_.max_words));
  const auto count = static_cast<int64_t>(words.size());
  // All earlier stages need the tokens, to schedule the same requests.
  for (int stage = 0; stage < ranks_->rank(); ++stage) {
    std::byte* room = tokens(stage, tokens_sent_);
    std::memcpy(room, &count, sizeof(count));
    std::copy(words.begin(), words.end(), reinterpret_cast<int32_t*>(room + sizeof(count)));
    ranks_->forward_to(stage, {room, sizeof(count) + words.size_bytes()});
  }
  ranks_->raise_all(Channel::kTokens, flag_of(tokens_sent_++));
}

Result<std::span<const int32_t>> Pipeline::receive_tokens(int64_t iteration) {
  const int last = ranks_->num_ranks() - 1;
  WIDEEP_TRY(wait(Channel::kTokens, last, tokens_received_,
                  {.what = "tokens of the last stage", .iteration = iteration}));
  const std::byte* found = tokens(ranks_->rank(), tokens_received_++);
  int64_t count = 0;
  std::memcpy(&count, found, sizeof(count));
  return std::span(reinterpret_cast<const int32_t*>(found + sizeof(count)),
                   static_cast<size_t>(count));
}

}  // namespace wideep::engine
