// SPDX-License-Identifier: Apache-2.0
//
// Dispatch, a simple expert, combine, on ranks that are threads and processes. Results are compared
// with the same computation without any exchange: whole batches and chunks, both strategies, exact
// and reduced, whole and sliced experts. Buffers are poisoned before every iteration, so that a
// read of bytes that were not written is detected.
#include "ep/dispatch_combine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "base/dtype.h"
#include "base/sanitized.h"
#include "base/try.h"
#include "ep/check_shapes.h"
#include "ep/chunks.h"
#include "ep/slot_choice.h"
#include "group/rank_processes.h"
#include "transport/rank_threads.h"

namespace wideep::ep {
namespace {

using transport::Endpoint;
using transport::Messenger;
using transport::NodeMap;

enum class Routing { kRandom, kOneHot, kZeroOnSomeRanks, kAllZero };

struct Case {
  DispatchShape shape;
  int hidden;
  Dtype dtype;
  int num_slots;
  Routing routing;
  int calls;
  bool window = false;  // shares of the placement (split_by_given_shares)
};

// The simple expert: its results are exact in every row dtype, even with 8 bits of significand.
float expert_value(int expert, float x) { return x + static_cast<float>(expert % 16); }

std::vector<int32_t> random_experts(int num_tokens, const Case& c, std::mt19937& rng) {
  std::vector<int32_t> all(c.shape.num_experts), chosen;
  for (int e = 0; e < c.shape.num_experts; ++e) all[e] = e;
  for (int t = 0; t < num_tokens; ++t) {
    if (c.routing != Routing::kOneHot) std::shuffle(all.begin(), all.end(), rng);
    chosen.insert(chosen.end(), all.begin(), all.begin() + c.shape.top_k);
  }
  return chosen;
}

int tokens_of(const Case& c, int rank, int call, std::mt19937& rng) {
  if (c.routing == Routing::kAllZero) return 0;
  if (c.routing == Routing::kOneHot) return c.shape.max_tokens;
  if (c.routing == Routing::kZeroOnSomeRanks && (rank + call) % 2 == 0) return 0;
  return static_cast<int>(rng() % (c.shape.max_tokens + 1));
}

void set_element(Dtype dtype, std::byte* row, int i, float value) {
  if (dtype == Dtype::kF32) {
    reinterpret_cast<float*>(row)[i] = value;
  } else {
    reinterpret_cast<Bf16*>(row)[i] = Bf16(value);
  }
}

float row_element(Dtype dtype, const std::byte* row, int i) {
  return dtype == Dtype::kF32 ? reinterpret_cast<const float*>(row)[i]
                              : static_cast<float>(reinterpret_cast<const Bf16*>(row)[i]);
}

// The router weight of the k-th slot of every token.
float router_weight(int k) { return 0.25f * static_cast<float>(1 + k % 3); }

// The slice of a result that a rank computes: elements [begin, begin + size).
TokenRange slice_of(const Case& c, int rank) {
  return chunk_of(c.hidden, rank / c.shape.num_owners(), c.shape.num_slices);
}

// The results of all entries, [num_entries, hidden]: where they belong, or, reduced, only returned.
std::vector<float> compute_experts(const DispatchCombine& exchange,
                                   const balance::Placement& placement, int rank, const Case& c) {
  const TokenRange slice = slice_of(c, rank);
  const int owner = rank % c.shape.num_owners();
  std::vector<float> all(static_cast<size_t>(exchange.num_entries()) * c.hidden);
  std::vector<const std::byte*> rows_of_messages(exchange.num_messages(), nullptr);
  for (int slot = 0; slot < c.shape.slots_per_rank; ++slot) {
    const int expert = placement.experts_of_rank(owner)[slot];
    for (const ExpertRow& row : exchange.rows_of_slot(slot)) {
      const std::byte*& row_of_message = rows_of_messages[row.message];
      if (row_of_message == nullptr) row_of_message = row.row;
      EXPECT_EQ(row.row, row_of_message);
      for (int i = slice.begin; i < slice.begin + slice.size; ++i) {
        const float value = expert_value(expert, row_element(c.dtype, row.row, i));
        all[static_cast<size_t>(row.entry) * c.hidden + i] = value;
        if (c.shape.combine == Combine::kExact)
          set_element(c.dtype, row.result, i - slice.begin, value);
      }
    }
  }
  for (const std::byte* row : rows_of_messages) EXPECT_NE(row, nullptr);
  return all;
}

// Writes the result of each received token.
void reduce_here(const DispatchCombine& exchange, const Case& c, int rank,
                 const std::vector<float>& all) {
  const TokenRange slice = slice_of(c, rank);
  for (const ReceivedToken& token : exchange.received_tokens()) {
    for (int i = slice.begin; i < slice.begin + slice.size; ++i) {
      float sum = 0.0f;
      for (size_t n = 0; n < token.weights.size(); ++n) {
        sum += token.weights[n] * all[(token.first_entry + n) * c.hidden + i];
      }
      set_element(c.dtype, token.result, i - slice.begin, sum);
    }
  }
}

// A rank of the group and what it dispatches in one iteration.
struct Rank {
  const Case& c;
  Endpoint& endpoint;
  balance::Placement placement;
  SlotChooser chooser;
  DispatchCombine exchange;
  std::vector<int32_t> experts;  // [num_tokens, top_k]
  std::vector<float> x;          // [num_tokens, hidden]
  std::vector<Bf16> halves;
};

// The row sum of NodeCrossing, for the simple expert's rows.
RowSum row_sum(const Case& c) {
  return [c](std::span<const std::byte* const> rows, std::byte* sum) {
    for (int i = 0; i < c.hidden; ++i) {
      float all = 0.0f;
      for (const std::byte* row : rows) all += row_element(c.dtype, row, i);
      set_element(c.dtype, sum, i, all);
    }
  };
}

// The node of a rank if nodes send sums; else a number for each rank.
int sum_of(const Endpoint& endpoint, const DispatchShape& shape, int rank) {
  if (endpoint.is_on_this_node(rank) || shape.num_slices > 1) return -1 - rank;
  return endpoint.bridge()->nodes().node_of(endpoint.world_rank(rank));
}

// Element i of each expected result row of a token: one row per expert; if reduced, one per owner
// of its slots, or per node. slots: [top_k].
std::vector<float> expected_elements(const Rank& rank, int token, const int32_t* slots, int i) {
  const DispatchShape& shape = rank.c.shape;
  std::vector<float> values;
  std::map<int, float> sums;  // by rank
  for (int k = 0; k < shape.top_k; ++k) {
    const float value = expert_value(rank.experts[token * shape.top_k + k],
                                     rank.x[static_cast<size_t>(token) * rank.c.hidden + i]);
    values.push_back(value);
    sums[slots[k] / shape.slots_per_rank] += router_weight(k) * value;
  }
  if (shape.combine == Combine::kExact) return values;
  values.clear();
  std::map<int, size_t> place_of_sum;
  const auto rounded = [&](float sum) {
    return rank.c.dtype == Dtype::kF32 ? sum : static_cast<float>(Bf16(sum));
  };
  for (const auto& [destination, sum] : sums) {
    const auto [place, is_new] =
        place_of_sum.try_emplace(sum_of(rank.endpoint, shape, destination), values.size());
    if (is_new) values.push_back(0.0f);
    values[place->second] += rounded(sum);
  }
  for (float& value : values) value = rounded(value);
  return values;
}

// The slice that contains an element, and the slice's first element.
std::pair<int, int> slice_with(const Case& c, int element) {
  int slice = 0, begin = 0;
  for (int next = 0; next < c.shape.num_slices; ++next) {
    const int first = chunk_of(c.hidden, next, c.shape.num_slices).begin;
    if (first <= element) std::tie(slice, begin) = std::pair(next, first);
  }
  return {slice, begin};
}

// slots: [tokens of the chunk, top_k].
Status check_results(const Rank& rank, TokenRange tokens, std::span<const int32_t> slots,
                     int call) {
  for (int t = 0; t < tokens.size; ++t) {
    const auto rows = rank.exchange.results(t);
    for (int i = 0; i < rank.c.hidden; ++i) {
      const std::vector<float> expected = expected_elements(
          rank, tokens.begin + t, slots.data() + size_t(t) * rank.c.shape.top_k, i);
      const auto [slice, begin] = slice_with(rank.c, i);
      const size_t first = expected.size() * static_cast<size_t>(slice);
      bool same = rows.size() == expected.size() * static_cast<size_t>(rank.c.shape.num_slices);
      for (size_t n = 0; n < expected.size() && same; ++n) {
        same = row_element(rank.c.dtype, rows[first + n], i - begin) == expected[n];
      }
      if (same) continue;
      return failed("rank " + std::to_string(rank.endpoint.rank()) + " call " +
                    std::to_string(call) + " token " + std::to_string(tokens.begin + t) +
                    " element " + std::to_string(i));
    }
  }
  return {};
}

// The tokens of a rank in one call.
struct Chunk {
  TokenRange tokens;
  std::vector<int32_t> tokens_of_ranks;  // [ep_size], or empty
  std::vector<int32_t> counts;           // [num_experts]
  std::vector<int32_t> slots;            // [tokens, top_k]
};

Status send(Rank& rank, Chunk& chunk, const transport::Awaited& where) {
  const auto& shape = rank.c.shape;
  const auto experts =
      std::span<const int32_t>(rank.experts)
          .subspan(chunk.tokens.begin * shape.top_k, chunk.tokens.size * shape.top_k);
  chunk.counts.assign(shape.num_experts, 0);
  chunk.slots.resize(experts.size());
  for (int32_t e : experts) ++chunk.counts[e];
  WIDEEP_TRY(rank.exchange.begin(chunk.counts, chunk.tokens_of_ranks));
  if (rank.c.window) {
    rank.chooser.split_by_given_shares(0, chunk.counts);
  } else {
    WIDEEP_TRY(rank.exchange.await_counts(where));
    rank.chooser.split_by_counts(0, rank.exchange.counts_of_ranks());
  }
  rank.chooser.choose(0, experts, chunk.slots);
  const size_t row_bytes = shape.row_bytes;
  const auto* rows = rank.c.dtype == Dtype::kF32
                         ? reinterpret_cast<const std::byte*>(rank.x.data())
                         : reinterpret_cast<const std::byte*>(rank.halves.data());
  std::vector<float> weights;
  for (size_t n = 0; n < chunk.slots.size() && shape.combine == Combine::kReduced; ++n) {
    weights.push_back(router_weight(static_cast<int>(n) % shape.top_k));
  }
  return rank.exchange.start_dispatch(rows + chunk.tokens.begin * row_bytes, row_bytes,
                                      chunk.tokens.size, chunk.slots, weights);
}

void spoil(const std::byte* row, size_t bytes) {
  std::memset(const_cast<std::byte*>(row), 0xff, bytes);
}

// Overwrites this rank's messages before it raises the flag that it has read them. No rank may
// write them before that flag, so no result may change.
void spoil_messages(const Rank& rank) {
  const std::byte* mine = rank.endpoint.segment(rank.endpoint.rank());
  for (int slot = 0; slot < rank.c.shape.slots_per_rank; ++slot) {
    for (const ExpertRow& row : rank.exchange.rows_of_slot(slot)) {
      const bool in_segment =
          row.row >= mine && row.row < mine + rank.endpoint.memory().segment_bytes();
      const bool shared = rank.c.shape.strategy == Strategy::kAllGather;
      if (in_segment && !shared) spoil(row.row, rank.c.shape.row_bytes);
    }
  }
}

Status compute(Rank& rank, const Chunk& chunk, const transport::Awaited& where) {
  WIDEEP_TRY(rank.exchange.finish_dispatch(where));
  const std::span<const int32_t> mine = rank.exchange.received_counts(rank.endpoint.rank());
  if (!std::equal(mine.begin(), mine.end(), chunk.counts.begin(), chunk.counts.end())) {
    return failed("wrong own counts");
  }
  for (int peer = 0; peer < static_cast<int>(chunk.tokens_of_ranks.size()); ++peer) {
    const std::span<const int32_t> counts = rank.exchange.received_counts(peer);
    const int entries = std::accumulate(counts.begin(), counts.end(), 0);
    if (entries != chunk.tokens_of_ranks[peer] * rank.c.shape.top_k)
      return failed("wrong counts of a peer");
  }
  const std::vector<float> all =
      compute_experts(rank.exchange, rank.placement, rank.endpoint.rank(), rank.c);
  if (rank.c.shape.combine == Combine::kReduced)
    reduce_here(rank.exchange, rank.c, rank.endpoint.rank(), all);
  spoil_messages(rank);
  return rank.exchange.start_combine();
}

// own_result is set if and only if a slot of the token is on this rank, and is in private memory.
bool own_result_is_right(const Rank& rank, int token, const int32_t* slots) {
  const DispatchShape& shape = rank.c.shape;
  const int owner = rank.endpoint.rank() % shape.num_owners();
  const bool expected = std::any_of(slots, slots + shape.top_k, [&](int32_t slot) {
    return slot / shape.slots_per_rank == owner;
  });
  const std::byte* own = rank.exchange.own_result(token);
  if (!expected) return own == nullptr;
  const std::byte* mine = rank.endpoint.segment(rank.endpoint.rank());
  const auto rows = rank.exchange.results(token);
  const bool shared = own >= mine && own < mine + rank.endpoint.memory().segment_bytes();
  return !shared && std::find(rows.begin(), rows.end(), own) != rows.end();
}

// Checks the results, then overwrites them. No rank may write them before this rank's next rows
// have arrived.
Status check(Rank& rank, const Chunk& chunk, const transport::Awaited& where) {
  WIDEEP_TRY(rank.exchange.finish_combine(where));
  WIDEEP_TRY(check_results(rank, chunk.tokens, chunk.slots, static_cast<int>(where.iteration)));
  for (int t = 0; t < chunk.tokens.size; ++t) {
    const int32_t* slots = chunk.slots.data() + size_t(t) * rank.c.shape.top_k;
    if (!own_result_is_right(rank, t, slots)) return failed("a wrong own result");
    for (const std::byte* row : rank.exchange.results(t)) spoil(row, rank.c.shape.result_bytes);
  }
  return {};
}

// Runs the calls one after the other, or sends each call before the previous one is computed,
// unless that would wait.
Status run_chunks(Rank& rank, std::vector<Chunk>& chunks, int call) {
  const transport::Awaited where{.layer = 0, .iteration = call};
  const size_t in_flight = static_cast<size_t>(rank.c.shape.calls_in_flight);
  size_t sent = 0, checked = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    while (sent < chunks.size() && sent < i + in_flight) {
      if (sent >= in_flight) {
        if (sent > i && !rank.exchange.results_arrived()) break;
        WIDEEP_TRY(check(rank, chunks[checked++], where));
      }
      WIDEEP_TRY(send(rank, chunks[sent++], where));
    }
    WIDEEP_TRY(compute(rank, chunks[i], where));
  }
  while (checked < chunks.size()) WIDEEP_TRY(check(rank, chunks[checked++], where));
  return {};
}

// Poisons the buffers between two barriers, while no rank reads or writes them.
Status poison(Endpoint& endpoint, const BufferLayout& layout) {
  WIDEEP_TRY(endpoint.barrier({.what = "the end of the iteration before"}));
  std::memset(endpoint.segment(endpoint.rank()), 0xff, layout.segment_bytes());
  return endpoint.barrier({.what = "poisoned buffers"});
}

Status run_rank(Endpoint& endpoint, const Case& c) {
  const BufferLayout layout(c.shape);
  WIDEEP_TRY_ASSIGN(
      const auto placement,
      balance::default_placement(c.shape.num_experts, c.shape.num_owners(), c.num_slots));
  Rank rank{c,
            endpoint,
            placement,
            SlotChooser(c.shape, endpoint.rank()),
            DispatchCombine(endpoint, layout),
            {},
            {},
            {}};
  rank.chooser.set_placement(0, placement, {});
  rank.exchange.set_row_sum(row_sum(c));
  WIDEEP_TRY(check_shapes_match(c.shape, endpoint));
  WIDEEP_TRY(rank.exchange.open());
  std::mt19937 rng(endpoint.rank() * 1000 + 7);
  for (int call = 0; call < c.calls; ++call) {
    WIDEEP_TRY(poison(endpoint, layout));
    const int num_tokens = tokens_of(c, endpoint.rank(), call, rng);
    rank.experts = random_experts(num_tokens, c, rng);
    rank.x.resize(size_t(num_tokens) * c.hidden);
    for (float& value : rank.x) value = static_cast<float>(static_cast<int>(rng() % 64)) - 32.0f;
    rank.halves = std::vector<Bf16>(rank.x.begin(), rank.x.end());
    if (c.shape.max_group_tokens == 0) {
      std::vector<Chunk> whole = {{.tokens = {0, num_tokens}}};
      WIDEEP_TRY(run_chunks(rank, whole, call));
      continue;
    }
    std::vector<transport::AgreedWords> words;
    WIDEEP_TRY(
        endpoint.agree({static_cast<uint64_t>(num_tokens)}, {.what = "numbers of tokens"}, &words));
    std::vector<int32_t> tokens;
    for (const auto& word : words) tokens.push_back(static_cast<int32_t>(word[0]));
    const int number = num_chunks(tokens, c.shape.max_group_tokens);
    std::vector<Chunk> chunks(number);
    for (int chunk = 0; chunk < number; ++chunk) {
      chunks[chunk].tokens = chunk_of(num_tokens, chunk, number);
      for (const int32_t each : tokens) {
        chunks[chunk].tokens_of_ranks.push_back(chunk_of(each, chunk, number).size);
      }
    }
    WIDEEP_TRY(run_chunks(rank, chunks, call));
  }
  return {};
}

struct Numbers {
  int ep_size, num_experts, num_slots, top_k, hidden, max_tokens;
};

Case make_case(const Numbers& n, Dtype dtype, Routing routing, int calls) {
  const size_t row_bytes = n.hidden * dtype_bytes(dtype);
  return {.shape = {.ep_size = n.ep_size,
                    .num_experts = n.num_experts,
                    .slots_per_rank = n.num_slots / n.ep_size,
                    .top_k = n.top_k,
                    .row_bytes = row_bytes,
                    .result_bytes = row_bytes,
                    .max_tokens = n.max_tokens},
          .hidden = n.hidden,
          .dtype = dtype,
          .num_slots = n.num_slots,
          .routing = routing,
          .calls = calls};
}

// Cases with sliced experts, each on num_slices ranks.
Case sliced(Case c, int num_slices) {
  c.shape.num_slices = num_slices;
  c.shape.slots_per_rank = c.num_slots / c.shape.num_owners();
  const int longest = (c.hidden + num_slices - 1) / num_slices;
  c.shape.result_bytes = longest * dtype_bytes(c.dtype);
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (Routing routing :
       {Routing::kRandom, Routing::kOneHot, Routing::kZeroOnSomeRanks, Routing::kAllZero}) {
    for (Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
      all.push_back(make_case({1, 8, 8, 2, 20, 9}, dtype, routing, 3));
      all.push_back(make_case({2, 8, 12, 3, 33, 17}, dtype, routing, 5));
      all.push_back(make_case({4, 6, 16, 4, 16, 30}, dtype, routing, 5));
      all.push_back(make_case({8, 32, 40, 4, 64, 12}, dtype, routing, 5));
      all.push_back(make_case({8, 8, 8, 8, 24, 12}, dtype, routing, 5));
    }
    // Chunks: as few tokens as there are ranks, some more, and as many as there can be.
    for (const auto& [max_group_tokens, window, in_flight] :
         {std::tuple{8, false, 2}, {19, true, 1}, {19, false, 2}, {96, false, 1}}) {
      Case c = make_case({8, 32, 40, 4, 64, 12}, Dtype::kBf16, routing, 3);
      c.shape.max_group_tokens = max_group_tokens;
      c.shape.calls_in_flight = in_flight;
      c.window = window;
      all.push_back(c);
    }
    all.push_back(make_case({4, 6, 16, 4, 16, 30}, Dtype::kBf16, routing, 5));
    all.back().window = true;
  }
  for (const int num_slices : {2, 4, 8}) {
    all.push_back(
        sliced(make_case({8, 32, 40, 4, 70, 12}, Dtype::kF32, Routing::kRandom, 4), num_slices));
    all.push_back(sliced(
        make_case({8, 8, 8, 8, 24, 12}, Dtype::kBf16, Routing::kZeroOnSomeRanks, 4), num_slices));
    all.push_back(all.back());
    all.back().shape.max_group_tokens = 20;
    all.back().shape.calls_in_flight = 2;
  }
  all.push_back(make_case({16, 32, 48, 4, 40, 8}, Dtype::kBf16, Routing::kRandom, 5));
  all.push_back(all.back());
  all.back().shape.max_group_tokens = 20;
  all.back().shape.calls_in_flight = 2;
  return all;
}

// All cases for the plain exchange, every third case for the others.
std::vector<Case> cases_of(Combine combine, Strategy strategy) {
  const std::vector<Case> all = cases();
  const size_t step = combine == Combine::kExact && strategy == Strategy::kDispatch ? 1 : 3;
  std::vector<Case> chosen;
  for (size_t i = 0; i < all.size(); i += step) {
    chosen.push_back(all[i]);
    chosen.back().shape.combine = combine;
    chosen.back().shape.strategy = strategy;
  }
  return chosen;
}

class EveryWay : public testing::TestWithParam<std::tuple<Combine, Strategy>> {
 protected:
  static std::vector<Case> all_cases() {
    return cases_of(std::get<0>(GetParam()), std::get<1>(GetParam()));
  }
};

INSTANTIATE_TEST_SUITE_P(DispatchCombine, EveryWay,
                         testing::Combine(testing::Values(Combine::kExact, Combine::kReduced),
                                          testing::Values(Strategy::kDispatch,
                                                          Strategy::kAllGather)));

TEST_P(EveryWay, ThreadsBringBackEveryRow) {
  for (const Case& c : all_cases()) {
    const auto statuses = transport::run_rank_threads(
        {.num_ranks = c.shape.ep_size, .segment_bytes = BufferLayout(c.shape).segment_bytes()},
        [&](Endpoint& endpoint) { return run_rank(endpoint, c); });
    ASSERT_TRUE(statuses.ok());
    for (const Status& status : *statuses) ASSERT_TRUE(status.ok()) << status.message();
  }
}

// Ranks on two or three nodes of different sizes get the same results.
TEST(DispatchCombine, ThreadsOnSeveralNodesBringBackEveryRow) {
  int number = 0;
  for (const Combine combine : {Combine::kExact, Combine::kReduced}) {
    for (const Case& c : cases_of(combine, Strategy::kDispatch)) {
      if (c.shape.ep_size == 1 || (c.dtype == Dtype::kF32 && c.shape.num_slices == 1)) continue;
      for (const int num_nodes : {2, 3}) {
        if (num_nodes > c.shape.ep_size) continue;
        if (base::kSanitized && ++number % 4 != 0) continue;
        const auto statuses =
            transport::run_rank_threads({.num_ranks = c.shape.ep_size,
                                         .segment_bytes = BufferLayout(c.shape).segment_bytes(),
                                         .num_nodes = num_nodes},
                                        [&](Endpoint& endpoint) { return run_rank(endpoint, c); });
        ASSERT_TRUE(statuses.ok());
        for (const Status& status : *statuses) ASSERT_TRUE(status.ok()) << status.message();
      }
    }
  }
}

// Bytes that a rank has sent between nodes, and the least that it has to send.
struct Crossed {
  int64_t rows_bytes = 0, results_bytes = 0;
  int64_t token_nodes = 0, token_experts = 0;
};

// Each rank dispatches random tokens once.
std::vector<Crossed> cross_nodes(const Case& c, int num_nodes) {
  const BufferLayout layout(c.shape);
  std::vector<Crossed> crossed(c.shape.ep_size);
  const auto statuses = transport::run_rank_threads(
      {.num_ranks = c.shape.ep_size,
       .segment_bytes = layout.segment_bytes(),
       .num_nodes = num_nodes},
      [&](Endpoint& endpoint) -> Status {
        DispatchCombine exchange(endpoint, layout);
        exchange.set_row_sum(row_sum(c));
        WIDEEP_TRY(check_shapes_match(c.shape, endpoint));
        WIDEEP_TRY(exchange.open());
        std::mt19937 rng(endpoint.rank());
        const std::vector<int32_t> slots = random_experts(c.shape.max_tokens, c, rng);
        const std::vector<std::byte> rows(c.shape.row_bytes * c.shape.max_tokens);
        WIDEEP_TRY(exchange.begin(std::vector<int32_t>(c.shape.num_experts), {}));
        const std::vector<float> weights(c.shape.combine == Combine::kReduced ? slots.size() : 0,
                                         1.0f);
        WIDEEP_TRY(exchange.dispatch(rows.data(), c.shape.row_bytes, c.shape.max_tokens, slots, {},
                                     weights));
        WIDEEP_TRY(exchange.combine({}));
        const transport::Bridge& bridge = *endpoint.bridge();
        const NodeMap nodes = NodeMap::even(c.shape.ep_size, num_nodes);
        Crossed& mine = crossed[endpoint.rank()];
        mine = {
            .rows_bytes = static_cast<int64_t>(bridge.sent_bytes(transport::Traffic::kRows)),
            .results_bytes = static_cast<int64_t>(bridge.sent_bytes(transport::Traffic::kResults))};
        for (int token = 0; token < c.shape.max_tokens; ++token) {
          std::set<int> there;
          for (int k = 0; k < c.shape.top_k; ++k) {
            const int node =
                nodes.node_of(slots[token * c.shape.top_k + k] / c.shape.slots_per_rank);
            if (node == nodes.node_of(endpoint.rank())) continue;
            there.insert(node);
            ++mine.token_experts;
          }
          mine.token_nodes += static_cast<int64_t>(there.size());
        }
        const NodeCrossing& books = *exchange.crossing();
        return books.token_nodes() == mine.token_nodes &&
                       books.returned_rows() == (c.shape.combine == Combine::kExact
                                                     ? mine.token_experts
                                                     : mine.token_nodes)
                   ? Status()
                   : failed("the books are wrong");
      });
  for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.message();
  return crossed;
}

// With top 8 of 64 experts on 8 ranks, a token has slots on most ranks of the other node.
TEST(DispatchCombine, ARowCrossesToANodeOnce) {
  for (const int num_nodes : {2, 4}) {
    const Case c = make_case({8, 64, 64, 8, 2048, 16}, Dtype::kBf16, Routing::kRandom, 1);
    Crossed all;
    for (const Crossed& each : cross_nodes(c, num_nodes)) {
      all.rows_bytes += each.rows_bytes;
      all.results_bytes += each.results_bytes;
      all.token_nodes += each.token_nodes;
      all.token_experts += each.token_experts;
    }
    const auto row_bytes = static_cast<double>(c.shape.row_bytes);
    EXPECT_GE(all.rows_bytes, all.token_nodes * row_bytes);
    EXPECT_LE(all.rows_bytes, 1.02 * all.token_nodes * row_bytes);
    EXPECT_GE(all.results_bytes, all.token_experts * row_bytes);
    EXPECT_LE(all.results_bytes, 1.02 * all.token_experts * row_bytes);
  }
}

// Reduced: a node's ranks send back one row per token.
TEST(DispatchCombine, ASumCrossesOncePerTokenAndNode) {
  for (const int num_nodes : {2, 4}) {
    Case c = make_case({8, 64, 64, 8, 2048, 16}, Dtype::kBf16, Routing::kRandom, 1);
    c.shape.combine = Combine::kReduced;
    Crossed all;
    for (const Crossed& each : cross_nodes(c, num_nodes)) {
      all.rows_bytes += each.rows_bytes;
      all.results_bytes += each.results_bytes;
      all.token_nodes += each.token_nodes;
    }
    const auto row_bytes = static_cast<double>(c.shape.row_bytes);
    EXPECT_LE(all.rows_bytes, 1.02 * all.token_nodes * row_bytes);
    EXPECT_GE(all.results_bytes, all.token_nodes * row_bytes);
    EXPECT_LE(all.results_bytes, 1.02 * all.token_nodes * row_bytes);
  }
}

TEST_P(EveryWay, ProcessesBringBackEveryRow) {
  for (const Case& c : all_cases()) {
    if (c.routing == Routing::kOneHot) continue;
    const bool overlaps = c.shape.calls_in_flight == 2 && c.routing == Routing::kRandom;
    if (c.shape.max_group_tokens > 0 && !overlaps) continue;
    const Status status = transport::run_rank_processes(
        {.num_ranks = c.shape.ep_size, .segment_bytes = BufferLayout(c.shape).segment_bytes()},
        [&](Endpoint& endpoint, const Messenger&) { return run_rank(endpoint, c); },
        [](int, std::string_view) {});
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

TEST(BufferLayout, BoundedTokensBoundTheSegment) {
  DispatchShape one = make_case({8, 32, 40, 4, 64, 1000}, Dtype::kBf16, Routing::kRandom, 1).shape;
  const size_t whole = BufferLayout(one).segment_bytes();
  one.max_group_tokens = 1000;
  EXPECT_NEAR(static_cast<double>(BufferLayout(one).segment_bytes()) / whole, 1.0 / 8, 0.01);
  one.calls_in_flight = 2;
  EXPECT_NEAR(static_cast<double>(BufferLayout(one).segment_bytes()) / whole, 2.0 / 8, 0.01);
  one.calls_in_flight = 1;
  one.max_group_tokens = 1'000'000;
  EXPECT_EQ(BufferLayout(one).segment_bytes(), whole);
}

// ---- errors ----

// A small shape for the tests below.
DispatchShape small_shape(int ranks) {
  Case c = make_case({ranks, 6, 6, 2, 8, 4}, Dtype::kF32, Routing::kRandom, 1);
  return c.shape;
}

// Runs the body on ranks that have checked that their shapes match. Returns each rank's status.
std::vector<Status> report(const transport::GroupOptions& group,
                           const std::function<Status(Endpoint&, DispatchCombine&)>& body) {
  transport::GroupOptions options = group;
  const BufferLayout layout(small_shape(options.num_ranks));
  options.segment_bytes = layout.segment_bytes();
  const auto statuses = transport::run_rank_threads(options, [&](Endpoint& endpoint) -> Status {
    DispatchCombine exchange(endpoint, layout);
    WIDEEP_TRY(check_shapes_match(layout.shape(), endpoint));
    return body(endpoint, exchange);
  });
  return statuses.ok() ? *statuses : std::vector<Status>{statuses.status()};
}

void expect_all(const std::vector<Status>& statuses, const std::string& message) {
  for (const Status& status : statuses) EXPECT_THAT(status.message(), testing::HasSubstr(message));
}

const std::vector<int32_t> kNoCounts(6);

TEST(DispatchCombine, MoreTokensThanAnnouncedFailAllRanks) {
  const std::vector<float> rows(8 * 8);
  const std::vector<int32_t> slots = {0, 1, 2, 3, 4, 5};
  const std::vector<int32_t> tokens = {1, 2};
  const auto statuses =
      report({.num_ranks = 2}, [&](Endpoint& endpoint, DispatchCombine& exchange) -> Status {
        WIDEEP_TRY(exchange.open());
        WIDEEP_TRY(exchange.begin(kNoCounts, tokens));
        const int num_tokens = endpoint.rank() == 1 ? 3 : 1;
        return exchange.dispatch(reinterpret_cast<const std::byte*>(rows.data()), 32, num_tokens,
                                 std::span(slots).first(num_tokens * 2), {});
      });
  expect_all(statuses, "rank 1: dispatch: 3 tokens, expected at most 2");
}

TEST(DispatchCombine, MoreTokensThanTheMaximumAreRefused) {
  const std::vector<int32_t> tokens = {5, 4};
  const auto statuses = report({.num_ranks = 2}, [&](Endpoint&, DispatchCombine& exchange) {
    WIDEEP_TRY(exchange.open());
    return exchange.begin(kNoCounts, tokens);
  });
  expect_all(statuses, "begin: 9 tokens of all ranks, expected at most 8");
  const std::vector<int32_t> all_of_one = {8, 0};
  const auto of_one = report({.num_ranks = 2}, [&](Endpoint&, DispatchCombine& exchange) {
    WIDEEP_TRY(exchange.open());
    return exchange.begin(kNoCounts, all_of_one);
  });
  expect_all(of_one, "begin: 8 tokens of rank 0, expected 0 to 4");
}

// Nodes of 3, 3 and 2 ranks, two groups of 4: rank 3 is the proxy of rank 0 and of rank 6, which
// belong to different groups and reach different ranks of its node.
TEST(DispatchCombine, GroupsThatShareAProxyDoNotMixTheirRows) {
  constexpr int kTokens = 8, kCalls = 400;
  const DispatchShape shape{.ep_size = 4,
                            .num_experts = 4,
                            .slots_per_rank = 2,
                            .top_k = 1,
                            .row_bytes = 64,
                            .result_bytes = 64,
                            .max_tokens = kTokens,
                            .num_slices = 2};
  const BufferLayout layout(shape);
  const auto body = [&](Endpoint& world) -> Status {
    std::vector<int> ranks(4);
    std::iota(ranks.begin(), ranks.end(), world.rank() / 4 * 4);
    Endpoint endpoint(world, transport::Group::kExperts, ranks);
    DispatchCombine exchange(endpoint, layout);
    WIDEEP_TRY(exchange.open());
    WIDEEP_TRY(world.barrier({.what = "open"}));
    const std::vector<int32_t> counts(4);
    int64_t wrong = 0;
    for (int call = 0; call < kCalls; ++call) {
      std::vector<int64_t> rows(kTokens * 8);
      std::vector<int32_t> slots(kTokens);
      for (int t = 0; t < kTokens; ++t) {
        rows[t * 8] = world.rank() * 1'000'000 + call * 100 + t;
        slots[t] = (t + call) % shape.num_slots();
      }
      WIDEEP_TRY(exchange.begin(counts, {}));
      WIDEEP_TRY(exchange.dispatch(reinterpret_cast<const std::byte*>(rows.data()), 64, kTokens,
                                   slots, {.iteration = call}));
      for (int slot = 0; slot < shape.slots_per_rank; ++slot) {
        for (const auto& row : exchange.rows_of_slot(slot)) std::memcpy(row.result, row.row, 8);
      }
      WIDEEP_TRY(exchange.combine({.iteration = call}));
      for (int t = 0; t < kTokens; ++t) {
        for (const std::byte* result : exchange.results(t)) {
          wrong += std::memcmp(result, &rows[t * 8], 8) != 0 ? 1 : 0;
        }
      }
    }
    WIDEEP_TRY(world.barrier({.what = "end"}));
    return wrong == 0 ? Status() : failed(fmt::format("{} wrong results", wrong));
  };
  const auto ended = transport::run_rank_threads({.num_ranks = 8,
                                                  .segment_bytes = layout.segment_bytes(),
                                                  .timeout = std::chrono::milliseconds(30'000),
                                                  .num_nodes = 3},
                                                 body);
  ASSERT_TRUE(ended.ok()) << ended.status().message();
  for (const Status& status : *ended) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(DispatchCombine, SlotsThatDoNotExistAreRefused) {
  const std::vector<float> row(8);
  for (const auto& [slots, message] :
       {std::pair<std::vector<int32_t>, std::string>{{1, 6}, "token 0 has slot 6, expected 0 to 5"},
        {{-1, 0}, "token 0 has slot -1, expected 0 to 5"}}) {
    const auto statuses =
        report({.num_ranks = 2}, [&](Endpoint& endpoint, DispatchCombine& exchange) -> Status {
          WIDEEP_TRY(exchange.open());
          WIDEEP_TRY(exchange.begin(kNoCounts, {}));
          const int num_tokens = endpoint.rank() == 0 ? 1 : 0;
          return exchange.dispatch(reinterpret_cast<const std::byte*>(row.data()), 32, num_tokens,
                                   std::span(slots).first(num_tokens * 2), {});
        });
    expect_all(statuses, message);
  }
}

TEST(DispatchCombine, StepsOutOfOrderFailAllRanks) {
  using Step = std::function<Status(DispatchCombine&)>;
  const Step begin = [](DispatchCombine& e) { return e.begin(kNoCounts, {}); };
  const Step dispatch = [](DispatchCombine& e) { return e.dispatch(nullptr, 0, 0, {}, {}); };
  const Step combine = [](DispatchCombine& e) { return e.combine({}); };
  const Step open = [](DispatchCombine& e) { return e.open(); };
  const Step close = [](DispatchCombine& e) {
    e.close();
    return Status();
  };
  const std::vector<std::pair<std::vector<Step>, std::string>> runs = {
      {{begin}, "begin called before open"},
      {{open, open}, "open called between two calls"},
      {{open, combine}, "combine called between two calls"},
      {{open, begin, combine}, "combine called after begin"},
      {{open, begin, dispatch, combine, close, begin}, "begin called after close"}};
  for (const auto& [steps, message] : runs) {
    const auto statuses = report({.num_ranks = 2}, [&](Endpoint&, DispatchCombine& exchange) {
      for (const Step& step : steps) WIDEEP_TRY(step(exchange));
      return Status();
    });
    expect_all(statuses, message);
  }
}

// A library's caller may create one after the other over the same memory.
TEST(DispatchCombine, ASecondOneCanUseTheSameMemory) {
  const auto statuses =
      report({.num_ranks = 2}, [&](Endpoint& endpoint, DispatchCombine& first) -> Status {
        DispatchCombine second(endpoint, BufferLayout(small_shape(2)));
        for (DispatchCombine* each : {&first, &second}) {
          WIDEEP_TRY(check_shapes_match(small_shape(2), endpoint));
          WIDEEP_TRY(each->open());
          const std::vector<float> row(8, static_cast<float>(endpoint.rank()));
          const std::vector<int32_t> slots = {0, 3};
          WIDEEP_TRY(each->begin(kNoCounts, {}));
          WIDEEP_TRY(
              each->dispatch(reinterpret_cast<const std::byte*>(row.data()), 32, 1, slots, {}));
          if (each->num_entries() != 2) return failed("a row is missing");
          WIDEEP_TRY(each->combine({}));
          each->close();
        }
        return {};
      });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

// With one buffer set, a call may begin when the previous one has finished; with two, one call
// earlier.
TEST(DispatchCombine, TooManyCallsInFlightAreRefused) {
  for (const int in_flight : {1, 2}) {
    DispatchShape shape = small_shape(2);
    shape.calls_in_flight = in_flight;
    const BufferLayout layout(shape);
    const auto statuses =
        transport::run_rank_threads({.num_ranks = 2, .segment_bytes = layout.segment_bytes()},
                                    [&](Endpoint& endpoint) -> Status {
                                      DispatchCombine exchange(endpoint, layout);
                                      WIDEEP_TRY(exchange.open());
                                      for (int call = 0; call < in_flight; ++call) {
                                        WIDEEP_TRY(exchange.begin(kNoCounts, {}));
                                        WIDEEP_TRY(exchange.start_dispatch(nullptr, 0, 0, {}));
                                      }
                                      return exchange.begin(kNoCounts, {});
                                    });
    ASSERT_TRUE(statuses.ok());
    expect_all(*statuses, "begin called after start_dispatch, expected between two calls");
  }
}

TEST(DispatchCombine, RanksThatBeginCallsInAnotherOrderAreNamed) {
  DispatchShape shape = small_shape(2);
  shape.calls_in_flight = 2;
  const BufferLayout layout(shape);
  const auto statuses = transport::run_rank_threads(
      {.num_ranks = 2, .segment_bytes = layout.segment_bytes()}, [&](Endpoint& endpoint) -> Status {
        DispatchCombine exchange(endpoint, layout);
        WIDEEP_TRY(exchange.open());
        WIDEEP_TRY(exchange.begin(kNoCounts, {}));
        WIDEEP_TRY(exchange.start_dispatch(nullptr, 0, 0, {}));
        const auto begin_next = [&] {
          const Status begun = exchange.begin(kNoCounts, {});
          return begun.ok() ? exchange.start_dispatch(nullptr, 0, 0, {}) : begun;
        };
        if (endpoint.rank() == 0) WIDEEP_TRY(begin_next());
        WIDEEP_TRY(exchange.finish_dispatch({}));
        WIDEEP_TRY(exchange.combine({}));
        if (endpoint.rank() == 1) WIDEEP_TRY(begin_next());
        return exchange.finish_dispatch({});
      });
  ASSERT_TRUE(statuses.ok());
  for (const Status& status : *statuses) {
    EXPECT_THAT(status.message(), testing::HasSubstr("overlaps other calls than this rank"));
  }
}

// Whichever flag is missing: comparing shapes raises two, a call two.
TEST(DispatchCombine, AllRanksNameASilentRank) {
  for (const int after_raises : {1, 2, 3, 4, 5}) {
    const auto statuses = report(
        {.num_ranks = 3,
         .timeout = std::chrono::milliseconds(60),
         .faults = {{.rank = 1,
                     .kind = transport::Fault::Kind::kSilence,
                     .after_raises = after_raises}}},
        [](Endpoint&, DispatchCombine& exchange) -> Status {
          WIDEEP_TRY(exchange.open());
          for (int call = 0; call < 2; ++call) {
            WIDEEP_TRY(exchange.begin(kNoCounts, {}));
            WIDEEP_TRY(exchange.dispatch(nullptr, 0, 0, {}, {.layer = 5, .iteration = call}));
            WIDEEP_TRY(exchange.combine({.layer = 5, .iteration = call}));
          }
          return {};
        });
    expect_all(statuses, "from rank 1");
    const bool inside_call = after_raises >= 2;
    if (inside_call) expect_all(statuses, "layer 5, iteration " + std::to_string(after_raises / 4));
  }
}

TEST(DispatchCombine, ARankThatNeverDispatchesIsNamed) {
  const Case c = make_case({3, 6, 6, 2, 8, 4}, Dtype::kF32, Routing::kRandom, 1);
  const auto statuses =
      transport::run_rank_threads({.num_ranks = 3,
                                   .segment_bytes = BufferLayout(c.shape).segment_bytes(),
                                   .timeout = std::chrono::milliseconds(150)},
                                  [&](Endpoint& endpoint) -> Status {
                                    DispatchCombine exchange(endpoint, BufferLayout(c.shape));
                                    const transport::Awaited where{.layer = 5, .iteration = 9};
                                    WIDEEP_TRY(exchange.open());
                                    WIDEEP_TRY(exchange.begin(std::vector<int32_t>(6), {}));
                                    if (endpoint.rank() == 1) return {};
                                    return exchange.dispatch(nullptr, 0, 0, {}, where);
                                  });
  ASSERT_TRUE(statuses.ok());
  EXPECT_EQ((*statuses)[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE((*statuses)[0].message().find("dispatched rows from rank 1, layer 5, iteration 9"),
            std::string::npos)
      << (*statuses)[0].message();
}

}  // namespace
}  // namespace wideep::ep
