// SPDX-License-Identifier: Apache-2.0
//
// A MoE layer over ranks as threads: the same bits whatever bounds a dispatch and however tokens
// are shared among replicas; and what observers see.
#include "model/parts/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/cpu_time.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "kernels/kernels.h"
#include "model/model_forms.h"
#include "transport/rank_threads.h"
#include "weights/random_tensors.h"

namespace wideep::model {
namespace {

constexpr int kRanks = 4, kExperts = 8, kTopK = 3, kHidden = 32, kMaxTokens = 20;
constexpr int kIntermediate = 16;
constexpr int kIterations = 3;

ModelConfig config() {
  ModelConfig config;
  config.hidden_size = kHidden;
  config.num_layers = 1;
  config.moe_intermediate_size = kIntermediate;
  config.routing = {.num_experts = kExperts, .top_k = kTopK};
  config.layers.resize(1);
  return config;
}

struct Options {
  int64_t max_num_tokens = 0;
  int num_slots = kExperts;
  balance::ShareUpdate share_update = balance::ShareUpdate::kIteration;
  bool alike = false;  // all tokens go to the same experts
  MoeOptions moe = {};
  ep::Combine combine = ep::Combine::kExact;
  ep::Strategy strategy = ep::Strategy::kDispatch;
  int calls_in_flight = 1;
  bool every_third = false;  // only these tokens' outputs are wanted
  kernels::WeightFormat experts = kernels::WeightFormat::kBf16;
  int scale = 1;  // of the numbers of tokens
  int borrowed_slots = 0;
};

// What came out and what the observer saw, of all iterations one behind the other.
struct Outcome : MoeObserver {
  std::vector<float> x;
  std::vector<int32_t> experts, counts, group_counts, sent, slots;
  RowNoise dispatched, returned;
  int64_t shared_cpu_ns = 0, parts_cpu_ns = 0;  // of the last iteration

