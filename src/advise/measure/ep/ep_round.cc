// SPDX-License-Identifier: Apache-2.0
//
// Experts of a rank return small whole numbers, which bf16 holds exactly, so start() checks every
// result and the sum of every token: the time of an exchange that loses rows would mean nothing.
// Where results lie is known only after a round: they are written then, and a second round is
// checked. Rows are normally distributed, since to code constant ones takes another time.
#include "measure/ep/ep_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/cpu_time.h"
#include "base/try.h"
#include "ep/check_shapes.h"
#include "ep/strategy.h"
#include "measure/ep/ep_check.h"

namespace wideep::measure {
namespace {

constexpr transport::Awaited kWhere{.layer = 0};

// The value of all elements that experts of a rank return: small integers, which bf16 holds
// exactly, so that sums can be checked.
float result_of(int rank) { return static_cast<float>(1 + rank % 64); }

}  // namespace

ep::DispatchShape dispatch_shape(const EpRoundSetup& setup) {
  ep::DispatchShape shape{.ep_size = setup.group.num_ranks,
                          .num_experts = setup.group.num_experts,
                          .slots_per_rank = setup.group.slots_per_rank(),
                          .top_k = setup.group.top_k,
                          .row_bytes = kernels::row_bytes(setup.rows, setup.hidden),
                          .result_bytes = kernels::row_bytes(setup.results, setup.hidden),
                          .max_tokens = std::max(1, setup.num_tokens),
                          .combine = setup.combine};
  shape.strategy = setup.strategy.value_or(ep::choose_strategy(shape).strategy);
  return shape;
}

EpRounds::EpRounds(const EpRoundSetup& setup, transport::Endpoint& endpoint)
    : setup_(setup),
      endpoint_(endpoint),
      layout_(dispatch_shape(setup)),
      exchange_(endpoint, layout_),
      sums_(setup.sum, setup.num_tokens, setup.hidden, *setup.kernels) {
  const size_t elements = static_cast<size_t>(setup.num_tokens) * setup.hidden;
  rows_ = base::AlignedBytes(elements * sizeof(Bf16));
  result_.assign(static_cast<size_t>(setup.hidden), Bf16(result_of(endpoint.rank())));
  if (kernels::is_coded(setup.rows)) {
    coded_ = base::AlignedBytes(setup.num_tokens * layout_.shape().row_bytes);
  }
  fill_rows();
}

Status EpRounds::start() {
  route();
  WIDEEP_TRY(ep::check_shapes_match(layout_.shape(), endpoint_));
  WIDEEP_TRY(exchange_.open());
  EpPhases phases;
  WIDEEP_TRY(round(&phases));  // after this round it is known where this rank's results lie
  if (!setup_.makes_results) fill_results();
  WIDEEP_TRY(endpoint_.barrier({.what = "results"}));
  sums_.clear();
  is_checked_ = true;
  WIDEEP_TRY(round(&phases));
  is_checked_ = false;
  list_copies();
  return check_sums();
}

// Hidden states are about normally distributed; the time of coding constant rows would not be
// representative.
void EpRounds::fill_rows() {
  if (setup_.num_tokens == 0) return;
  std::mt19937_64 random(setup_.group.seed);
  std::normal_distribution<float> normal;
  const auto hidden = static_cast<size_t>(setup_.hidden);
  Bf16* rows = rows_.as<Bf16>();
  for (size_t i = 0; i < hidden; ++i) rows[i] = Bf16(normal(random));
  for (int token = 1; token < setup_.num_tokens; ++token) {
    std::copy_n(rows, hidden, rows + static_cast<size_t>(token) * hidden);
  }
}

void EpRounds::route() {
  const int num_tokens = setup_.num_tokens;
  experts_ = route_tokens(setup_.group, endpoint_.rank(), num_tokens);
  weights_ = weigh_tokens(setup_.group, endpoint_.rank(), num_tokens);
  ones_.assign(static_cast<size_t>(setup_.group.top_k), 1.0f);
  counts_.assign(static_cast<size_t>(setup_.group.num_experts), 0);
  for (const int32_t expert : experts_) ++counts_[static_cast<size_t>(expert)];
  tokens_of_ranks_.assign(static_cast<size_t>(setup_.group.num_ranks), num_tokens);
}

void EpRounds::fill_results() {
  for (std::byte* place : places_of_results()) {
    setup_.kernels->encode_row(Dtype::kBf16, result_.data(), setup_.results, setup_.hidden, place);
  }
}

std::vector<std::byte*> EpRounds::places_of_results() const {
  std::vector<std::byte*> places;
  for (const ep::ReceivedToken& token : exchange_.received_tokens()) places.push_back(token.result);
  for (int slot = 0; slot < setup_.group.slots_per_rank() && !reduced(); ++slot) {
    for (const ep::ExpertRow& row : exchange_.rows_of_slot(slot)) places.push_back(row.result);
  }
  return places;
}

void EpRounds::make_results() {
  const size_t row_bytes = result_.size() * sizeof(Bf16);
  const bool coded = kernels::is_coded(setup_.results);
  if (result_places_.empty()) {  // the routing, and so the places, are the same in every round
    result_places_ = places_of_results();
    plain_results_ = base::AlignedBytes(coded ? result_places_.size() * row_bytes : 0);
  }
  for (size_t i = 0; i < result_places_.size(); ++i) {
    std::byte* place = coded ? plain_results_.data() + i * row_bytes : result_places_[i];
    std::memcpy(place, result_.data(), row_bytes);
  }
  for (size_t i = 0; i < result_places_.size() && coded; ++i) {
    setup_.kernels->encode_row(Dtype::kBf16, plain_results_.data() + i * row_bytes, setup_.results,
                               setup_.hidden, result_places_[i]);
  }
}

Status EpRounds::round(EpPhases* phases) {
  const auto now = [&] { return are_timed() ? base::wall_ns() : 0; };
  const int64_t start = now();
  WIDEEP_TRY(exchange_.begin(counts_, tokens_of_ranks_));
  const int64_t begun = now();
  const std::span<const float> weights = reduced() ? weights_ : std::span<const float>();
  WIDEEP_TRY(exchange_.dispatch(rows_to_send(), layout_.shape().row_bytes, setup_.num_tokens,
                                experts_, kWhere, weights));
  const int64_t dispatched = now();
  if (setup_.makes_results) make_results();
  WIDEEP_TRY(exchange_.combine(kWhere));
  if (is_checked_) WIDEEP_TRY(check_results());  // before a sum takes the place of one of them
  reduce();
  if (are_timed()) *phases = {begun - start, dispatched - begun, now() - dispatched};
  return {};
}

const std::byte* EpRounds::rows_to_send() {
  if (!kernels::is_coded(setup_.rows)) return rows_.data();
  const size_t row_bytes = layout_.shape().row_bytes, hidden = static_cast<size_t>(setup_.hidden);
  for (size_t token = 0; token < static_cast<size_t>(setup_.num_tokens); ++token) {
    setup_.kernels->encode_row(Dtype::kBf16, rows_.as<Bf16>() + token * hidden, setup_.rows,
                               setup_.hidden, coded_.data() + token * row_bytes);
  }
  return coded_.data();
}

// Reduced rows are already weighted sums, so their weights here are 1.
void EpRounds::reduce() {
  const size_t top_k = static_cast<size_t>(setup_.group.top_k);
  for (int token = 0; token < setup_.num_tokens; ++token) {
    const float* weights =
        reduced() ? ones_.data() : weights_.data() + static_cast<size_t>(token) * top_k;
    sums_.add_up(token, exchange_.results(token), weights, setup_.results,
                 exchange_.own_result(token));
  }
}

// The rank that computed each of exchange_.results(token): of every choice or, reduced, each once,
// in ascending order.
void EpRounds::ranks_of_results(int token, std::vector<int>* ranks) const {
  ranks->clear();
  for (int k = 0; k < setup_.group.top_k; ++k) {
    const int rank = setup_.group.rank_of(
        experts_[static_cast<size_t>(token) * static_cast<size_t>(setup_.group.top_k) + k]);
    ranks->push_back(rank);
  }
  if (!reduced()) return;
  std::ranges::sort(*ranks);
  ranks->erase(std::unique(ranks->begin(), ranks->end()), ranks->end());
}

double EpRounds::expected_sum(int token) const {
  const float* weights = weights_.data() + static_cast<ptrdiff_t>(token) * setup_.group.top_k;
  std::vector<int> ranks;
  ranks_of_results(token, &ranks);
  double sum = 0.0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    sum += (reduced() ? 1.0 : double{weights[i]}) * result_of(ranks[i]);
  }
  return sum;
}

