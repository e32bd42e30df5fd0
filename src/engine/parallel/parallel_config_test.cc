// SPDX-License-Identifier: Apache-2.0
//
// A file with every key, most of them not at their default, shows that none is dropped; then each
// mistake has its message. Reading and check_supported are held apart: what TensorRT-LLM takes and
// wideep does not compute is refused by name, not as a mistake. A failure is a setting without
// effect of which nobody was told.
#include "parallel/parallel_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "parallel/config_keys.h"

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
          "stream_interval: 20\n"
          "print_iter_log: true\n"
          "pp_partition: [61]\n"
          "env_overrides: {TRTLLM_ENABLE_PDL: 1, A: x}\n"
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
  EXPECT_EQ(config->moe_config.max_num_tokens, 9216);
  EXPECT_TRUE(config->moe_config.use_low_precision_moe_combine);
  EXPECT_EQ(config->moe_config.dispatch_dtype, "FP8");
  EXPECT_EQ(config->moe_config.combine_dtype, "NVFP4");
  EXPECT_EQ(config->moe_config.combine, "REDUCED");
  EXPECT_EQ(config->moe_config.dispatch_strategy, "ALL_GATHER");
  EXPECT_EQ(config->moe_config.load_balancer_path, "./moe_load_balancer.yaml");
  EXPECT_FALSE(config->moe_config.load_balancer.has_value());
  EXPECT_EQ(config->max_batch_size, 16);
  EXPECT_EQ(config->max_num_tokens, 512);
  EXPECT_EQ(config->max_seq_len, 4096);
  EXPECT_EQ(config->stream_interval, 20);
  EXPECT_TRUE(config->print_iter_log);
  EXPECT_EQ(config->pp_partition, (std::vector<int64_t>{61}));
  EXPECT_EQ(config->env_overrides, (std::vector<std::pair<std::string, std::string>>{
                                       {"TRTLLM_ENABLE_PDL", "1"}, {"A", "x"}}));
  EXPECT_EQ(config->kv_cache_config.max_tokens, 100000);
  EXPECT_EQ(config->kv_cache_config.dtype, "FP8");
  EXPECT_FALSE(config->kv_cache_config.reuses_blocks());
  EXPECT_EQ(config->scheduler_config.capacity_scheduler_policy, "MAX_UTILIZATION");
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
  EXPECT_EQ(config->cp_config->tokens_per_block, 32);
  EXPECT_THAT(
      config->notes,
      ElementsAre(HasSubstr("cp_config.cp_type has no effect"), HasSubstr("use_nccl_for_alltoall"),
                  HasSubstr("fifo_version"), HasSubstr("cp_anchor_size"), HasSubstr("block_size")));
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
  EXPECT_THAT(complaint_of("context_parallel_size: 2\ncp_config: {cp_type: CIRCLE}\n"),
              HasSubstr("cp_config.cp_type: expected one of ULYSSES, STAR, RING, HELIX, found "
                        "'CIRCLE'"));
  EXPECT_THAT(complaint_of("max_num_tokens: 0\n"), HasSubstr("max_num_tokens"));
  EXPECT_THAT(complaint_of("max_num_tokens: 4294967296\n"), HasSubstr("max_num_tokens"));
  EXPECT_THAT(complaint_of("max_seq_len: 4294967296\n"), HasSubstr("max_seq_len"));
  for (const char* dtype : {"nvfp4", "float16", "fp8_ds_mla"}) {
    EXPECT_THAT(complaint_of(std::string("kv_cache_config: {dtype: ") + dtype + "}\n"),
                HasSubstr("expected one of AUTO, BF16, BFLOAT16, FP8, found"));
  }
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
  EXPECT_EQ(complaint_of("{max_batch_size: 64, max_num_tokens: 32}"), "accepted");
  EXPECT_THAT(complaint_of("{pipeline_parallel_size: 2, pp_partition: [3]}"),
              HasSubstr("pp_partition: expected the layers of each of 2 stages"));
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

// ---- keys of TensorRT-LLM that are only in the table ----