  void on_layer(const MoeLayerRecord& record) override {
    const auto append = [](std::vector<int32_t>& to, std::span<const int32_t> from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(experts, record.experts);
    append(counts, record.counts);
    append(group_counts, record.group_counts);
    append(sent, record.sent_entries);
    append(slots, record.slot_counts);
    dispatched.add(record.dispatched);
    returned.add(record.returned);
    shared_cpu_ns = record.shared_cpu_ns;
    parts_cpu_ns = record.experts_cpu_ns + shared_cpu_ns + record.exchange_cpu_ns;
  }
};

int tokens_of(int rank, int iteration, int scale = 1) {
  if ((rank + iteration) % 3 == 0) return 0;  // idle
  return scale * (1 + (7 * rank + 11 * iteration) % kMaxTokens);
}

// Of a rank's tokens, every third from its second on: none where there is one.
std::vector<int32_t> wanted_of(int num_tokens) {
  std::vector<int32_t> wanted;
  for (int token = 1; token < num_tokens; token += 3) wanted.push_back(token);
  return wanted;
}

std::vector<float> input_of(int rank, int iteration, bool alike, int scale = 1) {
  std::mt19937 rng(alike ? 1 : 100 * iteration + rank);
  std::normal_distribution<float> normal;
  std::vector<float> h(static_cast<size_t>(tokens_of(rank, iteration, scale)) * kHidden);
  for (size_t i = 0; i < h.size(); ++i) {
    h[i] = alike && i >= kHidden ? h[i - kHidden] : normal(rng);
  }
  return h;
}

Status run_rank(transport::Endpoint& endpoint, const Options& options,
                const ep::BufferLayout& layout, Outcome* outcome) {
  const ModelConfig model = config();
  const weights::RandomTensors tensors(5);
  const weights::WeightLoader loader(tensors, options.experts);
  const balance::ModelPlacement placement{
      .num_slots = options.num_slots,
      .layers = {{0, *balance::default_placement(kExperts, kRanks, options.num_slots)}},
      .share_update = options.share_update};
  WIDEEP_TRY_ASSIGN(ExpertSlots slots,
                    ExpertSlots::load(model, loader, placement, endpoint.rank()));
  MoeWeights weights;
  WIDEEP_TRY_ASSIGN(weights.router,
                    loader.matrix("model.layers.0.mlp.gate.weight", kExperts, kHidden,
                                  weights::default_form(kernels::WeightFormat::kF32)));
  WIDEEP_TRY_ASSIGN(weights.shared, weights::load_mlp(loader, "model.layers.0.mlp.shared_experts",
                                                      kHidden, kIntermediate));
  EXPECT_TRUE(loader.run().ok());
  base::ThreadPool pool(1);
  WIDEEP_TRY_ASSIGN(const auto host_pool,
                    weights::HostPool::create(experts_shape(model, loader, 1), 1, kExperts));
  const std::vector<int> layers = {0};
  WIDEEP_TRY(fill_host_pool(layers, loader, 0, pool, *host_pool));
  slots.read_pool(*host_pool);
  const Compute compute(*kernels::all_kernels().back(), pool);
  MoeRunner runner(model, placement, slots, endpoint, layout, options.moe);
  runner.set_observer(outcome);
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    std::vector<int32_t> tokens_of_ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      tokens_of_ranks.push_back(tokens_of(rank, iteration, options.scale));
    }
    const std::vector<float> h = input_of(endpoint.rank(), iteration, options.alike, options.scale);
    std::vector<float> x = h;
    MoeCall call{.layer = 0,
                 .iteration = iteration,
                 .num_tokens = tokens_of_ranks[endpoint.rank()],
                 .tokens_of_ranks = tokens_of_ranks,
                 .h = h.data(),
                 .x = x.data()};
    const std::vector<int32_t> wanted = wanted_of(call.num_tokens);
    if (options.every_third) call.wanted = wanted;
    const auto worked_ns = [&] { return base::thread_cpu_ns() - endpoint.waited_cpu_ns(); };
    const int64_t before = worked_ns();
    WIDEEP_TRY(runner.forward(compute, weights, call));
    // The router is in none of the parts; the first call also opens the exchange.
    if (iteration > 0) {
      EXPECT_LE(outcome->parts_cpu_ns, worked_ns() - before);
    }
    if (call.num_tokens > 0) {
      EXPECT_GT(outcome->shared_cpu_ns, 0);
    }
    outcome->x.insert(outcome->x.end(), x.begin(), x.end());
  }
  return {};
}

// [ep_size]
std::vector<Outcome> run(const Options& options) {
  const ep::BufferLayout layout({.ep_size = kRanks,
                                 .num_experts = kExperts,
                                 .slots_per_rank = options.num_slots / kRanks,
                                 .borrowed_slots = options.borrowed_slots,
                                 .top_k = kTopK,
                                 .row_bytes = row_bytes(options.moe.dispatch_format(), kHidden),
                                 .result_bytes = row_bytes(options.moe.combine_format(), kHidden),
                                 .max_tokens = options.scale * kMaxTokens,
                                 .max_group_tokens = options.max_num_tokens,
                                 .combine = options.combine,
                                 .strategy = options.strategy,
                                 .calls_in_flight = options.calls_in_flight});
  std::vector<Outcome> outcomes(kRanks);
  const auto statuses = transport::run_rank_threads(
      {.num_ranks = kRanks, .segment_bytes = layout.segment_bytes()},
      [&](transport::Endpoint& endpoint) {
        return run_rank(endpoint, options, layout, &outcomes[endpoint.rank()]);
      });
  EXPECT_TRUE(statuses.ok());
  for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.message();
  return outcomes;
}

// What `run` gives where only some tokens are wanted: of those from `all`, else the input.
std::vector<float> wanted_only(const std::vector<float>& all, int rank) {
  std::vector<float> x;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    const size_t first = x.size();
    const std::vector<float> h = input_of(rank, iteration, false);
    x.insert(x.end(), h.begin(), h.end());
    for (const int32_t token : wanted_of(tokens_of(rank, iteration))) {
      const size_t at = first + static_cast<size_t>(token) * kHidden;
      std::copy_n(all.begin() + static_cast<int64_t>(at), kHidden,
                  x.begin() + static_cast<int64_t>(at));
    }
  }
  return x;
}

constexpr auto kByIteration = balance::ShareUpdate::kIteration;
constexpr auto kByWindow = balance::ShareUpdate::kWindow;

