// SPDX-License-Identifier: Apache-2.0
//
// A file with every key, most of them not at their default, shows that none is dropped; then each
// mistake has its message. Reading and check_supported are held apart: what TensorRT-LLM takes and
// wideep does not compute is refused by name, not as a mistake. A failure is a setting without
// effect of which nobody was told.
#include "parallel/parallel_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace wideep::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string complaint_of(const std::string& text) {
  const Result<ParallelConfig> config = parse_parallel_config(text, "config.yaml");
  if (config.ok()) return "accepted";
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(config.status().message(), HasSubstr("config.yaml"));
  return config.status().message();
}

std::string unsupported(const std::string& text) {
  const Result<ParallelConfig> config = parse_parallel_config(text, "config.yaml");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? check_supported(*config).message() : "";
}

constexpr const char* kWideEp =
    "tensor_parallel_size: 8\n"
    "enable_attention_dp: true\n"
    "moe_expert_parallel_size: 8\n";

TEST(ParallelConfig, ReadsEveryKey) {
  const Result<ParallelConfig> config = parse_parallel_config(
      std::string(kWideEp) +
          "pipeline_parallel_size: 1\n"
          "context_parallel_size: 1\n"
          "moe_tensor_parallel_size: 1\n"
          "moe_cluster_parallel_size: 1\n"
          "attention_dp_config: {enable_balance: true, timeout_iters: 7, batching_wait_iters: 3}\n"
          "enable_lm_head_tp_in_adp: true\n"
          "moe_config:\n"
          "  backend: cutlass\n"
          "  max_num_tokens: 9216\n"
          "  use_low_precision_moe_combine: true\n"
          "  dispatch_dtype: fp8\n"
          "  combine_dtype: nvfp4\n"
          "  combine: reduced\n"
          "  dispatch_strategy: all_gather\n"
          "  disable_finalize_fusion: true\n"
          "  load_balancer: ./moe_load_balancer.yaml\n"
          "max_batch_size: 16\n"
          "max_num_tokens: 512\n"
          "max_seq_len: 4096\n"
          "enable_chunked_prefill: true\n"
          "kv_cache_config: {tokens_per_block: 64, max_tokens: 100000, enable_block_reuse: false,\n"
          "                  free_gpu_memory_fraction: 0.5, dtype: fp8}\n"
          "scheduler_config: {capacity_scheduler_policy: max_utilization}\n",
      "config.yaml");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->name, "config.yaml");
  EXPECT_EQ(config->mapping().world_size(), 8);
  EXPECT_EQ(config->sizes.moe_ep, 8);
  EXPECT_EQ(config->sizes.moe_tp, 1);
  EXPECT_TRUE(config->enable_attention_dp);
  EXPECT_TRUE(config->enable_lm_head_tp_in_adp);
  ASSERT_TRUE(config->attention_dp_config.has_value());
  EXPECT_TRUE(config->attention_dp_config->enable_balance);
  EXPECT_EQ(config->attention_dp_config->timeout_iters, 7);
  EXPECT_EQ(config->attention_dp_config->batching_wait_iters, 3);
  EXPECT_EQ(config->moe_config.backend, "CUTLASS");
  EXPECT_EQ(config->moe_config.max_num_tokens, 9216);
  EXPECT_TRUE(config->moe_config.use_low_precision_moe_combine);
  EXPECT_EQ(config->moe_config.dispatch_dtype, "FP8");
  EXPECT_EQ(config->moe_config.combine_dtype, "NVFP4");
  EXPECT_EQ(config->moe_config.combine, "REDUCED");
  EXPECT_EQ(config->moe_config.dispatch_strategy, "ALL_GATHER");
  EXPECT_TRUE(config->moe_config.disable_finalize_fusion);
  EXPECT_EQ(config->moe_config.load_balancer_path, "./moe_load_balancer.yaml");
  EXPECT_FALSE(config->moe_config.load_balancer.has_value());
  EXPECT_EQ(config->max_batch_size, 16);
  EXPECT_EQ(config->max_num_tokens, 512);
  EXPECT_EQ(config->max_seq_len, 4096);
  EXPECT_EQ(config->enable_chunked_prefill, true);
  EXPECT_EQ(config->kv_cache_config.tokens_per_block, 64);
  EXPECT_EQ(config->kv_cache_config.max_tokens, 100000);
  EXPECT_EQ(config->kv_cache_config.dtype, "FP8");
  EXPECT_FALSE(config->kv_cache_config.enable_block_reuse);
  EXPECT_EQ(config->scheduler_config.capacity_scheduler_policy, "MAX_UTILIZATION");
  EXPECT_DOUBLE_EQ(config->kv_cache_config.free_gpu_memory_fraction, 0.5);
}

