// SPDX-License-Identifier: Apache-2.0
//
// A small golden model on a machine that is made up. Plans are held against each other as ranks
// compare theirs: a difference must be named with both ranks and both values. Offsets are held
// against the layouts that allocate, the KV cache against each of its limits in turn. A failure
// means that ranks start with plans that do not fit together, or that one part of a segment
// overwrites the next.
#include "run/run_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/byte_size.h"
#include "ep/strategy.h"
#include "model/config/config_testing.h"
#include "model/model_division.h"
#include "run/cache_memory.h"

namespace wideep::run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr uint64_t kGiB = uint64_t{1} << 30;

base::Machine machine_of(int cores, uint64_t bytes) {
  base::Machine machine;
  for (int i = 0; i < cores; ++i) {
    machine.topology.cores.push_back({i});
    machine.allowed.push_back(i);
  }
  machine.memory_bytes = machine.free_memory_bytes = bytes;
  return machine;
}

// Three layers, all of them MoE, over two ranks with attention data parallelism.
struct Wanted {
  Wanted() {
    options.parallel.name = "parallel.yaml";
    options.parallel.enable_attention_dp = true;
    options.parallel.sizes.tp = options.parallel.sizes.moe_ep = 2;
    model.config = *model::read_model_config(model::golden_dir("qwen3_gqa"));
    model.forms = model::uniform_forms(model.config, kernels::WeightFormat::kBf16);
    const int experts = model.config.routing.num_experts;
    model.placement.num_slots = experts;
    for (const int layer : model::moe_layers(model.config)) {
      model.placement.layers[layer] = balance::linear_placement(experts, 2).value();
    }
  }
  Result<RunPlan> plan() const { return plan_run(model, options, machine_of(2, kGiB)); }
  std::string error() const { return plan().status().message(); }

  ModelFacts model;
  RunOptions options;
};

// As ranks that a launcher has started compare theirs.
std::string difference(const Wanted& a, const Wanted& b) {
  return transport::check_settings_match(settings_of(a.plan().value()),
                                         settings_of(b.plan().value()), 3)
      .message();
}

TEST(RunPlan, CacheOfSoManyBytes) {
  Wanted wanted;
  wanted.model.config.max_position_embeddings = 1024;
  wanted.options.parallel.max_seq_len = 640;  // ten pages
  const uint64_t page = wanted.plan()->memory[0].kv_page_bytes;
  ASSERT_EQ(page_bytes_of_rank(wanted.model, wanted.options.parallel), page);
  wanted.options.cache_bytes = 25 * page + page / 2;
  EXPECT_EQ(wanted.plan()->limits.max_pages, 25);
  EXPECT_EQ(wanted.plan()->longest_sequence(), 640);
  wanted.options.cache_bytes = 10 * page;
  EXPECT_EQ(wanted.plan()->limits.max_pages, 10);

  wanted.options.cache_bytes = 10 * page - 1;
  EXPECT_EQ(wanted.error(),
            fmt::format("--kv-cache-memory: expected at least {}, for a sequence of "
                        "640 tokens on a rank, or --context 576, found {}",
                        memory_to_give(10 * page), base::byte_size(10 * page - 1)));
  // What it says to give is enough.
  const auto enough = base::parse_byte_size(memory_to_give(10 * page));
  wanted.options.cache_bytes = enough.value();
  EXPECT_GE(wanted.plan()->limits.max_pages, 10);
  wanted.options.cache_bytes = 9 * page;
  wanted.options.parallel.max_seq_len = 576;
  EXPECT_EQ(wanted.plan()->limits.max_pages, 9);
  wanted.options.cache_bytes = 1;
  EXPECT_THAT(wanted.error(), Not(HasSubstr("or --context")));
  wanted.options.cache_bytes = UINT64_MAX;
  EXPECT_GT(wanted.plan()->limits.max_pages, 1 << 20);
}