TEST(MoeRunner, SameBitsWhateverTheChunksAndShares) {
  for (const bool alike : {false, true}) {
    const std::vector<Outcome> expected = run({.alike = alike});
    for (const Options& options :
         {Options{kRanks, kExperts, kByIteration, alike}, Options{kRanks, 16, kByIteration, alike},
          Options{13, 16, kByWindow, alike}, Options{0, 12, kByIteration, alike},
          Options{1000, 12, kByWindow, alike}}) {
      const std::vector<Outcome> found = run(options);
      for (int rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(found[rank].x, expected[rank].x)
            << "max_num_tokens " << options.max_num_tokens << ", slots " << options.num_slots;
        EXPECT_EQ(found[rank].experts, expected[rank].experts);
        EXPECT_EQ(found[rank].counts, expected[rank].counts);
        EXPECT_EQ(found[rank].group_counts, expected[rank].group_counts);
      }
    }
  }
}

// What slots get is what their experts were chosen for, and what their ranks were sent; with chunks,
// and where ranks borrow experts, whose slots are the last ones of each rank.
TEST(MoeRunner, CountsOfSlotsAddUpToThoseOfExpertsAndOfRanks) {
  for (const Options& given :
       {Options{.num_slots = 16}, Options{.max_num_tokens = 13, .num_slots = 16},
        Options{.num_slots = 16, .share_update = kByWindow, .every_third = true},
        Options{.num_slots = 16, .alike = true, .scale = 8, .borrowed_slots = 4}}) {
    Options options = given;
    for (const Outcome& rank : run(options)) EXPECT_TRUE(rank.slots.empty());  // not asked for
    options.moe.count_slots = true;
    const balance::Placement placement =
        *balance::default_placement(kExperts, kRanks, options.num_slots);
    const int own = options.num_slots / kRanks, local = own + options.borrowed_slots;
    int64_t borrowed = 0;
    for (const Outcome& rank : run(options)) {
      const size_t iterations = rank.sent.size() / kRanks;
      ASSERT_EQ(rank.slots.size(), iterations * static_cast<size_t>(kRanks * local));
      std::vector<int32_t> experts(rank.counts.size()), sent(rank.sent.size());
      for (size_t i = 0; i < rank.slots.size(); ++i) {
        const size_t iteration = i / static_cast<size_t>(kRanks * local);
        const int slot = static_cast<int>(i) % (kRanks * local), owner = slot / local;
        sent[iteration * kRanks + static_cast<size_t>(owner)] += rank.slots[i];
        if (slot % local >= own) {
          borrowed += rank.slots[i];
          continue;
        }
        const int expert =
            placement.slot_to_expert[static_cast<size_t>(owner * own + slot % local)];
        experts[iteration * kExperts + static_cast<size_t>(expert)] += rank.slots[i];
      }
      EXPECT_EQ(sent, rank.sent);
      if (options.borrowed_slots == 0) {
        EXPECT_EQ(experts, rank.counts);
      }
    }
    EXPECT_EQ(borrowed > 0, options.borrowed_slots > 0);
  }
}

// Chunks whose rows travel while those before are computed.
TEST(MoeRunner, SameBitsWhereChunksOverlap) {
  const std::vector<Outcome> expected = run({});
  for (const auto share_update : {kByIteration, kByWindow}) {
    for (const int64_t max_num_tokens : {kRanks, 13}) {
      for (const int num_slots : {kExperts, 16}) {
        const std::vector<Outcome> found = run({.max_num_tokens = max_num_tokens,
                                                .num_slots = num_slots,
                                                .share_update = share_update,
                                                .calls_in_flight = 2});
        for (int rank = 0; rank < kRanks; ++rank) {
          EXPECT_EQ(found[rank].x, expected[rank].x);
          EXPECT_EQ(found[rank].counts, expected[rank].counts);
          EXPECT_EQ(found[rank].group_counts, expected[rank].group_counts);
        }
      }
    }
  }
}