std::vector<std::string> notes_of(const std::string& text) {
  const Result<ParallelConfig> config = parse_parallel_config(text, "config.yaml");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? config->notes : std::vector<std::string>{"refused"};
}

// Every row, with a value of its type: accepted ones leave a line or have a value that needs none,
// the others are named in the error, and honoured ones are read by code, whatever the value.
TEST(ConfigKeys, EveryRowIsHeeded) {
  const auto value_of = [](const ConfigKey& key) -> std::string {
    if (!key.values.empty()) return std::string(key.values.substr(0, key.values.find('|')));
    switch (key.type) {
      case KeyType::kBoolean:
        return "true";
      case KeyType::kInteger:
        return "7";
      case KeyType::kNumber:
      case KeyType::kShare:
        return "0.5";
      case KeyType::kIntegers:
        return "[1, 2]";
      case KeyType::kMap:
        return "{}";
      case KeyType::kText:
      case KeyType::kAny:
        return "word";
    }
    return "";
  };
  for (const ConfigKey& key : config_keys()) {
    const std::string path(key.path);
    SCOPED_TRACE(path);
    const size_t dot = path.find('.');
    const std::string map = path.substr(0, dot);
    std::string text = path + ": " + value_of(key) + "\n";
    if (dot != path.npos) {
      text = map + ": {" + path.substr(dot + 1) + ": " + value_of(key) +
             (map == "speculative_config" ? ", decoding_type: SA, max_draft_len: 3}\n" : "}\n");
    }
    const std::string said = complaint_of(text);
    EXPECT_EQ(said.find("unknown key"), said.npos) << said;
    if (key.answer == KeyAnswer::kHonoured) continue;
    if (key.answer != KeyAnswer::kAccepted) {
      EXPECT_THAT(said, HasSubstr(path + ": "));
      continue;
    }
    if (map == "cp_config") continue;  // needs another key beside it
    ASSERT_EQ(said, "accepted");
    const bool quiet = !key.values.empty() || key.type == KeyType::kMap || key.why.empty();
    if (!quiet && value_of(key) != key.quiet) {
      EXPECT_THAT(notes_of(text), testing::Contains(HasSubstr(map)));
    }
  }
}

// docs/compatibility.md has every key, or docs/speculation.md.
TEST(ConfigKeys, AreInTheDocumentation) {
  std::string text;
  for (const char* file : {"compatibility", "speculation"}) {
    text += formats::read_file(std::string(WIDEEP_SOURCE_DIR "/docs/") + file + ".md").value();
  }
  for (const ConfigKey& key : config_keys()) {
    const std::string name(key.path.substr(key.path.rfind('.') + 1));
    if (name.starts_with("kv_cache_routing_")) continue;  // with a star
    // As `name`, `map.name`, `name: value`, `FILE:name`.
    const bool is_there = std::regex_search(text, std::regex("[`.:]" + name + "[`:.]"));
    EXPECT_TRUE(is_there) << key.path;
  }
}

TEST(ConfigKeys, DefaultsAreNeverRefused) {
  for (const char* text : {
           "enable_chunked_prefill: false\n",
           "max_beam_width: 1\n",
           "disable_overlap_scheduler: false\n",
           "attention_dp_config: {enable_balance: false, timeout_iters: 50, "
           "batching_wait_iters: 10, enable_kv_cache_aware_routing: false}\n",
           "cuda_graph_config: null\n",
           "cuda_graph_config: {}\n",
           "cuda_graph_config: {enable_padding: false, max_batch_size: 0, batch_sizes: null}\n",
           "stream_interval: 1\n",
           "print_iter_log: false\n",
           "num_postprocess_workers: 0\n",
           "enable_layerwise_nvtx_marker: false\n",
           "cache_transceiver_config: null\n",
           "enable_iter_perf_stats: false\n",
           "enable_iter_req_stats: false\n",
           "trust_remote_code: false\n",
           "backend: pytorch\n",
           "allreduce_strategy: AUTO\n",
           "dtype: auto\n",
           "disable_mm_encoder: false\n",
           "env_overrides: null\n",
           "orchestrator_type: null\n",
           "pp_partition: null\n",
           "sparse_attention_config: null\n",
           "moe_config: {load_balancer: {num_slots: 0, layer_updates_per_iter: 1}}\n",
           "scheduler_config: {context_chunking_policy: null, dynamic_batch_config: null, "
           "waiting_queue_policy: fcfs, use_python_scheduler: false}\n",
           "kv_cache_config: {dtype: auto, tokens_per_block: 32, host_cache_size: 0, "
           "enable_partial_reuse: true, copy_on_partial_reuse: true, use_uvm: false, "
           "sink_token_length: null, max_attention_window: null, event_buffer_max_size: 0, "
           "use_kv_cache_manager_v2: auto, mamba_ssm_cache_dtype: auto}\n",
       }) {
    EXPECT_EQ(complaint_of(text), "accepted") << text;
  }
}