Status EpRounds::check_results() const {
  std::vector<int> ranks;
  for (int token = 0; token < setup_.num_tokens; ++token) {
    ranks_of_results(token, &ranks);
    const std::span<const std::byte* const> results = exchange_.results(token);
    if (results.size() != ranks.size()) {
      return failed(fmt::format("rank {}, token {}: expected {} results, found {}",
                                endpoint_.rank(), token, ranks.size(), results.size()));
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      const ExpectedRow expected{setup_.results, setup_.hidden, result_of(ranks[i])};
      const Status status = check_row(expected, results[i], *setup_.kernels);
      if (status.ok()) continue;
      return failed(fmt::format("rank {}, token {}, result {} from rank {}: {}", endpoint_.rank(),
                                token, i, ranks[i], status.message()));
    }
  }
  return {};
}

Status EpRounds::check_sums() const {
  for (int token = 0; token < setup_.num_tokens; ++token) {
    const double expected = expected_sum(token);
    const int n = setup_.group.top_k;
    if (sums_.matches(token, expected, setup_.results, n)) continue;
    const double max_error = max_sum_error(setup_.results, sums_.dtype(), n);
    return failed(fmt::format("rank {}, token {}: expected a sum of {} within {:.2g}, found {}",
                              endpoint_.rank(), token, expected, max_error * expected,
                              sums_.first(token)));
  }
  return {};
}