// Ranks with few rows compute those of others, with experts from the pool.
TEST(MoeRunner, SameBitsAndEvenRowsWhereRanksBorrowExperts) {
  for (const bool alike : {false, true}) {
    for (const int num_slots : {kExperts, 16}) {
      Options options{.num_slots = num_slots, .alike = alike, .scale = 8};
      const std::vector<Outcome> expected = run(options);
      options.borrowed_slots = 4;
      for (const int64_t max_num_tokens : {0, 301}) {
        options.max_num_tokens = max_num_tokens;
        options.calls_in_flight = max_num_tokens == 0 ? 1 : 2;
        const std::vector<Outcome> found = run(options);
        std::vector<int64_t> rows(kRanks, 0);
        for (int rank = 0; rank < kRanks; ++rank) {
          EXPECT_EQ(found[rank].x, expected[rank].x);
          EXPECT_EQ(found[rank].group_counts, expected[rank].group_counts);
          for (size_t i = 0; i < found[rank].sent.size(); ++i)
            rows[i % kRanks] += found[rank].sent[i];
        }
        if (max_num_tokens > 0) continue;  // the last chunk may be too small
        const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
        EXPECT_LE(std::ranges::max(rows) * kRanks, all * 103 / 100) << num_slots << alike;
      }
    }
  }
}

TEST(MoeRunner, SameBitsByEitherStrategy) {
  for (const int64_t max_num_tokens : {0, 13}) {
    const std::vector<Outcome> expected = run({.max_num_tokens = max_num_tokens});
    const std::vector<Outcome> found =
        run({.max_num_tokens = max_num_tokens, .strategy = ep::Strategy::kAllGather});
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(found[rank].x, expected[rank].x);
      EXPECT_EQ(found[rank].sent, expected[rank].sent);
    }
  }
}

// Wanted tokens get what they get among all; the others stay as they were; observers see the same.
TEST(MoeRunner, OnlyWantedTokensAreComputed) {
  const MoeOptions f32{.dispatch = kernels::RowFormat::kF32};
  for (Options options : {Options{}, Options{.max_num_tokens = 13, .num_slots = 12},
                          Options{.moe = f32}, Options{.combine = ep::Combine::kReduced},
                          Options{.max_num_tokens = 13, .strategy = ep::Strategy::kAllGather}}) {
    const std::vector<Outcome> all = run(options);
    options.every_third = true;
    const std::vector<Outcome> found = run(options);
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(found[rank].x, wanted_only(all[rank].x, rank));
      EXPECT_EQ(found[rank].experts, all[rank].experts);
      EXPECT_EQ(found[rank].counts, all[rank].counts);
      EXPECT_EQ(found[rank].group_counts, all[rank].group_counts);
      EXPECT_EQ(found[rank].sent, all[rank].sent);
    }
  }
}

double snr_db(const std::vector<float>& x, const std::vector<float>& exact) {
  double signal = 0.0, noise = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    signal += double{exact[i]} * exact[i];
    noise += (double{x[i]} - exact[i]) * (double{x[i]} - exact[i]);
  }
  return 10.0 * std::log10(signal / noise);
}

// Rows of nvfp4: other bits than bf16's, and near them; still the same for all chunks and shares.
TEST(MoeRunner, SameBitsWhereRowsTravelInLowPrecision) {
  const MoeOptions coded{.dispatch = kernels::RowFormat::kNvfp4,
                         .combine = kernels::RowFormat::kNvfp4,
                         .measure_noise = true};
  const std::vector<Outcome> plain = run({}), expected = run({.moe = coded});
  for (const Options& options : {Options{kRanks, 16, kByIteration, false, coded},
                                 Options{13, 12, kByWindow, false, coded}}) {
    const std::vector<Outcome> found = run(options);
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(found[rank].x, expected[rank].x);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const double snr = snr_db(expected[rank].x, plain[rank].x);
    EXPECT_TRUE(snr > 12.0 && snr < 60.0) << snr;
    EXPECT_NEAR(expected[rank].dispatched.snr(), 20.5, 1.5);
    EXPECT_NEAR(expected[rank].returned.snr(), 20.5, 1.5);
  }
}