TEST(ParallelConfig, ReadsPoliciesByName) {
  EXPECT_THAT(complaint_of("scheduler_config: {capacity_scheduler_policy: STATIC_BATCH}"),
              HasSubstr("scheduler_config.capacity_scheduler_policy: expected one of "
                        "GUARANTEED_NO_EVICT, MAX_UTILIZATION, found 'STATIC_BATCH'"));
  EXPECT_THAT(complaint_of("scheduler_config: {x: 1}"), HasSubstr("scheduler_config.x"));
}

TEST(ParallelConfig, ReadsContextParallelism) {
  const Result<ParallelConfig> config = parse_parallel_config(
      "context_parallel_size: 2\n"
      "cp_config: {cp_type: helix, tokens_per_block: 32, use_nccl_for_alltoall: false,\n"
      "            fifo_version: 2, cp_anchor_size: 128, block_size: 256}\n",
      "config.yaml");
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_TRUE(config->cp_config.has_value());
  EXPECT_EQ(config->cp_config->cp_type, "HELIX");
  EXPECT_EQ(config->cp_config->tokens_per_block, 32);
  EXPECT_EQ(config->cp_config->use_nccl_for_alltoall, false);
  EXPECT_EQ(config->cp_config->fifo_version, 2);
  EXPECT_EQ(config->cp_config->cp_anchor_size, 128);
  EXPECT_EQ(config->cp_config->block_size, 256);
}

TEST(ParallelConfig, MicroBatchesDefaultToTheStages) {
  const auto of = [](const std::string& text) {
    return parse_parallel_config(text, "config.yaml")->micro_batches();
  };
  EXPECT_EQ(of("pipeline_parallel_size: 3\n"), 3);
  EXPECT_EQ(of("pipeline_parallel_size: 3\npipeline_micro_batches: 6\n"), 6);
  for (const char* text :
       {"pipeline_micro_batches: 2\n", "pipeline_parallel_size: 3\npipeline_micro_batches: 2\n"}) {
    EXPECT_THAT(complaint_of(text), HasSubstr("pipeline_micro_batches: expected several stages"));
  }
}

TEST(ParallelConfig, AnEmptyFileIsOneRank) {
  const Result<ParallelConfig> config = parse_parallel_config("", "config.yaml");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->mapping().world_size(), 1);
  EXPECT_EQ(config->sizes.moe_ep, 1);
  EXPECT_THAT(config->notes, IsEmpty());
  EXPECT_TRUE(check_supported(*config).ok());
}

TEST(ParallelConfig, EitherKeySetsTheCombineDtype) {
  const auto combine_dtype = [](const std::string& moe) {
    const auto config = parse_parallel_config("moe_config: {" + moe + "}", "config.yaml");
    return config.ok() ? config->moe_config.combine_dtype : config.status().message();
  };
  EXPECT_EQ(combine_dtype(""), "AUTO");
  EXPECT_EQ(combine_dtype("use_low_precision_moe_combine: false"), "AUTO");
  EXPECT_EQ(combine_dtype("use_low_precision_moe_combine: true"), "NVFP4");
  EXPECT_EQ(combine_dtype("use_low_precision_moe_combine: true, combine_dtype: fp8"), "FP8");
  EXPECT_EQ(combine_dtype("combine_dtype: fp8"), "FP8");
  EXPECT_THAT(combine_dtype("use_low_precision_moe_combine: true, combine_dtype: bf16"),
              HasSubstr("moe_config.combine_dtype: BF16 contradicts "
                        "use_low_precision_moe_combine: true"));
  EXPECT_THAT(combine_dtype("use_low_precision_moe_combine: false, combine_dtype: nvfp4"),
              HasSubstr("contradicts use_low_precision_moe_combine: false"));
  EXPECT_THAT(complaint_of("moe_config: {dispatch_dtype: fp4}"),
              HasSubstr("moe_config.dispatch_dtype: expected one of AUTO, BF16, FP8, NVFP4"));
}

