// SPDX-License-Identifier: Apache-2.0
//
// One thread may not wait, so all ranks are played in phases first: all announce counts, all
// dispatch, all combine, twice, because counts have two sets of memory. Later rounds raise the
// flags that the others would raise, with the number of the call, and repeat their last message
// words. Before a step is timed, what it reads is copied and that timed too: the least that the
// step can take.
#include "measure/ep/played_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/cpu_time.h"
#include "base/try.h"
#include "measure/ep/ep_routing.h"

namespace wideep::measure {
namespace {

constexpr transport::Awaited kWhere{.layer = 0};
constexpr size_t kListBytes = 64;  // of a message of up to 16 slots

}  // namespace

Result<std::unique_ptr<PlayedGroup>> PlayedGroup::create(const PlayedOptions& options) {
  if (options.num_ranks < 1 || options.num_experts % options.num_ranks != 0) {
    return invalid_input(fmt::format("ranks: expected a divisor of the {} experts, found {}",
                                     options.num_experts, options.num_ranks));
  }
  if (options.tokens < 0) {
    return invalid_input(fmt::format("tokens: expected at least 0, found {}", options.tokens));
  }
  const EpGroup group{.num_ranks = options.num_ranks,
                      .num_experts = options.num_experts,
                      .top_k = options.top_k,
                      .routing = EpRouting::kSpread};
  const size_t row_bytes = static_cast<size_t>(options.hidden) * sizeof(Bf16);
  const ep::DispatchShape shape{.ep_size = options.num_ranks,
                                .num_experts = options.num_experts,
                                .slots_per_rank = group.slots_per_rank(),
                                .top_k = options.top_k,
                                .row_bytes = row_bytes,
                                .result_bytes = row_bytes,
                                .max_tokens = std::max(1, options.tokens)};
  std::unique_ptr<PlayedGroup> played(new PlayedGroup(options, shape));
  WIDEEP_TRY_ASSIGN(played->memory_, transport::SharedMemory::create(
                                         options.num_ranks, played->layout_.segment_bytes()));
  WIDEEP_TRY_ASSIGN(played->kernels_, kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  const auto hidden = static_cast<size_t>(options.hidden);
  played->rows_.resize(static_cast<size_t>(std::max(1, options.tokens)) * hidden);
  played->sums_.resize(hidden);
  played->weights_.assign(static_cast<size_t>(options.top_k), 0.125f);
  played->totals_.resize(static_cast<size_t>(options.num_experts));
  played->tokens_of_ranks_.assign(static_cast<size_t>(options.num_ranks), options.tokens);
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    Player player;
    player.endpoint =
        std::make_unique<transport::Endpoint>(played->memory_, rank, std::chrono::seconds(10));
    player.exchange = std::make_unique<ep::DispatchCombine>(*player.endpoint, played->layout_);
    WIDEEP_TRY(player.exchange->open());
    player.experts = route_tokens(group, rank, options.tokens);
    player.counts.assign(static_cast<size_t>(options.num_experts), 0);
    for (const int32_t expert : player.experts) ++player.counts[static_cast<size_t>(expert)];
    played->players_.push_back(std::move(player));
  }
  for (int i = 0; i < 2; ++i) WIDEEP_TRY(played->play_all());  // both sets of counts are written
  played->find_lists();
  return played;
}

Status PlayedGroup::play_all() {
  ++call_;  // calls are numbered from 1
  for (Player& player : players_) {
    WIDEEP_TRY(player.exchange->begin(player.counts, tokens_of_ranks_));
    player.exchange->announce_counts();
  }
  for (Player& player : players_) {
    WIDEEP_TRY(player.exchange->await_counts(kWhere));
    WIDEEP_TRY(player.exchange->start_dispatch(rows(), layout_.shape().row_bytes, options_.tokens,
                                               player.experts));
  }
  for (Player& player : players_) {
    WIDEEP_TRY(player.exchange->finish_dispatch(kWhere));
    WIDEEP_TRY(player.exchange->start_combine());
  }
  for (Player& player : players_) WIDEEP_TRY(player.exchange->finish_combine(kWhere));
  return {};
}

// The words with the numbers of messages are those of the call before.
void PlayedGroup::raise_flags_of_others() {
  using transport::Channel;
  for (int rank = 1; rank < options_.num_ranks; ++rank) {
    transport::Endpoint& other = *players_[static_cast<size_t>(rank)].endpoint;
    const uint32_t word = players_[0].endpoint->word_from(Channel::kDispatch, rank, call_ - 1);
    other.raise_all(Channel::kPrepare, call_);
    other.set_word(Channel::kDispatch, 0, call_, word);
    other.raise_all(Channel::kDispatch, call_);
    other.raise_all(Channel::kCombine, call_);
  }
}

Status PlayedGroup::time(PlayedStep copies, const std::function<void()>& copy, PlayedStep step,
                         const std::function<Status()>& body, PlayedTimes* times) {
  const auto add = [&](PlayedStep of, int64_t ns) {
    (*times)[static_cast<size_t>(of)].push_back(static_cast<double>(ns));
  };
  const int64_t start = base::wall_ns();
  copy();
  const int64_t copied = base::wall_ns();
  WIDEEP_TRY(body());
  const int64_t end = base::wall_ns();
  if (copies != step) add(copies, copied - start);
  add(step, end - copied);
  return {};
}

Status PlayedGroup::round(PlayedTimes* times) {
  ep::DispatchCombine& exchange = *players_[0].exchange;
  ++call_;
  raise_flags_of_others();
  const auto prepare = [&]() -> Status {
    WIDEEP_TRY(exchange.begin(players_[0].counts, tokens_of_ranks_));
    exchange.announce_counts();
    return {};
  };
  WIDEEP_TRY(time(PlayedStep::kPrepare, [] {}, PlayedStep::kPrepare, prepare, times));
  WIDEEP_TRY(time(
      PlayedStep::kCopyCounts, [&] { copy_counts(); }, PlayedStep::kCounts,
      [&] { return sum_counts(); }, times));
  WIDEEP_TRY(exchange.start_dispatch(rows(), layout_.shape().row_bytes, options_.tokens,
                                     players_[0].experts));
  WIDEEP_TRY(time(
      PlayedStep::kCopyLists, [&] { copy_lists(); }, PlayedStep::kExpand,
      [&] { return exchange.finish_dispatch(kWhere); }, times));
  WIDEEP_TRY(exchange.start_combine());
  WIDEEP_TRY(exchange.finish_combine(kWhere));
  const auto add_up = [&]() -> Status {
    finalize();
    return {};
  };
  return time(
      PlayedStep::kCopyResults, [&] { copy_results(); }, PlayedStep::kFinalize, add_up, times);
}

// As the engine does where shares need the counts (ep/slot_choice.h).
Status PlayedGroup::sum_counts() {
  WIDEEP_TRY(players_[0].exchange->await_counts(kWhere));
  std::ranges::fill(totals_, 0);
  const std::span<const int32_t> all = players_[0].exchange->counts_of_ranks();
  for (size_t at = 0; at < all.size(); at += totals_.size()) {
    for (size_t expert = 0; expert < totals_.size(); ++expert) totals_[expert] += all[at + expert];
  }
  return {};
}

void PlayedGroup::copy_counts() {
  const size_t bytes = totals_.size() * sizeof(int32_t);
  copied_.resize(std::max(copied_.size(), bytes * players_.size()));
  for (size_t rank = 0; rank < players_.size(); ++rank) {
    std::byte* segment = players_[0].endpoint->segment(static_cast<int>(rank));
    std::memcpy(copied_.data() + rank * bytes, layout_.counts(segment, call_).data(), bytes);
  }
}

// A message's list is in the 64 bytes before its row. Rows of own tokens have none.
void PlayedGroup::find_lists() {
  const std::byte* own_end = rows() + rows_.size() * sizeof(Bf16);
  for (int slot = 0; slot < layout_.shape().slots_per_rank; ++slot) {
    for (const ep::ExpertRow& each : players_[0].exchange->rows_of_slot(slot)) {
      if (each.row < rows() || each.row >= own_end) lists_.push_back(each.row - kListBytes);
    }
  }
  std::ranges::sort(lists_);
  const auto rest = std::ranges::unique(lists_);
  lists_.erase(rest.begin(), rest.end());
}

void PlayedGroup::copy_lists() {
  copied_.resize(std::max(copied_.size(), lists_.size() * kListBytes));
  std::byte* to = copied_.data();
  for (const std::byte* list : lists_) {
    std::memcpy(to, list, kListBytes);
    to += kListBytes;
  }
}

void PlayedGroup::copy_results() {
  const size_t bytes = layout_.shape().result_bytes;
  const auto rows = static_cast<size_t>(options_.tokens) * static_cast<size_t>(options_.top_k);
  copied_.resize(std::max(copied_.size(), bytes * rows));
  std::byte* to = copied_.data();
  for (int token = 0; token < options_.tokens; ++token) {
    for (const std::byte* result : players_[0].exchange->results(token)) {
      std::memcpy(to, result, bytes);
      to += bytes;
    }
  }
}

void PlayedGroup::finalize() {
  for (int token = 0; token < options_.tokens; ++token) {
    kernels_->reduce_experts({.n = options_.hidden,
                              .top_k = options_.top_k,
                              .rows = players_[0].exchange->results(token).data(),
                              .weights = weights_.data(),
                              .x = sums_.data()});
  }
}

}  // namespace wideep::measure