// Float32 rows carry what bf16 experts take and return, and no more.
TEST(MoeRunner, RowsOfAnotherDtypeAreConverted) {
  const MoeOptions coded{.dispatch = kernels::RowFormat::kF32, .combine = kernels::RowFormat::kF32};
  const std::vector<Outcome> plain = run({}), found = run({.moe = coded});
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(found[rank].x, plain[rank].x);
}

// A row is quantised once for all experts of a rank, from what travelled in whichever form.
TEST(MoeRunner, SameBitsWhereExpertsTakeQuantizedRows) {
  constexpr auto kInt8 = kernels::WeightFormat::kInt8;
  const MoeOptions f32{.dispatch = kernels::RowFormat::kF32, .combine = kernels::RowFormat::kF32};
  const std::vector<Outcome> plain = run({});
  for (const MoeOptions& moe : {MoeOptions{}, f32}) {
    const std::vector<Outcome> expected = run({.moe = moe, .experts = kInt8});
    for (const Options& options :
         {Options{.max_num_tokens = 13, .num_slots = 16, .moe = moe, .experts = kInt8},
          Options{.moe = moe, .strategy = ep::Strategy::kAllGather, .experts = kInt8}}) {
      const std::vector<Outcome> found = run(options);
      for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(found[rank].x, expected[rank].x);
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      const double snr = snr_db(expected[rank].x, plain[rank].x);
      EXPECT_TRUE(snr > 30.0 && snr < 80.0) << snr;
    }
  }
}

int64_t sum(std::span<const int32_t> values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

TEST(MoeRunner, ObserversSeeWholeIterationsOfTheGroup) {
  const std::vector<Outcome> outcomes = run({.max_num_tokens = kRanks, .num_slots = 12});
  std::vector<int32_t> all(kIterations * kExperts, 0);
  for (const Outcome& rank : outcomes) {
    ASSERT_EQ(rank.counts.size(), all.size());  // once an iteration
    ASSERT_EQ(rank.sent.size(), static_cast<size_t>(kIterations * kRanks));
    EXPECT_EQ(sum(rank.counts), static_cast<int64_t>(rank.experts.size()));
    EXPECT_EQ(sum(rank.sent), static_cast<int64_t>(rank.experts.size()));
    for (size_t i = 0; i < all.size(); ++i) all[i] += rank.counts[i];
  }
  for (const Outcome& rank : outcomes) EXPECT_EQ(rank.group_counts, all);
}

// All tokens want the same experts: with replicas on all ranks they are spread evenly, to the
// token.
TEST(MoeRunner, ReplicasShareTheTokensOfTheIteration) {
  const std::vector<Outcome> outcomes = run({.num_slots = kRanks * kExperts, .alike = true});
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    std::vector<int32_t> received(kRanks, 0);
    for (const Outcome& rank : outcomes) {
      for (int to = 0; to < kRanks; ++to) received[to] += rank.sent[iteration * kRanks + to];
    }
    const auto [min, max] = std::minmax_element(received.begin(), received.end());
    EXPECT_LE(*max - *min, 1);
  }
}

// Rounded once per rank instead of once per expert, and summed in another order: close; in float32
// rows as close as float32 can represent.
TEST(MoeRunner, AReducedCombineIsClose) {
  for (const auto& [dtype, decibels] : {std::pair{Dtype::kBf16, 45.0}, {Dtype::kF32, 100.0}}) {
    const MoeOptions moe{.row_dtype = dtype};
    const std::vector<Outcome> exact = run({.moe = moe});
    for (const ep::Strategy strategy : {ep::Strategy::kDispatch, ep::Strategy::kAllGather}) {
      for (const int64_t max_num_tokens : {0, 13}) {
        const std::vector<Outcome> found = run({.max_num_tokens = max_num_tokens,
                                                .moe = moe,
                                                .combine = ep::Combine::kReduced,
                                                .strategy = strategy});
        for (int rank = 0; rank < kRanks; ++rank) {
          EXPECT_GT(snr_db(found[rank].x, exact[rank].x), decibels);
          EXPECT_EQ(found[rank].experts, exact[rank].experts);
        }
        if (dtype == Dtype::kBf16) {
          EXPECT_NE(found[1].x, exact[1].x);  // it is another sum
        }
      }
    }
  }
}

}  // namespace
}  // namespace wideep::model