TEST(ParallelConfig, TakesTheLoadBalancerInline) {
  const Result<ParallelConfig> config = parse_parallel_config(
      std::string(kWideEp) + "moe_config: {load_balancer: {num_slots: 16}}\n", "config.yaml");
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_TRUE(config->moe_config.load_balancer.has_value());
  EXPECT_EQ(config->moe_config.load_balancer->num_slots, 16);
  EXPECT_THAT(complaint_of("moe_config: {load_balancer: {slots: 16}}\n"),
              HasSubstr("moe_config.load_balancer.slots: unknown key"));
  EXPECT_THAT(complaint_of("moe_config: {load_balancer: ''}\n"), HasSubstr("empty string"));
  EXPECT_THAT(complaint_of("moe_config: {load_balancer: [1]}\n"),
              HasSubstr("moe_config.load_balancer: expected"));
}

TEST(ParallelConfig, FillsUnsetMoeSizes) {
  const Result<ParallelConfig> config = parse_parallel_config(
      "{tensor_parallel_size: 8, moe_tensor_parallel_size: 2, moe_expert_parallel_size: -1}",
      "config.yaml");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->sizes.moe_ep, 4);
}

TEST(ParallelConfig, RefusesUnknownKeysAtEveryLevel) {
  EXPECT_THAT(complaint_of("tensor_paralel_size: 2\n"), HasSubstr("unknown key"));
  EXPECT_THAT(complaint_of("moe_config: {backnd: AUTO}\n"), HasSubstr("moe_config.backnd"));
  EXPECT_THAT(complaint_of("attention_dp_config: {x: 1}\n"), HasSubstr("attention_dp_config.x"));
  EXPECT_THAT(complaint_of("cp_config: {x: 1}\n"), HasSubstr("cp_config.x"));
  EXPECT_THAT(complaint_of("kv_cache_config: {x: 1}\n"), HasSubstr("kv_cache_config.x"));
}

TEST(ParallelConfig, RefusesWrongValues) {
  EXPECT_THAT(complaint_of("tensor_parallel_size: 0\n"), HasSubstr("tensor_parallel_size"));
  EXPECT_THAT(complaint_of("tensor_parallel_size: two\n"), HasSubstr("tensor_parallel_size"));
  EXPECT_THAT(complaint_of("moe_expert_parallel_size: 0\n"),
              HasSubstr("expected at least 1, or -1"));
  EXPECT_THAT(complaint_of("enable_attention_dp: 3\n"), HasSubstr("enable_attention_dp"));
  EXPECT_THAT(complaint_of("moe_config: {backend: FAST}\n"), HasSubstr("found 'FAST'"));
  EXPECT_THAT(complaint_of("moe_config: {backend: \"FAST\\nER\"}\n"),
              HasSubstr("found 'FAST\\nER'"));
  EXPECT_THAT(complaint_of("moe_config: 7\n"), HasSubstr("moe_config: expected a map"));
  EXPECT_THAT(complaint_of("context_parallel_size: 2\ncp_config: {cp_type: RING}\n"),
              HasSubstr("expected one of ULYSSES, STAR, HELIX, found 'RING'"));
  EXPECT_THAT(complaint_of("max_num_tokens: 0\n"), HasSubstr("max_num_tokens"));
  EXPECT_THAT(complaint_of("max_num_tokens: 4294967296\n"), HasSubstr("max_num_tokens"));
  EXPECT_THAT(complaint_of("max_seq_len: 4294967296\n"), HasSubstr("max_seq_len"));
  EXPECT_THAT(complaint_of("kv_cache_config: {dtype: nvfp4}\n"),
              HasSubstr("expected one of AUTO, BF16, FP8, found 'nvfp4'"));
  EXPECT_THAT(complaint_of("kv_cache_config: {free_gpu_memory_fraction: 1.5}\n"),
              HasSubstr("kv_cache_config.free_gpu_memory_fraction"));
}

