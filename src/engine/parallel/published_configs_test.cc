// SPDX-License-Identifier: Apache-2.0
//
// The worker configurations that TensorRT-LLM has published (tests/golden/published_configs.yaml,
// with path and commit of each): all are accepted, but for those of the table below, each of which
// is refused by one key, named in a line. A failure is a file with which users came, and which has
// become unreadable, or which is read though wideep does something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

#include "formats/files.h"
#include "parallel/parallel_config.h"

namespace wideep::parallel {
namespace {

using testing::HasSubstr;

constexpr const char* kFile = WIDEEP_SOURCE_DIR "/tests/golden/published_configs.yaml";

// Entry → how its message goes on after the entry's name.
const std::map<std::string, std::string> kRefused = {
    // ---- names that TensorRT-LLM has given up ----
    {"wide_ep_slurm_scripts_gen_yaml_context_servers",
     "free_gpu_memory_fraction: an older name; write kv_cache_config.free_gpu_memory_fraction"},
    {"wide_ep_slurm_scripts_gen_yaml_generation_servers", "free_gpu_memory_fraction: an older"},
    {"disaggregated_slurm_benchmark_gen_yaml_context_servers",
     "free_gpu_memory_fraction: an older"},
    {"disaggregated_slurm_benchmark_gen_yaml_generation_servers",
     "free_gpu_memory_fraction: an older"},
    {"disaggregated_slurm_gen_yaml_context_servers", "free_gpu_memory_fraction: an older"},
    {"disaggregated_slurm_gen_yaml_generation_servers", "free_gpu_memory_fraction: an older"},
    {"disaggregated_disagg_config_context_servers", "free_gpu_memory_fraction: an older"},
    {"disaggregated_disagg_config_generation_servers", "free_gpu_memory_fraction: an older"},
    {"disaggregated_disagg_config_context_servers_older", "free_gpu_memory_fraction: an older"},
    {"disaggregated_disagg_config_sd_context_servers", "free_gpu_memory_fraction: an older"},
    {"llm_api_ray_disagg_serving_local_disagg_config_local_context_servers",
     "free_gpu_memory_fraction: an older"},
    {"configs_curated_deepseek_r1_throughput",
     "kv_cache_free_gpu_memory_fraction: an older name; write "
     "kv_cache_config.free_gpu_memory_fraction"},
    {"configs_curated_gpt_oss_120b_latency", "kv_cache_free_gpu_memory_fraction: an older"},
    {"configs_curated_qwen3", "kv_cache_free_gpu_memory_fraction: an older"},
    {"disaggregated_README_MPI_older",
     "use_cuda_graph: an older name; write cuda_graph_config, or null for none"},
    {"wide_ep_ep_load_balancer_README_statistics",
     "moe_backend: an older name; write moe_config.backend"},
    {"llm_api_extra_llm_api_config_baseline",
     "kv_cache_config.kv_cache_dtype: an older name; write kv_cache_config.dtype"},
    // ---- what wideep does not do ----
    {"disaggregated_slurm_benchmark_submit_dwdp",
     "dwdp_config.dwdp_size: expected 1, found '4': experts that are fetched from peers"},
    {"llm_api_configs_trtllm_kvbm_connector_extra", "kv_connector_config: not supported"},
    {"llm_api_configs_trtllm_lmcache_connector_extra", "kv_connector_config: not supported"},
    {"llm_api_configs_trtllm_mooncake_store_connector_extra", "kv_connector_config: not supported"},
    {"layer_wise_benchmarks_sample_performance_alignment_collect",
     "layer_wise_benchmarks_config.calibration_mode: expected NONE, found 'COLLECT'"},
    {"layer_wise_benchmarks_sample_performance_alignment_mark",
     "layer_wise_benchmarks_config.calibration_mode: expected NONE, found 'MARK'"},
    {"configs_curated_minimax_m3_throughput", "sparse_attention_config: not supported"},
    // ---- sizes that contradict each other in the file as it stands ----
    {"disaggregated_slurm_benchmark_cp_gen_only",
     "expected tensor_parallel_size 4"},  // 32 ranks of experts: TensorRT-LLM counts CP among them
    {"blog10", "attention_dp_config: has no effect without enable_attention_dp: true"},
};

// Entry → its line "tree: {...}". Each is read alone: reading all of the file for each takes long.
std::map<std::string, std::string> trees() {
  std::map<std::string, std::string> trees;
  std::istringstream text(formats::read_file(kFile).value());
  std::string name;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("  tree: ")) trees[name] = line.substr(2);
    if (line.front() != ' ' && line.front() != '#') name = line.substr(0, line.find(':'));
  }
  return trees;
}

Result<ParallelConfig> read(const std::string& name, const std::string& tree) {
  return parse_parallel_config(tree, name, "tree");
}

// What is said of an entry: "" if it is accepted.
std::string said_of(const std::string& name, const std::string& tree) {
  const Result<ParallelConfig> config = read(name, tree);
  if (!config.ok()) return config.status().message();
  return check_supported(*config).message();
}

TEST(PublishedConfigs, AreAcceptedOrRefusedByOneKey) {
  const std::map<std::string, std::string> all = trees();
  EXPECT_EQ(all.size(), 93u);
  for (const auto& [name, tree] : all) {
    SCOPED_TRACE(name);
    const auto refused = kRefused.find(name);
    if (refused == kRefused.end()) {
      EXPECT_EQ(said_of(name, tree), "");
    } else {
      EXPECT_THAT(said_of(name, tree), HasSubstr(refused->second));
    }
  }
  for (const auto& [name, message] : kRefused) {
    EXPECT_TRUE(all.contains(name)) << "no entry " << name;
  }
}

// The figures of one file that is accepted: what TensorRT-LLM's wide EP on 32 ranks is.
TEST(PublishedConfigs, MeanWhatTheySay) {
  const std::map<std::string, std::string> all = trees();
  const auto gen = read("gen", all.at("wide_ep_slurm_scripts_config_gen"));
  ASSERT_TRUE(gen.ok()) << gen.status().message();
  EXPECT_EQ(gen->mapping().world_size(), 32);
  EXPECT_EQ(gen->sizes.moe_ep, 32);
  EXPECT_TRUE(gen->enable_attention_dp);
  EXPECT_EQ(gen->moe_config.load_balancer->num_slots, 288);
  EXPECT_EQ(gen->moe_config.load_balancer->layer_updates_per_iter, 1);
  EXPECT_EQ(gen->stream_interval, 20);
  EXPECT_TRUE(gen->print_iter_log);
  EXPECT_EQ(gen->speculative_config->max_draft_len, 3);
  EXPECT_EQ(gen->kv_cache_config.dtype, "FP8");
  ASSERT_TRUE(gen->cache_transceiver_config.has_value());
  EXPECT_EQ(gen->cache_transceiver_config->max_tokens_in_buffer, 8448);
  // Its other keys are named, each with a reason.
  EXPECT_THAT(gen->notes, testing::ElementsAre(
                              HasSubstr("moe_config.backend has no effect: "),
                              HasSubstr("kv_cache_config.free_gpu_memory_fraction has no effect: "),
                              HasSubstr("enable_layerwise_nvtx_marker has no effect: "),
                              HasSubstr("cuda_graph_config has no effect: "),
                              HasSubstr("num_postprocess_workers has no effect: ")));
  // num_slots 0 is no balancer.
  const auto plain = read("plain", all.at("disaggregated_slurm_benchmark_config_gen"));
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_FALSE(plain->moe_config.load_balancer.has_value());
}

}  // namespace
}  // namespace wideep::parallel
