// SPDX-License-Identifier: Apache-2.0
//
// Dispatch, a made-up expert, combine, on ranks as threads and as processes, against the same sum
// computed without any of it; whole and in chunks. Buffers start poisoned, so that reading what
// nobody wrote shows.
#include "ep/dispatch_combine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/dtype.h"
#include "base/try.h"
#include "ep/chunks.h"
#include "ep/slot_choice.h"
#include "transport/rank_processes.h"

namespace wideep::ep {
namespace {

using transport::Endpoint;
using transport::MessagePipe;

enum class Routing { kRandom, kOneHot, kZeroOnSomeRanks, kAllZero };

struct Case {
  DispatchShape shape;
  int hidden;
  Dtype dtype;
  int num_slots;
  Routing routing;
  int calls;
  bool window = false;  // shares that come with the placement
};

// The made-up expert: exactly representable whatever the row dtype's 8 bits.
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

void compute_experts(const DispatchCombine& exchange, const balance::Placement& placement, int rank,
                     const Case& c) {
  std::vector<const std::byte*> rows_of_messages(exchange.num_messages(), nullptr);
  for (int slot = 0; slot < c.shape.slots_per_rank; ++slot) {
    const int expert = placement.experts_of_rank(rank)[slot];
    for (const ExpertRow& row : exchange.rows_of_slot(slot)) {
      const std::byte*& row_of_message = rows_of_messages[row.message];
      if (row_of_message == nullptr) row_of_message = row.row;
      EXPECT_EQ(row.row, row_of_message);
      for (int i = 0; i < c.hidden; ++i) {
        if (c.dtype == Dtype::kF32) {
          const float x = reinterpret_cast<const float*>(row.row)[i];
          reinterpret_cast<float*>(row.result)[i] = expert_value(expert, x);
        } else {
          const float x = static_cast<float>(reinterpret_cast<const Bf16*>(row.row)[i]);
          reinterpret_cast<Bf16*>(row.result)[i] = Bf16(expert_value(expert, x));
        }
      }
    }
  }
  for (const std::byte* row : rows_of_messages) EXPECT_NE(row, nullptr);
}

float row_element(Dtype dtype, const std::byte* row, int i) {
  return dtype == Dtype::kF32 ? reinterpret_cast<const float*>(row)[i]
                              : static_cast<float>(reinterpret_cast<const Bf16*>(row)[i]);
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

Status check_results(const Rank& rank, TokenRange tokens, int call) {
  const auto& shape = rank.c.shape;
  for (int t = 0; t < tokens.size; ++t) {
    for (int k = 0; k < shape.top_k; ++k) {
      const int token = tokens.begin + t;
      for (int i = 0; i < rank.c.hidden; ++i) {
        const float expected =
            expert_value(rank.experts[token * shape.top_k + k], rank.x[token * rank.c.hidden + i]);
        if (row_element(rank.c.dtype, rank.exchange.results(t)[k], i) != expected) {
          return failed("rank " + std::to_string(rank.endpoint.rank()) + " call " +
                        std::to_string(call) + " token " + std::to_string(token) + " entry " +
                        std::to_string(k));
        }
      }
    }
  }
  return {};
}

// tokens_of_ranks: [ep_size] in this chunk, or empty.
Status run_chunk(Rank& rank, TokenRange tokens, std::span<const int32_t> tokens_of_ranks,
                 int call) {
  const auto& shape = rank.c.shape;
  const auto experts = std::span<const int32_t>(rank.experts)
                           .subspan(tokens.begin * shape.top_k, tokens.size * shape.top_k);
  std::vector<int32_t> counts(shape.num_experts), slots(experts.size());
  for (int32_t e : experts) ++counts[e];
  const transport::Awaited where{.layer = 0, .iteration = call};
  rank.exchange.begin(counts, tokens_of_ranks);
  if (rank.c.window) {
    rank.chooser.split_by_given_shares(0, counts);
  } else {
    WIDEEP_TRY(rank.exchange.await_counts(where));
    rank.chooser.split_by_counts(0, rank.exchange.counts_of_ranks());
  }
  rank.chooser.choose(0, experts, slots);
  const size_t row_bytes = shape.row_bytes;
  const auto* rows = rank.c.dtype == Dtype::kF32
                         ? reinterpret_cast<const std::byte*>(rank.x.data())
                         : reinterpret_cast<const std::byte*>(rank.halves.data());
  WIDEEP_TRY(rank.exchange.dispatch(rows + tokens.begin * row_bytes, row_bytes, tokens.size, slots,
                                    where));
  const auto mine = rank.exchange.counts_of_ranks().subspan(
      size_t(rank.endpoint.rank()) * shape.num_experts, counts.size());
  if (!std::equal(mine.begin(), mine.end(), counts.begin())) return failed("my own counts");
  compute_experts(rank.exchange, rank.placement, rank.endpoint.rank(), rank.c);
  WIDEEP_TRY(rank.exchange.combine(where));
  return check_results(rank, tokens, call);
}

Status run_rank(Endpoint& endpoint, const Case& c) {
  const BufferLayout layout(c.shape);
  std::memset(endpoint.segment(endpoint.rank()), 0xcd, layout.segment_bytes());
  WIDEEP_TRY(endpoint.meet({.what = "poisoned buffers"}));

  WIDEEP_TRY_ASSIGN(const auto placement,
                    balance::default_placement(c.shape.num_experts, c.shape.ep_size, c.num_slots));
  Rank rank{c,
            endpoint,
            placement,
            SlotChooser(c.shape, endpoint.rank()),
            DispatchCombine(endpoint, layout),
            {},
            {},
            {}};
  rank.chooser.set_placement(0, placement, {});
  std::mt19937 rng(endpoint.rank() * 1000 + 7);
  for (int call = 0; call < c.calls; ++call) {
    const int num_tokens = tokens_of(c, endpoint.rank(), call, rng);
    rank.experts = random_experts(num_tokens, c, rng);
    rank.x.resize(size_t(num_tokens) * c.hidden);
    for (float& value : rank.x) value = static_cast<float>(static_cast<int>(rng() % 64)) - 32.0f;
    rank.halves = std::vector<Bf16>(rank.x.begin(), rank.x.end());
    if (c.shape.max_group_tokens == 0) {
      WIDEEP_TRY(run_chunk(rank, {0, num_tokens}, {}, call));
      continue;
    }
    std::vector<transport::AgreedWords> words;
    WIDEEP_TRY(
        endpoint.agree({static_cast<uint64_t>(num_tokens)}, {.what = "numbers of tokens"}, &words));
    std::vector<int32_t> tokens;
    for (const auto& word : words) tokens.push_back(static_cast<int32_t>(word[0]));
    const int chunks = num_chunks(tokens, c.shape.max_group_tokens);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      std::vector<int32_t> in_chunk;
      for (const int32_t each : tokens) in_chunk.push_back(chunk_of(each, chunk, chunks).size);
      WIDEEP_TRY(run_chunk(rank, chunk_of(num_tokens, chunk, chunks), in_chunk, call));
    }
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

std::vector<Case> cases() {
  std::vector<Case> all;
  for (Routing routing :
       {Routing::kRandom, Routing::kOneHot, Routing::kZeroOnSomeRanks, Routing::kAllZero}) {
    for (Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
      all.push_back(make_case({1, 8, 8, 2, 20, 9}, dtype, routing, 4));
      all.push_back(make_case({2, 8, 12, 3, 33, 17}, dtype, routing, 20));
      all.push_back(make_case({4, 6, 16, 4, 16, 30}, dtype, routing, 20));
      all.push_back(make_case({8, 32, 40, 4, 64, 12}, dtype, routing, 20));
      all.push_back(make_case({8, 8, 8, 8, 24, 12}, dtype, routing, 10));
    }
    // Chunks: as few tokens as there are ranks, some more, and as many as there can be.
    for (const int64_t max_group_tokens : {8, 19, 96}) {
      Case c = make_case({8, 32, 40, 4, 64, 12}, Dtype::kBf16, routing, 6);
      c.shape.max_group_tokens = max_group_tokens;
      c.window = max_group_tokens == 19;
      all.push_back(c);
    }
    all.push_back(make_case({4, 6, 16, 4, 16, 30}, Dtype::kBf16, routing, 20));
    all.back().window = true;
  }
  all.push_back(make_case({16, 32, 48, 4, 40, 8}, Dtype::kBf16, Routing::kRandom, 20));
  return all;
}

TEST(DispatchCombine, ThreadsBringBackEveryRow) {
  for (const Case& c : cases()) {
    const auto statuses = transport::run_rank_threads(
        {.num_ranks = c.shape.ep_size, .segment_bytes = BufferLayout(c.shape).segment_bytes()},
        [&](Endpoint& endpoint) { return run_rank(endpoint, c); });
    ASSERT_TRUE(statuses.ok());
    for (const Status& status : *statuses) ASSERT_TRUE(status.ok()) << status.message();
  }
}

TEST(DispatchCombine, ProcessesBringBackEveryRow) {
  for (const Case& c : cases()) {
    const Status status = transport::run_rank_processes(
        {.num_ranks = c.shape.ep_size, .segment_bytes = BufferLayout(c.shape).segment_bytes()},
        [&](Endpoint& endpoint, const MessagePipe&) { return run_rank(endpoint, c); },
        [](int, std::string_view) {});
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

TEST(BufferLayout, BoundedTokensBoundTheSegment) {
  DispatchShape one = make_case({8, 32, 40, 4, 64, 1000}, Dtype::kBf16, Routing::kRandom, 1).shape;
  const size_t whole = BufferLayout(one).segment_bytes();
  one.max_group_tokens = 1000;
  EXPECT_NEAR(static_cast<double>(BufferLayout(one).segment_bytes()) / whole, 1.0 / 8, 0.01);
  one.max_group_tokens = 1'000'000;
  EXPECT_EQ(BufferLayout(one).segment_bytes(), whole);
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
                                    exchange.begin(std::vector<int32_t>(6), {});
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
