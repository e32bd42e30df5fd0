// SPDX-License-Identifier: Apache-2.0
//
// Dispatch, a made-up expert, combine, on ranks as threads and as processes, against the same sum
// computed without any of it. Buffers start poisoned, so that reading what nobody wrote shows.
#include "ep/dispatch_combine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/try.h"
#include "ep/slot_choice.h"
#include "transport/rank_processes.h"

namespace wideep::ep {
namespace {

using transport::Endpoint;
using transport::MessagePipe;

enum class Routing { kRandom, kOneHot, kZeroOnSomeRanks, kAllZero };

struct Case {
  DispatchShape shape;
  int num_slots;
  Routing routing;
  int calls;
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
                     const DispatchShape& shape) {
  for (int slot = 0; slot < shape.slots_per_rank; ++slot) {
    const int expert = placement.experts_of_rank(rank)[slot];
    for (const ExpertRow& row : exchange.rows_of_slot(slot)) {
      for (int i = 0; i < shape.hidden; ++i) {
        if (shape.row_dtype == Dtype::kF32) {
          const float x = reinterpret_cast<const float*>(row.hidden)[i];
          reinterpret_cast<float*>(row.result)[i] = expert_value(expert, x);
        } else {
          const float x = static_cast<float>(reinterpret_cast<const Bf16*>(row.hidden)[i]);
          reinterpret_cast<Bf16*>(row.result)[i] = Bf16(expert_value(expert, x));
        }
      }
    }
  }
}

float row_element(Dtype dtype, const std::byte* row, int i) {
  return dtype == Dtype::kF32 ? reinterpret_cast<const float*>(row)[i]
                              : static_cast<float>(reinterpret_cast<const Bf16*>(row)[i]);
}

Status run_rank(Endpoint& endpoint, const Case& c) {
  const BufferLayout layout(c.shape);
  const int rank = endpoint.rank();
  std::memset(endpoint.segment(rank), 0xcd, layout.segment_bytes());
  WIDEEP_TRY(endpoint.meet({.what = "poisoned buffers"}));

  WIDEEP_TRY_ASSIGN(const auto placement,
                    balance::default_placement(c.shape.num_experts, c.shape.ep_size, c.num_slots));
  const auto table = balance::make_routing_table(placement);
  DispatchCombine exchange(endpoint, layout);
  SlotChooser chooser;
  std::mt19937 rng(rank * 1000 + 7);
  for (int call = 0; call < c.calls; ++call) {
    const int num_tokens = tokens_of(c, rank, call, rng);
    const auto experts = random_experts(num_tokens, c, rng);
    std::vector<int32_t> counts(c.shape.num_experts), slots(experts.size());
    for (int32_t e : experts) ++counts[e];
    std::vector<float> x(size_t(num_tokens) * c.shape.hidden);
    for (float& value : x) value = static_cast<float>(static_cast<int>(rng() % 64)) - 32.0f;
    std::vector<Bf16> halves(x.begin(), x.end());
    const bool wide = c.shape.row_dtype == Dtype::kF32;
    const auto* rows = wide ? reinterpret_cast<const std::byte*>(x.data())
                            : reinterpret_cast<const std::byte*>(halves.data());

    const transport::Awaited where{.layer = 0, .iteration = call};
    WIDEEP_TRY(exchange.prepare(counts, where));
    const auto mine = exchange.counts_of(rank);
    if (!std::equal(mine.begin(), mine.end(), counts.begin())) return failed("my own counts");
    chooser.choose(table, experts, rank, slots);
    WIDEEP_TRY(exchange.dispatch(rows, c.shape.hidden * dtype_bytes(c.shape.row_dtype), num_tokens,
                                 slots, where));
    compute_experts(exchange, placement, rank, c.shape);
    WIDEEP_TRY(exchange.combine(where));
    for (int t = 0; t < num_tokens; ++t) {
      for (int k = 0; k < c.shape.top_k; ++k) {
        for (int i = 0; i < c.shape.hidden; ++i) {
          const float expected =
              expert_value(experts[t * c.shape.top_k + k], x[t * c.shape.hidden + i]);
          if (row_element(c.shape.row_dtype, exchange.results(t)[k], i) != expected) {
            return failed("rank " + std::to_string(rank) + " call " + std::to_string(call) +
                          " token " + std::to_string(t) + " entry " + std::to_string(k));
          }
        }
      }
    }
  }
  return {};
}

DispatchShape shape(int ep_size, int num_experts, int num_slots, int top_k, int hidden,
                    int max_tokens, Dtype dtype) {
  return {ep_size, num_experts, num_slots / ep_size, top_k, hidden, max_tokens, dtype};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (Routing routing :
       {Routing::kRandom, Routing::kOneHot, Routing::kZeroOnSomeRanks, Routing::kAllZero}) {
    for (Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
      all.push_back({shape(1, 8, 8, 2, 20, 9, dtype), 8, routing, 4});
      all.push_back({shape(2, 8, 12, 3, 33, 17, dtype), 12, routing, 20});
      all.push_back({shape(4, 6, 16, 4, 16, 30, dtype), 16, routing, 20});
      all.push_back({shape(8, 32, 40, 4, 64, 12, dtype), 40, routing, 20});
      all.push_back({shape(8, 8, 8, 8, 24, 12, dtype), 8, routing, 10});
    }
  }
  all.push_back({shape(16, 32, 48, 4, 40, 8, Dtype::kBf16), 48, Routing::kRandom, 20});
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

TEST(DispatchCombine, ARankThatNeverDispatchesIsNamed) {
  const Case c{shape(3, 6, 6, 2, 8, 4, Dtype::kF32), 6, Routing::kRandom, 1};
  const auto statuses =
      transport::run_rank_threads({.num_ranks = 3,
                                   .segment_bytes = BufferLayout(c.shape).segment_bytes(),
                                   .timeout = std::chrono::milliseconds(150)},
                                  [&](Endpoint& endpoint) -> Status {
                                    DispatchCombine exchange(endpoint, BufferLayout(c.shape));
                                    const transport::Awaited where{.layer = 5, .iteration = 9};
                                    WIDEEP_TRY(exchange.prepare(std::vector<int32_t>(6), where));
                                    if (endpoint.rank() == 1) return {};
                                    return exchange.dispatch(nullptr, 0, 0, {}, where);
                                  });
  ASSERT_TRUE(statuses.ok());
  EXPECT_EQ((*statuses)[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE((*statuses)[0].message().find("dispatched rows from rank 1, layer 5, iteration 9"),
            std::string::npos)
      << (*statuses)[0].message();
}

TEST(SlotChooser, TakesReplicasInTurnFromTheOffset) {
  const balance::Placement placement{3, 2, {0, 1, 0, 2, 0, 0}};
  const auto table = balance::make_routing_table(placement);
  const std::vector<int32_t> experts = {0, 1, 0, 2, 0, 0, 0, 0};
  std::vector<int32_t> slots(experts.size());
  SlotChooser().choose(table, experts, 1, slots);
  EXPECT_EQ(slots, (std::vector<int32_t>{2, 1, 4, 3, 5, 0, 2, 4}));
}

}  // namespace
}  // namespace wideep::ep
