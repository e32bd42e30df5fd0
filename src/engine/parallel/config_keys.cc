// SPDX-License-Identifier: Apache-2.0
//
// The table is sorted by what a key is about. A map that has no effect as a whole has one line; its
// keys are still read, so that a misspelt or an older one is found.
#include "parallel/config_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/printable.h"

namespace wideep::parallel {
namespace {

using formats::YamlMap;
using enum KeyAnswer;
using enum KeyType;

constexpr std::string_view kOwnKernels = "wideep chooses its kernels itself";
constexpr std::string_view kFloat32States = "states of sequences are kept in float32";
constexpr std::string_view kHostCache = "the cache is in host memory; set max_tokens instead";
constexpr std::string_view kNoRouting =
    "it belongs to enable_kv_cache_aware_routing, which is not supported";
constexpr std::string_view kNoDwdp = "experts that are fetched from peers (DWDP) are not supported";
constexpr std::string_view kOneTransfer =
    "pages of prompts go from server to server in one way, over TCP";
constexpr std::string_view kNoTuning = "nothing is compiled or tuned at the start";
constexpr std::string_view kNoWaiting =
    "a batch does not wait for more requests, but for those of attention_dp_config";

constexpr ConfigKey honoured(std::string_view path) { return {.path = path}; }
constexpr ConfigKey renamed(std::string_view path, std::string_view name) {
  return {.path = path, .answer = kRenamed, .why = name};
}
constexpr ConfigKey refused(std::string_view path, std::string_view why) {
  return {.path = path, .answer = kRefused, .why = why};
}
// A line unless the value is `quiet`.
constexpr ConfigKey no_effect(std::string_view path, KeyType type, std::string_view quiet,
                              std::string_view why) {
  return {.path = path, .answer = kAccepted, .type = type, .quiet = quiet, .why = why};
}
// Other values are refused.
constexpr ConfigKey only(std::string_view path, KeyType type, std::string_view values,
                         std::string_view why) {
  return {.path = path,
          .answer = kAccepted,
          .type = type,
          .values = values,
          .quiet = values,
          .why = why};
}
// A line unless the value is `quiet`; values outside of the list are refused.
constexpr ConfigKey one_of(std::string_view path, std::string_view values, std::string_view quiet,
                           std::string_view why) {
  return {.path = path,
          .answer = kAccepted,
          .type = kText,
          .values = values,
          .quiet = quiet,
          .why = why};
}

constexpr std::array kKeys = std::to_array<ConfigKey>({
    // ---- layout ----
    honoured("tensor_parallel_size"),
    honoured("pipeline_parallel_size"),
    honoured("pp_partition"),
    honoured("context_parallel_size"),
    honoured("moe_tensor_parallel_size"),
    honoured("moe_expert_parallel_size"),
    honoured("moe_cluster_parallel_size"),
    honoured("enable_attention_dp"),
    honoured("enable_lm_head_tp_in_adp"),
    honoured("pipeline_micro_batches"),
    no_effect("gpus_per_node", kInteger, "", "nodes are those of --nnodes, mpirun or srun"),
    one_of("allreduce_strategy",
           "AUTO|NCCL|UB|MINLATENCY|ONESHOT|TWOSHOT|LOWPRECISION|MNNVL|NCCL_SYMMETRIC", "AUTO",
           "sums have one order and full precision, whatever the layout"),
    one_of("orchestrator_type", "rpc|ray", "", "the command, mpirun or srun starts the ranks"),
    {.path = "dwdp_config", .answer = kAccepted, .type = kMap},
    only("dwdp_config.dwdp_size", kInteger, "1", kNoDwdp),
    only("dwdp_config.num_groups", kInteger, "1", kNoDwdp),
    only("dwdp_config.num_experts_per_worker", kInteger, "0", kNoDwdp),
    only("dwdp_config.num_prefetch_experts", kInteger, "0", kNoDwdp),
    only("dwdp_config.contention_opt", kBoolean, "false", kNoDwdp),

    honoured("attention_dp_config"),
    honoured("attention_dp_config.enable_balance"),
    honoured("attention_dp_config.timeout_iters"),
    honoured("attention_dp_config.batching_wait_iters"),
    only("attention_dp_config.enable_kv_cache_aware_routing", kBoolean, "false",
         "routing by cached prefixes inside of a layout is not supported"),
    no_effect("attention_dp_config.kv_cache_routing_account_for_in_transfer", kAny, "", kNoRouting),
    no_effect("attention_dp_config.kv_cache_routing_cold_start_warmup", kAny, "", kNoRouting),
    no_effect("attention_dp_config.kv_cache_routing_conversation_affinity", kAny, "", kNoRouting),
    no_effect("attention_dp_config.kv_cache_routing_fair_share_multiplier", kAny, "", kNoRouting),
    no_effect("attention_dp_config.kv_cache_routing_load_balance_weight", kAny, "", kNoRouting),
    no_effect("attention_dp_config.kv_cache_routing_match_rate_threshold", kAny, "", kNoRouting),
    no_effect("attention_dp_config.kv_cache_routing_max_sessions", kAny, "", kNoRouting),
    no_effect("attention_dp_config.kv_cache_routing_new_conv_placement", kAny, "", kNoRouting),

    honoured("cp_config"),
    honoured("cp_config.tokens_per_block"),
    one_of("cp_config.cp_type", "ULYSSES|STAR|RING|HELIX", "",
           "the ranks hold the pages of a sequence in turn and read each other's pages in place, "
           "which is full attention"),
    no_effect("cp_config.use_nccl_for_alltoall", kBoolean, "", "there is only one scheme"),
    no_effect("cp_config.fifo_version", kInteger, "", "there is only one scheme"),
    no_effect("cp_config.cp_anchor_size", kInteger, "", "there is only one scheme"),
    no_effect("cp_config.block_size", kInteger, "", "there is only one scheme"),

    // ---- experts ----
    honoured("moe_config"),
    honoured("moe_config.load_balancer"),
    honoured("moe_config.max_num_tokens"),
    honoured("moe_config.use_low_precision_moe_combine"),
    honoured("moe_config.dispatch_dtype"),
    honoured("moe_config.combine_dtype"),
    honoured("moe_config.combine"),
    honoured("moe_config.dispatch_strategy"),
    one_of("moe_config.backend",
           "AUTO|CUTLASS|CUTEDSL|WIDEEP|TRTLLM|DEEPGEMM|DENSEGEMM|VANILLA|TRITON|MARLIN|"
           "MEGAMOE_DEEPGEMM|MEGAMOE_CUTEDSL",
           "", kOwnKernels),
    no_effect("moe_config.disable_finalize_fusion", kBoolean, "", "there is no fused finalize"),

    // ---- cache ----
    honoured("kv_cache_config"),
    honoured("kv_cache_config.dtype"),
    honoured("kv_cache_config.max_tokens"),
    honoured("kv_cache_config.enable_block_reuse"),
    no_effect("kv_cache_config.free_gpu_memory_fraction", kShare, "", kHostCache),
    no_effect("kv_cache_config.tokens_per_block", kInteger, "64", "a page holds 64 tokens"),
    honoured("kv_cache_config.host_cache_size"),
    no_effect("kv_cache_config.disk_cache_size", kInteger, "0",
              "--prompt-cache-dir keeps prompts on disk, --prompt-cache-bytes of them"),
    no_effect("kv_cache_config.disk_prefetch_num_reqs", kInteger, "",
              "pages are fetched for each request that waits"),
    no_effect("kv_cache_config.secondary_offload_min_priority", kInteger, "",
              "what saves the fewest seconds a byte leaves the host cache first"),
    no_effect("kv_cache_config.max_gpu_total_bytes", kInteger, "0", kHostCache),
    no_effect("kv_cache_config.use_uvm", kBoolean, "false", kHostCache),
    no_effect("kv_cache_config.avg_seq_len", kInteger, "", "pages are taken as sequences grow"),
    no_effect("kv_cache_config.use_kv_cache_manager_v2", kText, "auto",
              "there is only one manager of the cache"),
    no_effect("kv_cache_config.enable_kv_pool_rebalance", kBoolean, "false",
              "there is only one pool"),
    no_effect("kv_cache_config.enable_partial_reuse", kBoolean, "false",
              "requests share whole pages of 64 tokens"),
    no_effect("kv_cache_config.copy_on_partial_reuse", kBoolean, "false",
              "requests share whole pages of 64 tokens"),
    no_effect("kv_cache_config.event_buffer_max_size", kInteger, "0",
              "events of the cache are not kept"),
    no_effect("kv_cache_config.attention_dp_events_gather_period_ms", kInteger, "",
              "events of the cache are not kept"),
    only("kv_cache_config.cross_kv_cache_fraction", kNumber, "0", "no model has an encoder"),
    refused("kv_cache_config.max_attention_window",
            "the model's config.json says how far its layers look back"),
    only("kv_cache_config.sink_token_length", kInteger, "0",
         "it would change answers: the model's config.json says what its layers look at"),
    no_effect("kv_cache_config.mamba_ssm_cache_dtype", kText, "auto|float32", kFloat32States),
    no_effect("kv_cache_config.mamba_ssm_stochastic_rounding", kBoolean, "false", kFloat32States),
    no_effect("kv_cache_config.mamba_ssm_philox_rounds", kInteger, "", kFloat32States),
    renamed("kv_cache_config.kv_cache_dtype", "kv_cache_config.dtype"),
    honoured("cache_transceiver_config"),
    honoured("cache_transceiver_config.max_tokens_in_buffer"),
    honoured("cache_transceiver_config.kv_transfer_timeout_ms"),
    honoured("cache_transceiver_config.kv_transfer_sender_future_timeout_ms"),
    one_of("cache_transceiver_config.backend", "DEFAULT|UCX|NIXL|MOONCAKE|MPI", "DEFAULT",
           kOneTransfer),
    one_of("cache_transceiver_config.transceiver_runtime", "CPP|PYTHON|auto", "auto", kOneTransfer),
    no_effect("cache_transceiver_config.kv_transfer_poll_interval_ms", kInteger, "", kOneTransfer),
    no_effect("cache_transceiver_config.kv_cache_bounce_size_mb", kInteger, "", kOneTransfer),
    no_effect("cache_transceiver_config.enable_pipelined_transfer", kBoolean, "true",
              "pages are taken while the rest of the prompt is computed"),
    renamed("cache_transceiver_config.max_num_tokens",
            "cache_transceiver_config.max_tokens_in_buffer"),
    renamed("cache_transceiver_config.enable_cache_transceiver",
            "cache_transceiver_config.backend: DEFAULT, or null for none"),
    refused("kv_connector_config", "caches are not stored outside of the ranks"),

    // ---- scheduling ----
    honoured("max_batch_size"),
    honoured("max_num_tokens"),
    honoured("max_seq_len"),
    honoured("stream_interval"),
    no_effect("max_input_len", kInteger, "", "max_seq_len is the limit"),
    only("max_beam_width", kInteger, "1", "there is no beam search"),
    no_effect("enable_chunked_prefill", kBoolean, "true",
              "prompts are always prefilled in chunks of at most max_num_tokens"),
    no_effect("disable_overlap_scheduler", kBoolean, "",
              "an iteration is scheduled when the one before has its tokens"),
    {.path = "cuda_graph_config",
     .answer = kAccepted,
     .type = kMap,
     .why = "no CUDA graphs are captured: iterations are computed on the CPU"},
    no_effect("cuda_graph_config.batch_sizes", kIntegers, "", ""),
    no_effect("cuda_graph_config.max_batch_size", kInteger, "", ""),
    no_effect("cuda_graph_config.enable_padding", kBoolean, "", ""),
    one_of("cuda_graph_config.mode", "decode|encode", "", ""),
    no_effect("cuda_graph_config.num_tokens", kIntegers, "", ""),
    no_effect("cuda_graph_config.max_num_token", kInteger, "", ""),
    no_effect("cuda_graph_config.seq_lens", kIntegers, "", ""),
    no_effect("cuda_graph_config.max_seq_len", kInteger, "", ""),
    only("batch_wait_timeout_ms", kNumber, "0", kNoWaiting),
    only("batch_wait_timeout_iters", kInteger, "0", kNoWaiting),
    only("batch_wait_max_tokens_ratio", kNumber, "0", kNoWaiting),
    no_effect("enable_early_first_token_response", kBoolean, "",
              "a first token is always sent at once"),
    honoured("scheduler_config"),
    honoured("scheduler_config.capacity_scheduler_policy"),
    only("scheduler_config.context_chunking_policy", kText, "FIRST_COME_FIRST_SERVED",
         "prompts are computed in the order of their arrival"),
    only("scheduler_config.waiting_queue_policy", kText, "fcfs",
         "requests wait in the order of their arrival"),
    refused("scheduler_config.dynamic_batch_config", "max_batch_size does not change"),
    no_effect("scheduler_config.use_python_scheduler", kBoolean, "false",
              "there is only one scheduler"),
    no_effect("scheduler_config.enable_prefix_aware_scheduling", kBoolean, "false",
              "requests wait in the order of their arrival"),

    // ---- speculation: its methods and their keys are in speculative_config.cc ----
    honoured("speculative_config"),
    refused("speculative_config.speculative_model", "a draft model of its own is not supported"),
    refused("speculative_config.speculative_model_dir",
            "a draft model of its own is not supported"),
    only("speculative_config.use_rejection_sampling", kBoolean, "false",
         "sampled tokens are compared, which changes no answer"),
    no_effect("speculative_config.allow_advanced_sampling", kBoolean, "",
              "drafts change no sampled token"),
    no_effect("speculative_config.advanced_sampling_mode", kText, "full",
              "drafts change no sampled token"),
    no_effect("speculative_config.enable_penalty", kBoolean, "", "penalties always hold"),
    no_effect("speculative_config.load_format", kText, "auto", "there is no draft model"),

    // ---- model ----
    refused("model", "give --model"),
    refused("tokenizer", "it is that of --model"),
    one_of("backend", "pytorch", "", "wideep has only one"),
    one_of("dtype", "auto|bfloat16", "auto",
           "floats of a checkpoint are kept in bf16; --dtype sets another form of weights"),
    only("load_format", kText, "auto", "for random weights give --random-weights"),
    no_effect("trust_remote_code", kBoolean, "false",
              "no code of a model is run: families are built in"),
    only("skip_tokenizer_init", kBoolean, "false", "texts need the tokenizer"),
    no_effect("disable_mm_encoder", kBoolean, "", "only text is read"),
    only("mm_encoder_only", kBoolean, "false", "only text is read"),
    only("encode_only", kBoolean, "false", "there are no encoders"),
    refused("sparse_attention_config",
            "the model's config.json says which positions its layers look at"),
    only("enable_lora", kBoolean, "false", "adapters (LoRA) are not supported"),
    refused("lora_config", "adapters (LoRA) are not supported"),
    refused("peft_cache_config", "adapters (LoRA) are not supported"),
    refused("quant_config", "the checkpoint says how it is quantised; see wideep quantize"),
    only("force_dynamic_quantization", kBoolean, "false", "see wideep quantize"),
    only("gather_generation_logits", kBoolean, "false", "ask for logprobs in the request"),
    one_of("sampler_type", "auto|TorchSampler", "auto", "there is only one sampler"),
    one_of("guided_decoding_backend", "xgrammar|llguidance", "", "grammars are built in"),

    // ---- kernels ----
    one_of("attn_backend", "TRTLLM|VANILLA|FLASHINFER", "", kOwnKernels),
    {.path = "nvfp4_gemm_config", .answer = kAccepted, .type = kMap, .why = kOwnKernels},
    no_effect("nvfp4_gemm_config.allowed_backends", kAny, "", ""),
    no_effect("torch_compile_config", kAny, "", kNoTuning),
    no_effect("enable_autotuner", kBoolean, "false", kNoTuning),
    no_effect("enable_min_latency", kBoolean, "false", kOwnKernels),
    no_effect("use_cute_dsl_blockscaling_mm", kBoolean, "false", kOwnKernels),
    no_effect("use_cute_dsl_blockscaling_bmm", kBoolean, "false", kOwnKernels),

    // ---- the server, and what it tells ----
    honoured("env_overrides"),
    honoured("print_iter_log"),
    no_effect("num_postprocess_workers", kInteger, "0",
              "the front makes texts and replies itself, beside the ranks"),
    no_effect("num_serve_frontends", kInteger, "1", "there is one front; see wideep route"),
    refused("reasoning_parser", "give serve --reasoning-parser"),
    no_effect("enable_iter_perf_stats", kBoolean, "false",
              "figures of iterations are always kept: GET /perf_metrics, --iteration-log"),
    no_effect("enable_iter_req_stats", kBoolean, "false",
              "requests have figures in GET /metrics and in bench throughput --request-json"),
    no_effect("max_stats_len", kInteger, "1000", "GET /perf_metrics keeps what it says"),
    no_effect("return_perf_metrics", kBoolean, "false", "figures are in GET /metrics"),
    no_effect("perf_metrics_max_requests", kInteger, "0", "figures are in GET /metrics"),
    no_effect("enable_layerwise_nvtx_marker", kBoolean, "false",
              "TLLM_NVTX_DEBUG=1 marks every span of a layer"),
    no_effect("garbage_collection_gen0_threshold", kInteger, "", "there is no garbage collector"),
    {.path = "layer_wise_benchmarks_config", .answer = kAccepted, .type = kMap},
    only("layer_wise_benchmarks_config.calibration_mode", kText, "NONE",
         "see wideep bench model and --profile-range"),
    no_effect("layer_wise_benchmarks_config.calibration_file_path", kText, "",
              "there is no calibration"),
    no_effect("layer_wise_benchmarks_config.calibration_layer_indices", kIntegers, "",
              "there is no calibration"),

    // ---- files of several workers ----
    {.path = "worker_config", .answer = kWorker},
    {.path = "context_servers", .answer = kWorker},
    {.path = "generation_servers", .answer = kWorker},
    // Of the part, for the proxy: a worker chosen with FILE:PART needs no line about them.
    no_effect("num_instances", kAny, "", ""),
    no_effect("urls", kAny, "", ""),
    no_effect("router", kAny, "", ""),
    honoured("disagg_cluster"),

    // ---- older names ----
    renamed("moe_backend", "moe_config.backend"),
    renamed("moe_load_balancer", "moe_config.load_balancer"),
    renamed("moe_max_num_tokens", "moe_config.max_num_tokens"),
    renamed("kv_cache_dtype", "kv_cache_config.dtype"),
    renamed("kv_cache_free_gpu_memory_fraction", "kv_cache_config.free_gpu_memory_fraction"),
    renamed("free_gpu_memory_fraction", "kv_cache_config.free_gpu_memory_fraction"),
    renamed("use_cuda_graph", "cuda_graph_config, or null for none"),
    renamed("cuda_graph_padding_enabled", "cuda_graph_config.enable_padding"),
    renamed("cuda_graph_batch_sizes", "cuda_graph_config.batch_sizes"),
    renamed("cuda_graph_max_batch_size", "cuda_graph_config.max_batch_size"),
    renamed("pytorch_backend_config", "its keys, one level up"),
    renamed("autotuner_enabled", "enable_autotuner"),
    renamed("torch_compile_enabled", "torch_compile_config"),
    renamed("decoding_config", "speculative_config"),
});

const ConfigKey* find_key(std::string_view path) {
  const auto found = std::ranges::find(kKeys, path, &ConfigKey::path);
  return found == kKeys.end() ? nullptr : &*found;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::vector<std::string_view> words_of(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const size_t end = std::min(list.find('|'), list.size());
    words.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

bool is_among(std::string_view list, const std::string& value) {
  return std::ranges::any_of(words_of(list),
                             [&](std::string_view word) { return lower(word) == lower(value); });
}

// The value in one spelling, to compare it with those of the table; "" for what has no such text.
// A wrong type is an error of the document.
std::string value_of(YamlMap& map, std::string_view key, KeyType type) {
  switch (type) {
    case kBoolean:
      return map.boolean_or(key, false) ? "true" : "false";
    case kInteger:
      return std::to_string(map.integer_or(key, 0));
    case kNumber:
      return fmt::format("{}", map.number_or(key, 0.0));
    case kShare:
      return fmt::format("{}", map.number_or(key, 0.0, {.min = 0.0, .max = 1.0}));
    case kText:
      return map.string_or(key, "");
    case kIntegers:
      map.integers(key);
      return "";
    case kMap:
    case kAny:
      return "";
  }
  return "";
}

void take(YamlMap& map, std::string_view key, const ConfigKey& row,
          std::vector<std::string>* notes) {
  const auto note = [&] {
    if (notes == nullptr || row.why.empty()) return;
    notes->push_back(fmt::format("{} has no effect: {}", row.path, row.why));
  };
  if (row.type == kMap) {
    YamlMap inner = map.map(key);
    take_listed_keys(inner, row.path, row.why.empty() ? notes : nullptr);
    inner.refuse_unknown_keys();
    return note();
  }
  const std::string value = value_of(map, key, row.type);
  if (!row.values.empty() && !is_among(row.values, value)) {
    const std::vector<std::string_view> words = words_of(row.values);
    map.complain(key,
                 fmt::format("expected {}{}, found '{}'{}{}", words.size() > 1 ? "one of " : "",
                             fmt::join(words, ", "), base::printable(value, 60),
                             row.why.empty() ? "" : ": ", row.why));
    return;
  }
  if (!is_among(row.quiet, value)) note();
}

}  // namespace

std::span<const ConfigKey> config_keys() { return kKeys; }

void take_listed_keys(YamlMap& map, std::string_view path, std::vector<std::string>* notes) {
  for (const std::string& key : map.keys()) {
    const ConfigKey* row = find_key(path.empty() ? key : fmt::format("{}.{}", path, key));
    if (row == nullptr || row->answer == kHonoured || !map.has(key)) continue;
    switch (row->answer) {
      case kHonoured:
        break;
      case kAccepted:
        take(map, key, *row, notes);
        break;
      case kRenamed:
        map.complain(key, fmt::format("an older name; write {}", row->why));
        break;
      case kRefused:
        map.complain(key, fmt::format("not supported: {}; remove the key", row->why));
        break;
      case kWorker:
        map.complain(key,
                     "the file describes several workers; choose one of them with --config "
                     "FILE:PART, where PART is worker_config.gen, worker_config.ctx, "
                     "generation_servers or context_servers");
        break;
    }
  }
}

}  // namespace wideep::parallel