TEST(RunPlan, CacheOfSoManyBytesForKnownRequests) {
  Wanted wanted;
  const uint64_t page = wanted.plan()->memory[0].kv_page_bytes;
  wanted.options.cache_pages = 3;  // the caller's requests, which it has checked
  wanted.options.cache_bytes = 2 * page;
  EXPECT_EQ(wanted.plan()->limits.max_pages, 2);
  wanted.options.cache_bytes = page - 1;
  EXPECT_THAT(wanted.error(), HasSubstr("for a sequence of 1 tokens"));
}

TEST(RunPlan, SizesToGiveAreRoundedUp) {
  EXPECT_EQ(memory_to_give(1), "1K");
  EXPECT_EQ(memory_to_give(1024), "1K");
  EXPECT_EQ(memory_to_give(1025), "2K");
  EXPECT_EQ(memory_to_give((uint64_t{16} << 20) + 1), "17M");
}

TEST(RunPlan, AContextBeyondTheModelsIsNamedAsItWasGiven) {
  Wanted wanted;
  const int most = wanted.model.config.max_position_embeddings;
  wanted.options.parallel.max_seq_len = most + 1;
  EXPECT_THAT(wanted.error(), StartsWith("parallel.yaml: max_seq_len: expected at most"));
  wanted.options.has_context_option = true;
  EXPECT_EQ(wanted.error(),
            fmt::format("--context: expected at most the model's max_position_embeddings {}, "
                        "found {}",
                        most, most + 1));
}

TEST(RunPlan, EqualPlansMatch) { EXPECT_EQ(difference(Wanted(), Wanted()), ""); }

TEST(RunPlan, ADifferentSettingIsNamedWithBothRanksAndValues) {
  Wanted other;
  other.options.parallel.max_num_tokens = 256;
  EXPECT_EQ(difference(Wanted(), other),
            "ranks 0 and 3 differ in max_num_tokens: 512 and 256; start all ranks with the same "
            "settings");
  Wanted moved;
  std::swap(moved.model.placement.layers.begin()->second.slot_to_expert[0],
            moved.model.placement.layers.begin()->second.slot_to_expert[1]);
  EXPECT_THAT(difference(Wanted(), moved),
              HasSubstr("ranks 0 and 3 differ in moe_config.load_balancer (its content)"));
  Wanted coded;
  coded.options.parallel.moe_config.dispatch_dtype = "NVFP4";
  EXPECT_THAT(difference(Wanted(), coded), HasSubstr("moe_config.dispatch_dtype: bf16 and nvfp4"));
}

TEST(RunPlan, TheStrategyOfDispatchIsTheOneSetOrTheCheaper) {
  Wanted wanted;
  const ep::DispatchShape cheaper = wanted.plan()->dispatch;
  EXPECT_EQ(cheaper.strategy, ep::choose_strategy(cheaper).strategy);
  wanted.options.parallel.moe_config.dispatch_strategy = "PUSH";
  EXPECT_EQ(wanted.plan()->dispatch.strategy, ep::Strategy::kDispatch);
  wanted.options.parallel.moe_config.dispatch_strategy = "ALL_GATHER";
  EXPECT_EQ(wanted.plan()->dispatch.strategy, ep::Strategy::kAllGather);
  const RunPlan all_gather = wanted.plan().value();
  EXPECT_GE(all_gather.segment.dispatch, ep::BufferLayout(all_gather.dispatch).segment_bytes());
  const auto refused = dispatch_strategy(wanted.options.parallel, cheaper.strategy, true);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("parallel.yaml: moe_config.dispatch_strategy: expected auto or push where "
                        "ranks that share experts are on several nodes, found all_gather"));
  for (const char* setting : {"AUTO", "PUSH"}) {
    wanted.options.parallel.moe_config.dispatch_strategy = setting;
    EXPECT_EQ(*dispatch_strategy(wanted.options.parallel, ep::Strategy::kAllGather, true),
              ep::Strategy::kDispatch);
  }
}