TEST(ParallelConfig, RefusesContradictions) {
  EXPECT_THAT(complaint_of("{tensor_parallel_size: 8, moe_expert_parallel_size: 3}"),
              HasSubstr("= 6, expected tensor_parallel_size 8"));
  EXPECT_THAT(complaint_of("{tensor_parallel_size: 8, moe_tensor_parallel_size: 2, "
                           "moe_expert_parallel_size: 2}"),
              HasSubstr("= 4, expected tensor_parallel_size 8"));
  EXPECT_THAT(complaint_of("{tensor_parallel_size: 60000, pipeline_parallel_size: 60000, "
                           "context_parallel_size: 60000}"),
              HasSubstr("expected at most 65536 ranks"));
  EXPECT_THAT(complaint_of("enable_lm_head_tp_in_adp: true\n"),
              HasSubstr("no effect without enable_attention_dp"));
  EXPECT_THAT(complaint_of("attention_dp_config: {enable_balance: true}\n"),
              HasSubstr("no effect without enable_attention_dp"));
  EXPECT_THAT(complaint_of("cp_config: {cp_type: HELIX}\n"),
              HasSubstr("no effect with context_parallel_size 1"));
  EXPECT_THAT(complaint_of("{max_batch_size: 64, max_num_tokens: 32}"),
              HasSubstr("max_batch_size 64 is more than max_num_tokens 32"));
  EXPECT_THAT(complaint_of(std::string(kWideEp) + "moe_config: {max_num_tokens: 7}"),
              HasSubstr("moe_config.max_num_tokens: expected at least 8, a token of each rank"));
  EXPECT_THAT(complaint_of("moe_config: {max_num_tokens: 0}"), HasSubstr("max_num_tokens"));
  EXPECT_EQ(complaint_of(std::string(kWideEp) + "moe_config: {max_num_tokens: 8}"), "accepted");
  EXPECT_THAT(complaint_of("{tensor_parallel_size: 4, moe_cluster_parallel_size: 4, "
                           "moe_config: {load_balancer: lb.yaml}}"),
              HasSubstr("expected moe_cluster_parallel_size 1, found 4"));
}

TEST(ParallelConfig, NotesKeysWithoutEffect) {
  const Result<ParallelConfig> config = parse_parallel_config(
      std::string(kWideEp) +
          "attention_dp_config: {timeout_iters: 5}\n"
          "moe_config: {backend: WIDEEP, disable_finalize_fusion: true}\n"
          "kv_cache_config: {free_gpu_memory_fraction: 0.8, enable_block_reuse: true}\n",
      "config.yaml");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->notes,
              ElementsAre(HasSubstr("attention_dp_config"), HasSubstr("moe_config.backend"),
                          HasSubstr("moe_config.disable_finalize_fusion"),
                          HasSubstr("kv_cache_config.free_gpu_memory_fraction")));
}

TEST(ParallelConfigForRanks, SpreadsExpertsOverAllRanks) {
  const Result<ParallelConfig> config = parallel_config_for_ranks(3);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->mapping().world_size(), 3);
  EXPECT_EQ(config->sizes.moe_ep, 3);
  EXPECT_TRUE(config->enable_attention_dp);
  EXPECT_TRUE(check_supported(*config).ok());
  EXPECT_THAT(parallel_config_for_ranks(0).status().message(), HasSubstr("--ranks: expected 1"));
}

TEST(CheckSupported, AcceptsWideEp) {
  EXPECT_EQ(unsupported(kWideEp), "");
  EXPECT_EQ(unsupported(std::string(kWideEp) + "moe_config: {load_balancer: lb.yaml}\n"), "");
  EXPECT_EQ(unsupported("{tensor_parallel_size: 8, moe_expert_parallel_size: 8}"), "");
  EXPECT_EQ(unsupported(std::string(kWideEp) + "pipeline_parallel_size: 2"), "");
}

TEST(CheckSupported, AcceptsSharedSequences) {
  EXPECT_EQ(unsupported("{context_parallel_size: 2, cp_config: {tokens_per_block: 256}}"), "");
  EXPECT_THAT(unsupported("{context_parallel_size: 2, cp_config: {tokens_per_block: 32}}"),
              HasSubstr("cp_config.tokens_per_block: expected a multiple of"));
  EXPECT_EQ(unsupported("context_parallel_size: 2"), "");
  EXPECT_EQ(unsupported(std::string(kWideEp) + "context_parallel_size: 4"), "");
}

TEST(CheckSupported, AcceptsShardedExperts) {
  EXPECT_EQ(unsupported("{tensor_parallel_size: 8, enable_attention_dp: true}"), "");
  EXPECT_EQ(unsupported("{tensor_parallel_size: 8, moe_expert_parallel_size: 4}"), "");
}

TEST(CheckSupported, RefusesByName) {
  const std::string wide = kWideEp;
  EXPECT_THAT(unsupported("{tensor_parallel_size: 4, moe_cluster_parallel_size: 4}"),
              HasSubstr("moe_cluster_parallel_size:"));
  EXPECT_THAT(unsupported(wide + "enable_chunked_prefill: false"),
              HasSubstr("enable_chunked_prefill:"));
  EXPECT_EQ(unsupported(wide + "enable_chunked_prefill: true"), "");
  EXPECT_EQ(unsupported(wide + "moe_config: {max_num_tokens: 4096}"), "");
  EXPECT_EQ(unsupported(wide + "moe_config: {combine: reduced, dispatch_dtype: nvfp4}"), "");
}

}  // namespace
}  // namespace wideep::parallel
