// SPDX-License-Identifier: Apache-2.0
//
// trtllm-bench's options under their names, so that its command lines work. Those without a meaning
// here are a table (foreign_options.h). --tp, --pp and --ep become keys of the configuration file,
// so that there is one way to set sizes.
#include "load_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/progress.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/yaml.h"
#include "generate_output.h"
#include "sampler_options.h"

namespace wideep::tools {
namespace {

using Takes = ForeignOption::Takes;

constexpr const char* kNoMedia = "only text is supported, so no media are loaded";
constexpr const char* kTunesNothing = "wideep tunes nothing by it";
constexpr ForeignOption kForeign[] = {
    {"--backend", Takes::kText, nullptr, "wideep has only one"},
    {"--engine-dir", Takes::kText, "",
     "wideep builds no engines, it runs --model DIR; leave --engine-dir out"},
    {"--custom-module-dirs", Takes::kTexts, "", "modules of Python cannot be loaded; leave it out"},
    {"--custom-tokenizer", Takes::kText, "deepseek_v32,glm_moe_dsa",
     "tokenizers are read from the model's files, classes of Python cannot be loaded"},
    {"--modality", Takes::kText, "", "only text is supported; leave it out"},
    {"--image-data-format", Takes::kText, "pt,pil", kNoMedia},
    {"--data-device", Takes::kText, "cuda,cpu", kNoMedia},
    {"--beam-width", Takes::kNumber, "1", "there is no beam search"},
    {"--cluster-size", Takes::kNumber, "1", "moe_cluster_parallel_size is not built"},
    {"--mamba-ssm-cache-dtype", Takes::kText, "auto,float32", "states are kept in float32"},
    {"--medusa-choices", Takes::kText, "",
     "there are no Medusa heads; speculative_config of --config drafts in other ways"},
    {"--max-input-len", Takes::kNumber, nullptr, "lengths come from the dataset"},
    {"--target-input-len", Takes::kNumber, nullptr, kTunesNothing},
    {"--target-output-len", Takes::kNumber, nullptr, kTunesNothing},
    {"--enable-chunked-context", Takes::kNothing, nullptr, "prompts are always computed in chunks"},
    {"--disable-chunked-context", Takes::kNothing, "",
     "prompts are always computed in chunks; leave it out, and set --max-num-tokens to the longest "
     "prompt's length for as few chunks as can be"},
};

// The keys of a configuration that --tp, --pp and --ep stand for.
struct SizeOption {
  const char* option;
  const char* key;
  std::optional<int> value;
};

// `text` with further keys of its root, without a change of the lines before them: messages name
// lines.
std::string with_keys(std::string text, const std::vector<SizeOption>& added) {
  size_t line = 0;
  while (line < text.size()) {  // the first line of the root
    const size_t word = text.find_first_not_of(" \t\r\n", line);
    if (word == text.npos) break;
    if (text[word] == '{') {
      std::string keys;
      for (const SizeOption& size : added) keys += fmt::format("{}: {}, ", size.key, *size.value);
      return text.insert(word + 1, keys);
    }
    if (text[word] != '#' && text[word] != '%' && text.compare(word, 3, "---") != 0) {
      line = text.rfind('\n', word) + 1;  // npos + 1: the first line
      const std::string indent = text.substr(line, word - line);
      for (const SizeOption& size : added) {
        text += fmt::format("\n{}{}: {}", indent, size.key, *size.value);
      }
      return text + "\n";
    }
    line = std::min(text.find('\n', word), text.size());
  }
  for (const SizeOption& size : added) text += fmt::format("\n{}: {}", size.key, *size.value);
  return text + "\n";
}

// --tp, --pp and --ep as the keys that they stand for, added to those of the configuration. A key
// that is there must have the same value.
Result<std::string> config_with_sizes(const LoadOptions& options, const std::string& path) {
  std::string text;
  if (const auto [file, part] = parallel::split_part(path); !part.empty()) {
    return invalid_input(
        fmt::format("--tp, --pp and --ep cannot be added to a part of a file ({}); set the sizes "
                    "in {} of {}, or give a file of this part alone",
                    path, part, file));
  }
  if (!path.empty()) {
    WIDEEP_TRY_ASSIGN(text, formats::read_file(path));
  }
  WIDEEP_TRY_ASSIGN(const formats::YamlDocument document,
                    formats::YamlDocument::parse(text, path.empty() ? "options" : path));
  formats::YamlMap root = document.root();
  std::vector<SizeOption> sizes = {{"--tp", "tensor_parallel_size", options.tp},
                                   {"--pp", "pipeline_parallel_size", options.pp},
                                   {"--ep", "moe_expert_parallel_size", options.ep}};
  // As many expert ranks as tensor ranks, unless something else is said.
  const bool has_moe_size =
      root.has("moe_expert_parallel_size") || root.has("moe_tensor_parallel_size");
  if (options.tp && !options.ep && !has_moe_size) sizes.back().value = options.tp;
  std::vector<SizeOption> added;
  for (const SizeOption& size : sizes) {
    if (!size.value) continue;
    if (!root.has(size.key)) {
      added.push_back(size);
      continue;
    }
    const int64_t found = root.integer(size.key);
    WIDEEP_TRY(document.status());
    if (found != *size.value) {
      return invalid_input(
          fmt::format("{} {} contradicts {}: {} of {}: give one of them, or the same number",
                      size.option, *size.value, size.key, found, path));
    }
  }
  return with_keys(std::move(text), added);
}

Status add_sizes(const LoadOptions& options, ParallelOptions* parallel) {
  if (!options.extra_config.empty()) {
    if (!parallel->config.empty()) {
      return invalid_input(
          "--config and --extra-llm-api-options name the same file: give one of them");
    }
    parallel->config = options.extra_config;
  }
  if (!options.tp && !options.pp && !options.ep) return {};
  if (parallel->ranks) {
    return invalid_input(
        "--tp, --pp and --ep set the parallel sizes, as --ranks does: give one of them");
  }
  WIDEEP_TRY_ASSIGN(parallel->text, config_with_sizes(options, parallel->config));
  return {};
}

// trtllm-bench's --model is a name at Hugging Face, and --model_path the directory that is read.
Status set_model(const LoadOptions& options, run::RunOptions* run) {
  run->model_dir = options.model_path.empty() ? options.model : options.model_path;
  if (!run->model_dir.empty()) return {};
  return invalid_input("--model: expected a model directory (or --model-path), found none");
}

// As in trtllm-bench, pages are shared only if that is asked for, by the option or the file.
Status set_limits(const LoadOptions& options, run::RunOptions* run) {
  parallel::ParallelConfig* config = &run->parallel;
  if (options.max_seq_len) {
    if (options.ranks.context && *options.ranks.context != *options.max_seq_len) {
      return invalid_input(fmt::format(
          "--max-seq-len {} contradicts --context {}: give one of them, or the same number",
          *options.max_seq_len, *options.ranks.context));
    }
    log_override("--max-seq-len", *options.max_seq_len, "max_seq_len", config->max_seq_len,
                 config->name);
    config->max_seq_len = *options.max_seq_len;
  }
  std::optional<bool>& reuse = config->kv_cache_config.enable_block_reuse;
  if (options.block_reuse && reuse == false) {
    return invalid_input(
        fmt::format("--enable-block-reuse contradicts kv_cache_config.enable_block_reuse: false of "
                    "{}: give one of them",
                    config->name));
  }
  if (!reuse) reuse = options.block_reuse;
  if (!*reuse && run->host_cache_bytes > 0) {
    log::info("kv_cache_config.host_cache_size of {} has no effect without --enable-block-reuse",
              config->name);
    run->host_cache_bytes = 0;
  }
  return {};
}

// A share says nothing where bytes or tokens say how large the cache is.
Status set_cache_share(const LoadOptions& options, run::RunOptions* run) {
  constexpr const char* kOption = "--kv-cache-free-gpu-mem-fraction";
  if (!options.cache_share) return {};
  run->cache_share = *options.cache_share;
  if (run->cache_bytes) {
    return invalid_input(fmt::format("{} {} contradicts --kv-cache-memory {}: give one of them",
                                     kOption, *options.cache_share, options.ranks.kv_cache_memory));
  }
  const parallel::ParallelConfig& config = run->parallel;
  if (const auto max_tokens = config.kv_cache_config.max_tokens) {
    log::info("kv_cache_config.max_tokens {} of {} holds, not {} {}", *max_tokens, config.name,
              kOption, *options.cache_share);
  }
  return {};
}

Status set_ends(const LoadOptions& options, measure::ThroughputOptions* bench) {
  if (options.eos_id < 0) return {};
  if (options.ignore_eos) {
    return invalid_input(
        fmt::format("--ignore-eos contradicts --eos-id {}: give one of them", options.eos_id));
  }
  bench->eos_token = options.eos_id;
  return {};
}

void add_what_options(command_line::Command command, LoadOptions& options) {
  command
      .add_option(
          "--model,-m", options.model,
          "Model directory (Hugging Face layout); with --random-weights also just a config.json")
      .model();
  command
      .add_option("--model-path", options.model_path,
                  "The directory, where --model is a name for the report")
      .model();
  command
      .add_option("--dataset", options.dataset,
                  "JSON lines with \"prompt\" or \"input_ids\", and \"output_tokens\"")
      .path()
      .required();
  command
      .add_option("--num-requests", options.num_requests,
                  "Use only this many requests, from the start of the dataset; 0: all")
      .range(0, 1 << 24);
  command
      .add_option(
          "--eos-id", options.eos_id,
          "Id of the token that ends an answer; -1: every answer has its output_tokens tokens")
      .show_default();
  command.add_flag("--ignore-eos", options.ignore_eos,
                   "Every answer has its output_tokens tokens, as with --eos-id -1");
  command
      .add_option("--sampler-options", options.sampler_options,
                  "YAML file of sampling parameters: temperature, top_k, top_p, ... (default: "
                  "greedy)")
      .path();
  command.add_flag("--no-skip-tokenizer-init", options.bench.decodes,
                   "Read the tokenizer also where all prompts are token ids: outputs have texts");
}

void add_arrival_options(command_line::Command command, LoadOptions& options) {
  command
      .add_option("--concurrency", options.concurrency,
                  "Most requests in the engine at the same time; -1: no limit")
      .range(-1, 1 << 24)
      .show_default();
  command
      .add_option("--request-rate", options.bench.arrivals.request_rate,
                  "Requests per second, which arrive as a Poisson process; inf: all at once")
      .check(check_request_rate)
      .show_default();
  command.add_option("--seed", options.bench.arrivals.seed, "Seed of the arrival times")
      .range(uint64_t{0}, uint64_t{1} << 62);
  command.add_option("--warmup", options.bench.warmup, "Requests that run before the measurement")
      .range(0, 1 << 20)
      .show_default();
}

void add_engine_options(command_line::Command command, LoadOptions& options) {
  add_rank_run_options(command, &options.ranks);
  command.add_option("--extra-llm-api-options", options.extra_config, "The same as --config")
      .path();
  command.add_flag(
      "--enable-block-reuse", options.block_reuse,
      "Let requests with the same prefix share pages of the KV cache, including those of the "
      "warm-up; without this option none do, even if the configuration enables it");
  for (const auto& [name, value] : {std::pair{"--tp", &options.tp}, std::pair{"--pp", &options.pp},
                                    std::pair{"--ep", &options.ep}}) {
    command
        .add_option(name, *value,
                    "Tensor (--tp), pipeline (--pp) or expert (--ep) parallel size, added to "
                    "--config, without attention DP unless that has it; instead of --ranks")
        .range(1, 4096);
  }
  command
      .add_option("--max-seq-len", options.max_seq_len,
                  "Most tokens of a prompt and its answer together")
      .range(1, 1 << 24);
  command
      .add_option("--kv-cache-free-gpu-mem-fraction", options.cache_share,
                  "Share of the free memory that the KV cache may grow to, instead of "
                  "--kv-cache-memory (default: 0.3)")
      .range(0.001, 1.0);
}

}  // namespace

std::string check_request_rate(const std::string& text) {
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  if (*end == '\0' && rate > 0.0) return "";
  return fmt::format("expected requests per second, more than 0, or inf, found {}", text);
}

void add_load_options(command_line::Command command, LoadOptions* options) {
  add_what_options(command, *options);
  add_arrival_options(command, *options);
  add_engine_options(command, *options);
  options->foreign.add_to(command, trtllm_bench_options());
  options->foreign.add_to(command, kForeign);
}

std::string name_of_model(const LoadOptions& options) {
  return options.model.empty() ? options.model_path : options.model;
}

Result<measure::ThroughputOptions> read_load_options(const LoadOptions& options) {
  measure::ThroughputOptions result = options.bench;
  WIDEEP_TRY(options.foreign.take());
  WIDEEP_TRY(set_model(options, &result.run));
  RankRunOptions ranks = options.ranks;
  WIDEEP_TRY(add_sizes(options, &ranks.parallel));
  WIDEEP_TRY(apply_rank_run_options(ranks, true, &result.run));
  WIDEEP_TRY(set_limits(options, &result.run));
  WIDEEP_TRY(set_cache_share(options, &result.run));
  WIDEEP_TRY(set_ends(options, &result));
  if (!options.sampler_options.empty()) {
    WIDEEP_TRY_ASSIGN(result.sampling, read_sampler_options(options.sampler_options));
  }
  WIDEEP_TRY_ASSIGN(result.start_queue, read_start_queue());
  result.concurrency = std::max(options.concurrency, 0);
  WIDEEP_TRY_ASSIGN(result.requests, measure::read_dataset(options.dataset));
  const auto max = static_cast<size_t>(options.num_requests);
  if (max > result.requests.size()) {
    return invalid_input(fmt::format("--num-requests: {} has {} requests, found {}",
                                     options.dataset, result.requests.size(), max));
  }
  if (max > 0) result.requests.resize(max);
  return result;
}

namespace {

class ProgressLines : public measure::ThroughputView {
 public:
  explicit ProgressLines(size_t num_requests) : num_requests_(num_requests) {}
  void plan(const std::string& lines) override { run_.plan(lines); }
  void loading(uint64_t done, uint64_t all) override { run_.loading(done, all); }
  void waits_for(int requests) override {
    log::info(
        "TLLM_BENCHMARK_REQ_QUEUES_SIZE: the first iteration waits for {} requests (at most as "
        "many as can run at once)",
        requests);
  }
  void request_done() override {
    run_.end_loading();
    if (!requests_) {
      requests_.emplace("measuring", static_cast<int64_t>(num_requests_), "requests");
    }
    requests_->step();
  }

 private:
  size_t num_requests_;
  RunLines run_;
  std::optional<base::Progress> requests_;
};

}  // namespace

Result<measure::ThroughputRun> run_with_progress(const measure::ThroughputOptions& options) {
  ProgressLines lines(options.requests.size());
  return measure::run_throughput(options, lines);
}

}  // namespace wideep::tools