TEST(ConfigKeys, TheHostCacheHasASize) {
  const auto size = [](const std::string& keys) {
    return parse_parallel_config("kv_cache_config: {" + keys + "}\n", "c.yaml")
        ->kv_cache_config.host_cache_bytes();
  };
  EXPECT_EQ(size("host_cache_size: 85899345920"), uint64_t{80} << 30);
  EXPECT_EQ(size("host_cache_size: 0"), 0u);
  EXPECT_EQ(size("dtype: auto"), 0u);
  EXPECT_THAT(complaint_of("kv_cache_config: {host_cache_size: -1}\n"),
              HasSubstr("kv_cache_config.host_cache_size"));
}

TEST(ConfigKeys, ATransceiverHasABackend) {
  const auto read = [](const std::string& keys) {
    return parse_parallel_config("cache_transceiver_config: {" + keys + "}\n", "c.yaml")
        ->cache_transceiver_config;
  };
  ASSERT_TRUE(read("backend: DEFAULT, max_tokens_in_buffer: 8448").has_value());
  EXPECT_EQ(read("backend: DEFAULT, max_tokens_in_buffer: 8448")->max_tokens_in_buffer, 8448);
  EXPECT_EQ(read("backend: NIXL")->max_tokens_in_buffer, std::nullopt);
  EXPECT_FALSE(read("backend: null, max_tokens_in_buffer: 8448").has_value());
  EXPECT_THAT(notes_of("cache_transceiver_config: {backend: default}\n"), testing::IsEmpty());
  EXPECT_THAT(notes_of("cache_transceiver_config: {backend: UCX, kv_transfer_timeout_ms: 6000}\n"),
              ElementsAre(HasSubstr("kv_transfer_timeout_ms has no effect: "),
                          HasSubstr("backend has no effect: pages of prompts go from server to "
                                    "server in one way")));
  EXPECT_THAT(notes_of("cache_transceiver_config: {max_tokens_in_buffer: 64}\n"),
              ElementsAre(HasSubstr("no effect without backend: DEFAULT")));
  EXPECT_THAT(complaint_of("cache_transceiver_config: {backend: SHM}\n"),
              HasSubstr("cache_transceiver_config.backend: expected one of DEFAULT, UCX"));
  EXPECT_THAT(complaint_of("cache_transceiver_config: {backend: UCX, buffers: 2}\n"),
              HasSubstr("cache_transceiver_config.buffers: unknown key"));
  EXPECT_THAT(complaint_of("cache_transceiver_config: {kv_transfer_timeout_ms: 0}\n"),
              HasSubstr("cache_transceiver_config.kv_transfer_timeout_ms: expected"));
  EXPECT_THAT(complaint_of("cache_transceiver_config: {max_tokens_in_buffer: 0}\n"),
              HasSubstr("cache_transceiver_config.max_tokens_in_buffer: expected"));
}