// ---- the same bytes as plain copies ----

void EpRounds::list_copies() {
  copies_.clear();
  const ep::DispatchShape& shape = layout_.shape();
  const std::byte* all_rows = rows_to_send();
  const int64_t area = int64_t{setup_.num_tokens} * endpoint_.rank();
  std::vector<int> sent(static_cast<size_t>(shape.ep_size), 0);
  std::vector<int> last_token(static_cast<size_t>(shape.ep_size), -1);
  for (int token = 0; token < setup_.num_tokens; ++token) {
    const std::byte* row = all_rows + static_cast<size_t>(token) * shape.row_bytes;
    if (shape.strategy == ep::Strategy::kAllGather) {
      std::byte* mine = endpoint_.segment(endpoint_.rank());
      copies_.push_back({row, layout_.row(mine, 0, token), shape.row_bytes});
      continue;
    }
    for (int k = 0; k < shape.top_k; ++k) {
      const auto to = static_cast<size_t>(setup_.group.rank_of(experts_[token * shape.top_k + k]));
      if (std::exchange(last_token[to], token) == token) continue;
      if (static_cast<int>(to) == endpoint_.rank()) continue;  // a rank sends nothing to itself
      std::byte* segment = endpoint_.segment(static_cast<int>(to));
      copies_.push_back({row, layout_.row(segment, area, sent[to]++), shape.row_bytes});
    }
  }
  for (int token = 0; token < setup_.num_tokens; ++token) {
    for (const std::byte* result : exchange_.results(token)) {
      if (result == sums_.row(token)) continue;
      copies_.push_back({result, sums_.row(token), shape.result_bytes});
    }
  }
}

void EpRounds::copy_round() {
  for (const Copy& copy : copies_) std::memcpy(copy.to, copy.from, copy.bytes);
}

int64_t EpRounds::bytes_per_round() const {
  int64_t bytes = 0;
  for (const Copy& copy : copies_) bytes += static_cast<int64_t>(copy.bytes);
  return bytes;
}

}  // namespace wideep::measure
