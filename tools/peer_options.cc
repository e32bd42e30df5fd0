// SPDX-License-Identifier: Apache-2.0
//
// The names are those of llama-server (tools/server/README.md of llama.cpp), `vllm serve`,
// sglang.launch_server and `ollama`. An option may stand in several rows: the first whose `needs`
// the command has says what to do there.
#include "peer_options.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::tools {
namespace {

using command_line::CommandFacts;

// What only a server, or any command that runs a model, has.
constexpr std::string_view kOfServer = "--port";
constexpr std::string_view kOfRun = "--ranks";

constexpr PeerOption kOptions[] = {
    // ---- which model ----
    {"-m,--model-path", "--model",
     "here --model, or the directory or GGUF file alone: wideep serve FILE"},
    {"-hf,-hfr,--hf-repo,-hff,--hf-file,-hft,--hf-token,-mu,--model-url,-dr,--docker-repo",
     "--model",
     "nothing is downloaded here: hf download ORG/NAME --local-dir DIR, then --model DIR"},
    {"--revision,--download-dir,--load-format,--offline", kOfRun,
     "leave it out: nothing is downloaded, --model is what is on disk"},
    {"--tokenizer,--tokenizer-path,--tokenizer-mode", kOfRun,
     "leave it out: the tokenizer is that of --model"},
    {"--trust-remote-code", kOfRun, "leave it out: no code of a model is run"},
    {"-a,--alias", "--served-model-name", "here --served-model-name"},
    // ---- how much ----
    {"-c,--ctx-size,--max-model-len,--context-length,--num-ctx", "--context",
     "here --context: most tokens of a prompt and its answer"},
    {"-np,--parallel,--max-num-seqs,--max-running-requests", "--max-batch-size",
     "here --max-batch-size: requests of a rank in one iteration"},
    {"-b,--batch-size,-ub,--ubatch-size,--max-num-batched-tokens,--chunked-prefill-size,"
     "--max-prefill-tokens",
     "--max-num-tokens", "here --max-num-tokens: tokens of a rank's iteration"},
    {"-cram,--cache-ram,--hicache-size,--hicache-ratio,--enable-hierarchical-cache,"
     "--kv-offloading-size,--kv-offloading-backend",
     "--host-cache-size", "here --host-cache-size: bytes of the node for prompts, as 8G"},
    {"--slot-save-path,--hicache-storage-backend,--prompt-cache,--prompt-cache-all",
     "--prompt-cache-dir",
     "here --prompt-cache-dir DIR, and --prompt-cache-bytes for how much it may hold"},
    {"--kv-transfer-config,--enable-lmcache", "--prompt-cache-redis",
     "here --host-cache-size, --prompt-cache-dir and --prompt-cache-redis"},
    {"--gpu-memory-utilization,--mem-fraction-static,--kv-cache-memory-bytes,-cram,--cache-ram",
     "--kv-cache-memory", "here --kv-cache-memory: bytes of each rank's KV cache, as 8G"},
    {"--max-total-tokens,--num-gpu-blocks-override", "--config",
     "here kv_cache_config.max_tokens in the file of --config, or --kv-cache-memory"},
    {"--max-queued-requests", "--max-queue", "here --max-queue"},
    {"-ctk,-ctv,--cache-type-k,--cache-type-v", "--kv-cache-dtype",
     "here --kv-cache-dtype: auto, bf16 or fp8, of keys and values"},
    {"-q,--quantization", "--dtype",
     "here --dtype; or wideep quantize, which writes a smaller model"},
    // ---- on what ----
    {"-t,--threads,-tb,--threads-batch", "--threads-per-rank", "here --threads-per-rank"},
    {"-tp,--tp,--tp-size,--tensor-parallel-size", "--config",
     "here tensor_parallel_size in the file of --config; --ranks N alone spreads requests and "
     "experts over N ranks"},
    {"-pp,--pp-size,--pipeline-parallel-size", "--config",
     "here pipeline_parallel_size in the file of --config"},
    {"-dp,--dp,--dp-size,--data-parallel-size,--ep,--ep-size,--expert-parallel-size", kOfRun,
     "here --ranks: each has requests of its own, and the experts are spread over all"},
    {"-ep,--enable-expert-parallel,--enable-dp-attention", kOfRun,
     "leave it out: the experts are always spread over --ranks N"},
    {"--enable-eplb,--eplb-config,--init-expert-location", "--load-balancer",
     "here --load-balancer FILE, which wideep balance plan writes"},
    {"--dist-init-addr,--nccl-init-addr", "--master-addr",
     "here --master-addr HOST --master-port PORT"},
    {"-ngl,--gpu-layers,--n-gpu-layers,-dev,--device,-sm,--split-mode,-ts,--tensor-split,-mg,"
     "--main-gpu,-nkvo,--no-kv-offload,-cmoe,--cpu-moe,-ncmoe,--n-cpu-moe,--cpu-offload-gb,"
     "--swap-space",
     kOfRun, "leave it out: models are in the machine's memory, and its cores compute"},
    {"-fa,--flash-attn,--attention-backend,--enforce-eager,--disable-cuda-graph,"
     "--enable-torch-compile,--compilation-config",
     kOfRun, "leave it out: the fastest kernels that the cores have are chosen"},
    {"--mlock,--mmap,--no-mmap,-lm,--load-mode,--numa,--no-warmup", kOfRun,
     "leave it out: it has no counterpart, weights are read into memory at the start"},
    {"-cb,--cont-batching,-nocb,--no-cont-batching,--enable-chunked-prefill", kOfRun,
     "leave it out: requests always share iterations"},
    {"--enable-prefix-caching,--no-enable-prefix-caching,--disable-radix-cache,--cache-prompt,"
     "--no-cache-prompt",
     "--config",
     "here kv_cache_config.enable_block_reuse in the file of --config; it is on by itself"},
    {"--speculative-config,--speculative-algorithm,--speculative-num-steps,"
     "--speculative-num-draft-tokens,--spec-type,--spec-draft-n-max,--draft,--draft-n,--draft-max,"
     "-md,--model-draft,--spec-draft-model",
     "--config", "here speculative_config in the file of --config (docs/speculation.md)"},
    // ---- requests ----
    {"-p", "--prompt", "here --prompt"},
    {"-f,--file", "--prompt", "here --prompt -, which reads standard input, or --prompts FILE"},
    {"-n,--predict,--n-predict,--max-new-tokens", "--max-tokens", "here --max-tokens"},
    {"--temp", "--temperature", "here --temperature"},
    {"-s,--random-seed", "--seed", "here --seed"},
    {"-n,--predict,--n-predict,--max-tokens,--max-new-tokens", kOfServer,
     "here the field max_tokens of requests; --generation-config has the defaults"},
    {"--temp,--temperature,--top-k,--top-p,--min-p,--repeat-penalty,--presence-penalty,"
     "--frequency-penalty,-s,--seed,--random-seed",
     kOfServer, "here a field of requests; --generation-config has the defaults"},
    {"--override-generation-config,--sampling-defaults", "--generation-config",
     "here --generation-config auto, none or a directory"},
    {"--chat-template,--chat-template-file,--jinja,--no-jinja", kOfServer,
     "leave it out: the model's own template is used, or the field chat_template of a request"},
    {"--chat-template-kwargs,--default-chat-template-kwargs", kOfServer,
     "here the field chat_template_kwargs of requests"},
    {"--reasoning-format", "--reasoning-parser", "here --reasoning-parser"},
    {"--enable-auto-tool-choice", "--tool-call-parser",
     "leave it out: models may always call tools (--tool-call-parser)"},
    // ---- the server ----
    {"--cors-origins,--allowed-origins", "--cors-origin", "here --cors-origin; repeat it for more"},
    {"--metrics,--enable-metrics,--slots", kOfServer,
     "leave it out: /metrics is always there, and /dashboard"},
    {"--webui,--ui", "--no-ui", "leave it out: the pages are there unless --no-ui is given"},
    {"--no-webui", "--no-ui", "here --no-ui"},
    {"--log-requests,--enable-log-requests", "--access-log",
     "here --access-log: a line for each request, without its text"},
    {"--disable-log-requests,--no-enable-log-requests,--disable-log-stats,"
     "--disable-uvicorn-access-log",
     kOfServer, "leave it out: requests are not logged by themselves"},
    {"--log-jsonl", "--log-format", "here --log-format json"},
    {"--otlp-traces-endpoint,--enable-trace", "--access-log",
     "here the variable OTEL_EXPORTER_OTLP_ENDPOINT, as http://127.0.0.1:4318"},
    {"--admin-api-key", "--admin-key", "here the variable WIDEEP_ADMIN_KEY, or --admin-key"},
    {"--ssl-key-file,--ssl-cert-file,--ssl-keyfile,--ssl-certfile,--ssl-ca-certs", kOfServer,
     "https is not built in: let a proxy on this machine (caddy, nginx) speak TLS to clients"},
};

struct PeerCommand {
  std::string_view name;
  std::string_view hint;
};
constexpr std::string_view kOwnFiles = "models are directories and files of yours";
constexpr PeerCommand kCommands[] = {
    {"run", "to talk to a model: wideep chat MODEL; MODEL is a directory or a GGUF file"},
    {"pull",
     "nothing is downloaded here: hf download ORG/NAME --local-dir DIR, then wideep serve DIR"},
    {"ls", "models are directories and files of yours; wideep doctor --model DIR looks at one"},
    {"list", "models are directories and files of yours; wideep doctor --model DIR looks at one"},
    {"show", "wideep doctor --model DIR shows what a model needs"},
    {"ps", "a server shows what it runs at /dashboard and /metrics"},
    {"stop", "kill PID ends a server, after the requests that run"},
    {"create", kOwnFiles},
    {"cp", kOwnFiles},
    {"rm", kOwnFiles},
    {"push", kOwnFiles},
};

bool has_name(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

std::string command_hint(const std::string& word) {
  for (const PeerCommand& each : kCommands) {
    if (each.name == word) return std::string(each.hint);
  }
  const bool is_path = word.ends_with(".gguf") || word.find('/') != std::string::npos;
  return is_path ? fmt::format("to serve a model: wideep serve {}", word) : "";
}

}  // namespace

std::span<const PeerOption> peer_options() { return kOptions; }

std::string peer_hint(const std::string& word, const CommandFacts& command) {
  if (!word.starts_with("-")) return command.path.size() == 1 ? command_hint(word) : "";
  for (const PeerOption& each : kOptions) {
    if (has_name(each.names, word) && find_option(command, each.needs) != nullptr) {
      return std::string(each.hint);
    }
  }
  return "";
}

}  // namespace wideep::tools