TEST(ConfigKeys, OtherValuesAreNamed) {
  EXPECT_THAT(complaint_of("max_beam_width: 2\n"),
              HasSubstr("max_beam_width: expected 1, found '2': there is no beam search"));
  EXPECT_THAT(complaint_of("cuda_graph_config: {enable_paddin: true}\n"),
              HasSubstr("cuda_graph_config.enable_paddin: unknown key"));
  EXPECT_THAT(complaint_of("cuda_graph_config: {enable_padding: 3}\n"),
              HasSubstr("cuda_graph_config.enable_padding: expected true or false"));
  EXPECT_THAT(complaint_of("backend: tensorrt\n"),
              HasSubstr("backend: expected pytorch, found 'tensorrt'"));
  EXPECT_THAT(complaint_of("cache_transceiver_config: {max_num_tokens: 4608}\n"),
              HasSubstr("cache_transceiver_config.max_num_tokens: an older name; write "
                        "cache_transceiver_config.max_tokens_in_buffer"));
  EXPECT_THAT(complaint_of("pytorch_backend_config: {use_cuda_graph: true}\n"),
              HasSubstr("pytorch_backend_config: an older name; write its keys, one level up"));
  EXPECT_THAT(notes_of("allreduce_strategy: MNNVL\n"),
              ElementsAre(HasSubstr("allreduce_strategy has no effect: ")));
}

// ---- files of several workers ----

constexpr const char* kSeveral =
    "slurm: {partition: x}\n"
    "worker_config:\n"
    "  gen: {tensor_parallel_size: 4, moe_expert_parallel_size: 4, stream_interval: 20}\n"
    "  ctx: {tensor_parallel_size: 2, moe_expert_parallel_size: 2, wrong_key: 1}\n";

TEST(ParallelConfigPart, ChoosesOneWorker) {
  const auto gen = parse_parallel_config(kSeveral, "c.yaml", "worker_config.gen");
  ASSERT_TRUE(gen.ok()) << gen.status().message();
  EXPECT_EQ(gen->name, "c.yaml:worker_config.gen");
  EXPECT_EQ(gen->sizes.tp, 4);
  EXPECT_EQ(gen->stream_interval, 20);
  EXPECT_THAT(complaint_of(kSeveral),
              HasSubstr("worker_config: the file describes several workers; choose one"));
  const auto said = [](const char* part) {
    return parse_parallel_config(kSeveral, "c.yaml", part).status().message();
  };
  EXPECT_THAT(said("worker_config.ctx"), HasSubstr("c.yaml:4: worker_config.ctx.wrong_key"));
  EXPECT_THAT(said("worker_config.gem"),
              HasSubstr("expected one of the maps of worker_config, gen, ctx; found 'gem'"));
  EXPECT_THAT(said("worker_config.gen.x"), HasSubstr("which has none"));
}

TEST(ParallelConfigPart, ServersHaveTheKeysBesideThem) {
  const char* text =
      "hostname: localhost\nport: 8000\nmodel: m\nmax_num_tokens: 64\nbackend: pytorch\n"
      "schedule_style: context_first\nnode_id: 3\nnum_workers: 1\nconditional_disagg_config: {}\n"
      "disagg_cluster: {cluster_uri: 'etcd://h:2379', cluster_name: c}\n"
      "context_servers: {num_instances: 1, urls: [a], max_num_tokens: 64, max_batch_size: 2}\n"
      "generation_servers: {num_instances: 1, urls: [b], router: {type: round_robin}}\n";
  const auto ctx = parse_parallel_config(text, "d.yaml", "context_servers");
  ASSERT_TRUE(ctx.ok()) << ctx.status().message();
  EXPECT_EQ(ctx->max_num_tokens, 64);  // both say the same
  EXPECT_EQ(ctx->max_batch_size, 2);
  EXPECT_EQ(ctx->disagg_cluster->etcd, "h:2379");
  EXPECT_THAT(ctx->notes, ElementsAre(HasSubstr("backend")));
  const auto gen = parse_parallel_config(text, "d.yaml", "generation_servers");
  ASSERT_TRUE(gen.ok()) << gen.status().message();
  EXPECT_EQ(gen->max_num_tokens, 64);
  EXPECT_FALSE(gen->max_batch_size.has_value());
}

