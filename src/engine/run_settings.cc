// SPDX-License-Identifier: Apache-2.0
#include "engine/run_settings.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "base/content_hash.h"
#include "formats/files.h"

namespace wideep::engine {
namespace {

std::string text(int64_t value) { return std::to_string(value); }
std::string text(double value) { return fmt::format("{}", value); }
std::string text(bool value) { return value ? "true" : "false"; }

template <typename T>
std::string text(const std::optional<T>& value) {
  return value ? text(*value) : "unset";
}

std::string hash_of(std::string_view bytes) {
  const uint64_t hash =
      base::content_hash(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  return fmt::format("{:016x}", hash);
}

// Of a file's content, so that ranks of different nodes may keep it in different places.
std::string hash_of_file(const std::string& path) {
  const Result<std::string> content = formats::read_file(path);
  return content.ok() ? hash_of(*content) : "unreadable";
}

std::string hash_of(std::span<const Request> requests) {
  std::string all;
  for (const Request& request : requests) {
    all += fmt::format("{}:{}:", request.index, request.prompt.size());
    all.append(reinterpret_cast<const char*>(request.prompt.data()),
               request.prompt.size() * sizeof(int32_t));
  }
  return hash_of(all);
}

void add_parallel(const parallel::ParallelConfig& config, transport::Settings& settings) {
  const parallel::ParallelSizes& sizes = config.sizes;
  const parallel::MoeConfig& moe = config.moe_config;
  for (const auto& [name, size] :
       {std::pair{"tensor_parallel_size", sizes.tp}, std::pair{"pipeline_parallel_size", sizes.pp},
        std::pair{"context_parallel_size", sizes.cp},
        std::pair{"moe_tensor_parallel_size", sizes.moe_tp},
        std::pair{"moe_expert_parallel_size", sizes.moe_ep}}) {
    settings.emplace_back(name, text(int64_t{size}));
  }
  const auto turn = config.cp_config ? config.cp_config->tokens_per_block : std::nullopt;
  settings.emplace_back("cp_config.tokens_per_block", text(turn));
  settings.emplace_back("enable_attention_dp", text(config.enable_attention_dp));
  settings.emplace_back("max_batch_size", text(config.max_batch_size));
  settings.emplace_back("max_num_tokens", text(config.max_num_tokens));
  settings.emplace_back("max_seq_len", text(config.max_seq_len));
  settings.emplace_back("kv_cache_config.dtype", config.kv_cache_config.dtype);
  settings.emplace_back("kv_cache_config.max_tokens", text(config.kv_cache_config.max_tokens));
  settings.emplace_back("kv_cache_config.enable_block_reuse",
                        text(config.kv_cache_config.enable_block_reuse));
  settings.emplace_back("scheduler_config.capacity_scheduler_policy",
                        config.scheduler_config.capacity_scheduler_policy);
  const parallel::AttentionDpConfig dp =
      config.attention_dp_config.value_or(parallel::AttentionDpConfig());
  settings.emplace_back("attention_dp_config.enable_balance", text(dp.enable_balance));
  settings.emplace_back("attention_dp_config.timeout_iters", text(dp.timeout_iters));
  settings.emplace_back("attention_dp_config.batching_wait_iters", text(dp.batching_wait_iters));
  settings.emplace_back("moe_config.max_num_tokens", text(moe.max_num_tokens));
  settings.emplace_back("moe_config.dispatch_dtype", moe.dispatch_dtype);
  settings.emplace_back("moe_config.combine_dtype", moe.combine_dtype);
  settings.emplace_back("moe_config.use_low_precision_moe_combine",
                        text(moe.use_low_precision_moe_combine));
  settings.emplace_back("moe_config.combine", moe.combine);
}

}  // namespace

transport::Settings run_settings(const RunOptions& options, const kernels::Kernels& kernels) {
  transport::Settings settings = {
      {"the version of wideep", WIDEEP_VERSION},
      {"the program (its content)", hash_of_file("/proc/self/exe")},
      {"the kernels (WIDEEP_ISA)", std::string(kernels.isa)},
      {"the model (config.json)", hash_of_file(options.model_dir + "/config.json")},
      {"the tokenizer (tokenizer.json)", hash_of_file(options.model_dir + "/tokenizer.json")},
      {"--random-weights", text(options.random_weights.has_value())},
      {"--dtype", options.format ? text(int64_t{static_cast<int>(*options.format)}) : "as stored"}};
  add_parallel(options.parallel, settings);
  settings.emplace_back("--prefill-chunk", text(int64_t{options.prefill_chunk}));
  settings.emplace_back("--perfect-router", text(options.perfect_router));
  settings.emplace_back("--logits-digest", text(options.logits_digest));
  settings.emplace_back("--routing-log", text(options.routing_log));
  settings.emplace_back("--timeout", fmt::format("{} ms", options.timeout.count()));
  return settings;
}

transport::Settings generate_settings(const GenerateOptions& options,
                                      const kernels::Kernels& kernels,
                                      std::span<const Request> requests) {
  transport::Settings settings = run_settings(options, kernels);
  const SamplingParams& sampling = options.sampling;
  settings.emplace_back("the prompts", hash_of(requests));
  settings.emplace_back("--max-tokens", text(int64_t{options.max_tokens}));
  settings.emplace_back("--temperature", text(double{sampling.temperature}));
  settings.emplace_back("--top-k", text(int64_t{sampling.top_k}));
  settings.emplace_back("--top-p", text(double{sampling.top_p}));
  settings.emplace_back("--seed", fmt::format("{}", sampling.seed));
  return settings;
}

}  // namespace wideep::engine