TEST(RunPlan, PartsOfTheSegmentLieBehindEachOther) {
  Wanted wanted;
  wanted.options.parallel.enable_attention_dp = false;
  wanted.options.parallel.sizes.pp = 3;
  wanted.options.parallel.sizes.cp = 2;
  wanted.options.cache_pages = 5;
  const RunPlan plan = wanted.plan().value();
  const SegmentPlan& segment = plan.segment;
  EXPECT_GE(segment.joint_offset(), ep::BufferLayout(plan.dispatch).segment_bytes());
  EXPECT_EQ(segment.joint, plan.joint->bytes());
  EXPECT_EQ(segment.shards, 0u);
  EXPECT_EQ(segment.pipeline_offset(), segment.dispatch + segment.joint);
  EXPECT_GE(segment.pipeline, plan.pipeline.bytes());
  EXPECT_EQ(segment.cache_offset(), segment.logits_offset() + plan.context->bytes());
  const model::KvLayout kv(plan.model.config, plan.cache, plan.layers_of(0), 2);
  EXPECT_EQ(segment.cache, 5 * kv.page_bytes());
  EXPECT_EQ(segment.bytes(), segment.cache_offset() + segment.cache);
}

// Two key heads of delta nets in three layers; the fourth layer, of the last stage, has a cache.
TEST(RunPlan, RanksWithTheSameRequestsDivideStates) {
  Wanted wanted;
  wanted.model.config =
      *model::read_model_config(WIDEEP_SOURCE_DIR "/tests/golden/family_models/qwen3_next_plain");
  wanted.model.forms = model::uniform_forms(wanted.model.config, kernels::WeightFormat::kBf16);
  wanted.model.placement = {};
  wanted.model.placement.num_slots = wanted.model.config.routing.num_experts;
  for (const int layer : model::moe_layers(wanted.model.config)) {
    wanted.model.placement.layers[layer] =
        balance::linear_placement(wanted.model.placement.num_slots, 2).value();
  }
  const auto state_bytes = [&] { return wanted.plan().value().memory.back().state_bytes; };
  const uint64_t whole = state_bytes();
  ASSERT_GT(whole, 0u);
  wanted.options.parallel.enable_attention_dp = false;
  EXPECT_EQ(state_bytes() * 2, whole);
  wanted.options.parallel.enable_attention_dp = true;
  wanted.options.parallel.sizes.cp = 2;
  EXPECT_EQ(state_bytes() * 2, whole);
  wanted.options.parallel.sizes.pp = 2;
  const RunPlan plan = wanted.plan().value();
  ASSERT_EQ(plan.memory[0].kv_page_bytes, 0u);
  EXPECT_EQ(plan.segment.cache,
            plan.memory[1].kv_page_bytes * static_cast<uint64_t>(plan.limits.max_pages));
}

TEST(RunPlan, TheCacheIsAsLargeAsSettingsRequestsOrMemoryAllow) {
  Wanted wanted;
  const int longest = (wanted.model.config.max_position_embeddings + 63) / 64;
  EXPECT_EQ(wanted.plan()->limits.max_pages, longest * kDefaultMaxBatchSize);  // of a batch
  wanted.options.cache_share = 1e-3;
  EXPECT_LT(wanted.plan()->limits.max_pages, longest * kDefaultMaxBatchSize);
  wanted.options.cache_share = 1e-9;
  EXPECT_THAT(wanted.error(), HasSubstr("too little for a page of the KV cache"));
  wanted.options.cache_pages = 7;
  EXPECT_EQ(wanted.plan()->limits.max_pages, 7);
  EXPECT_EQ(wanted.plan()->longest_sequence(),
            std::min(7 * 64, wanted.model.config.max_position_embeddings));
  wanted.options.parallel.kv_cache_config.max_tokens = 200;
  EXPECT_EQ(wanted.plan()->limits.max_pages, 3);
  wanted.options.parallel.kv_cache_config.max_tokens = 63;
  EXPECT_THAT(wanted.error(), HasSubstr("expected at least 64, a page, found 63"));
}