TEST(ParallelConfigPart, ServersDoNotContradictTheKeysBesideThem) {
  const char* text =
      "max_num_tokens: 64\nkv_cache_config: {dtype: fp8}\n"
      "context_servers:\n  max_num_tokens: 128\n"
      "generation_servers:\n  kv_cache_config: {dtype: bf16}\n";
  EXPECT_EQ(parse_parallel_config(text, "d.yaml", "context_servers").status().message(),
            "d.yaml:4: context_servers.max_num_tokens: '128' contradicts line 1, where "
            "max_num_tokens is '64' for all parts of the file; leave it out at one of the two");
  EXPECT_THAT(parse_parallel_config(text, "d.yaml", "generation_servers").status().message(),
              HasSubstr("d.yaml:6: generation_servers.kv_cache_config: a map contradicts line 2"));
}

TEST(ParallelConfig, AClusterIsReadStrictly) {
  const auto said = [](const std::string& keys) {
    return parse_parallel_config("disagg_cluster: {" + keys + "}\n", "d.yaml").status().message();
  };
  const auto config = parse_parallel_config(
      "disagg_cluster:\n  cluster_uri: etcd://10.0.0.1:2379/\n  cluster_name: west\n"
      "  minimal_instances: {context_servers: 2, generation_servers: 0}\n"
      "  heartbeat_interval_sec: 1\n  inactive_timeout_sec: 3\n",
      "d.yaml");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const DisaggCluster& cluster = *config->disagg_cluster;
  EXPECT_EQ(cluster.etcd, "10.0.0.1:2379");
  EXPECT_EQ(cluster.name, "west");
  EXPECT_EQ(cluster.min_context_servers, 2);
  EXPECT_EQ(cluster.min_generation_servers, 0);
  EXPECT_EQ(cluster.heartbeat_seconds, 1);
  EXPECT_EQ(cluster.inactive_seconds, 3);
  EXPECT_EQ(said(""), "d.yaml:1: disagg_cluster.cluster_uri: missing; expected etcd://host:port");
  EXPECT_THAT(said("cluster_uri: 'etcd://h'"),
              HasSubstr("cluster_uri: expected etcd://host:port, found 'etcd://h'"));
  EXPECT_THAT(said("cluster_uri: 'http://h:1'"),
              HasSubstr("found 'http://h:1': the proxy keeps no list itself; start an etcd"));
  EXPECT_THAT(said("cluster_uri: 'etcd://h:1', cluster_name: a/b"),
              HasSubstr("cluster_name: expected a name without '/', found 'a/b'"));
  EXPECT_THAT(said("cluster_uri: 'etcd://h:1', heartbeat_interval_sec: 10"),
              HasSubstr("expected less than inactive_timeout_sec, 10, found 10"));
  EXPECT_THAT(said("cluster_uri: 'etcd://h:1', heartbeat: 1"),
              HasSubstr("disagg_cluster.heartbeat: unknown key"));
  EXPECT_THAT(said("cluster_uri: 'etcd://h:1', minimal_instances: {context: 1}"),
              HasSubstr("minimal_instances.context: unknown key"));
}

TEST(ParallelConfigPart, IsNamedAfterTheFile) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("c.yaml");
  ASSERT_TRUE(formats::write_file(path, kSeveral).ok());
  EXPECT_EQ(read_parallel_config(path + ":worker_config.gen")->sizes.tp, 4);
  EXPECT_THAT(read_parallel_config(path + "x:worker_config.gen").status().message(),
              HasSubstr("c.yamlx: "));
  // A file of the whole name comes first.
  ASSERT_TRUE(formats::write_file(path + ":gen", "tensor_parallel_size: 3\n").ok());
  EXPECT_EQ(read_parallel_config(path + ":gen")->sizes.tp, 3);
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
  EXPECT_EQ(unsupported(wide + "enable_chunked_prefill: true"), "");
  EXPECT_EQ(unsupported(wide + "moe_config: {max_num_tokens: 4096}"), "");
  EXPECT_EQ(unsupported(wide + "moe_config: {combine: reduced, dispatch_dtype: nvfp4}"), "");
}

}  // namespace
}  // namespace wideep::parallel