TEST(RunPlan, EveryStageHasItsLayersAndItsFilesOfStatistics) {
  Wanted wanted;
  wanted.options.parallel.sizes.pp = 2;
  wanted.options.parallel.max_batch_size = 4;
  const std::vector<int> moe = model::moe_layers(wanted.model.config);
  wanted.model.placement.layers.erase(moe.front());  // a dense layer
  wanted.model.config.layers[static_cast<size_t>(moe.front())].is_moe = false;
  const RunPlan plan = wanted.plan().value();
  EXPECT_EQ(plan.memory.size(), 2u);
  EXPECT_EQ(plan.experts.stage_size, 2);
  ASSERT_EQ(plan.experts.ranks.size(), 4u);
  std::vector<int> all;
  for (int stage = 0; stage < plan.experts.num_stages(); ++stage) {
    const std::vector<int>& layers = plan.experts.layers_of_stage(stage);
    all.insert(all.end(), layers.begin(), layers.end());
  }
  EXPECT_EQ(all, std::vector<int>(moe.begin() + 1, moe.end()));
  const int with_experts = plan.experts.statistics.num_stages;
  EXPECT_EQ(plan.experts.ranks[3].file, 2 * with_experts - 1);
}

// A request of a batch has at least one token; TensorRT-LLM warns of it.
TEST(RunPlan, TokensBoundTheBatch) {
  Wanted wanted;
  wanted.options.parallel.max_num_tokens = 8;
  wanted.options.parallel.max_batch_size = 9;
  const Result<RunPlan> plan = wanted.plan();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->limits.max_batch_size, 8);
}

// How a pipeline divides the layers can be said, and not chosen.
// A chunk is to compute as long as its absent experts are read: 128 · 0.75 · 64 / 4 = 1536 tokens.
TEST(RunPlan, ChunksOfPromptsAreLongerWhereExpertsAreAbsent) {
  Wanted wanted;
  wanted.model.config.hidden_size = wanted.model.config.moe_intermediate_size = 1 << 14;
  wanted.model.config.routing.num_experts = wanted.model.placement.num_slots = 64;
  wanted.model.config.routing.top_k = 4;
  for (auto& [layer, placement] : wanted.model.placement.layers) {
    placement = balance::linear_placement(64, 2).value();
  }
  wanted.options.packed_cache = "packed";
  const auto tokens = [&](double share) {
    wanted.options.expert_memory = ExpertMemory{.bytes = 0, .share = share};
    return wanted.plan()->limits.max_num_tokens;
  };
  EXPECT_EQ(tokens(1.0), kDefaultMaxNumTokens);
  EXPECT_EQ(tokens(0.9), kDefaultMaxNumTokens);
  EXPECT_EQ(tokens(0.6), 1024);
  EXPECT_EQ(tokens(0.25), 2048);
  // Room for more tokens is a small part of that for experts.
  EXPECT_EQ(tokens(0.001), kDefaultMaxNumTokens);
  // What a user has chosen stays.
  wanted.options.prefill_chunk = 100;
  EXPECT_EQ(tokens(0.25), kDefaultMaxNumTokens);
  wanted.options.prefill_chunk = 0;
  wanted.options.parallel.max_num_tokens = 256;
  EXPECT_EQ(tokens(0.25), 256);
}

TEST(RunPlan, StagesAreAsWideepDividesThem) {
  Wanted wanted;
  wanted.options.parallel.pp_partition = {wanted.model.config.num_layers};
  EXPECT_EQ(wanted.error(), "");
  wanted.options.parallel.pp_partition = {wanted.model.config.num_layers + 1};
  EXPECT_THAT(wanted.error(), HasSubstr("parallel.yaml: pp_partition: expected ["));
}

TEST(RunPlan, SettingsThatContradictEachOtherAreErrors) {
  Wanted wanted;
  wanted.options.parallel.max_seq_len = wanted.model.config.max_position_embeddings + 1;
  EXPECT_THAT(wanted.error(), HasSubstr("max_seq_len: expected at most the model's"));
}

}  // namespace
}  // namespace wideep::run
