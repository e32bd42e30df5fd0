// SPDX-License-Identifier: Apache-2.0
//
// wideep bench serving: measures a server with OpenAI's completions or chat endpoint, as its clients
// see it, with the options, the printed blocks and the result file of TensorRT-LLM's
// benchmark_serving.
//
// Without a dataset prompts are random ids, so that no tokenizer is needed and a server of any kind
// can be measured. Failures do not end the run, but make the command fail at its end.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/progress.h"
#include "base/try.h"
#include "bench_serving_output.h"
#include "bench_serving_requests.h"
#include "commands.h"
#include "foreign_options.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "load_options.h"
#include "measure/serving/serving_run.h"
#include "output_file.h"
#include "plan_output.h"

namespace wideep::tools {
namespace {

using Takes = ForeignOption::Takes;

constexpr const char* kOtherData = "it belongs to data sets that are refused";
constexpr const char* kNoDownload = "nothing is downloaded; --dataset-path names the file";
constexpr ForeignOption kForeign[] = {
    {"--tokenizer-mode", Takes::kText, "auto,slow", "tokenizers are read from the model's files"},
    {"--custom-tokenizer", Takes::kText, "deepseek_v32,glm_moe_dsa",
     "tokenizers are read from the model's files, classes of Python cannot be loaded"},
    {"--trust-remote-code", Takes::kNothing, nullptr, "no code of a model is run"},
    {"--use-beam-search", Takes::kNothing, "", "there is no beam search; leave it out"},
    {"--profile", Takes::kNothing, "",
     "servers are not asked to profile; start wideep serve with --profile-range"},
    {"--lora-modules", Takes::kTexts, "", "there are no LoRA adapters; leave it out"},
    {"--no-test-input", Takes::kNothing, nullptr, "no request is sent before the measured ones"},
    {"--random-ids", Takes::kNothing, nullptr, "random prompts are always random token ids"},
    {"--download-path", Takes::kText, nullptr, kNoDownload},
    {"--download-timeout", Takes::kNumber, nullptr, kNoDownload},
    {"--sonnet-input-len", Takes::kNumber, nullptr, kOtherData},
    {"--sonnet-output-len", Takes::kNumber, nullptr, kOtherData},
    {"--sonnet-prefix-len", Takes::kNumber, nullptr, kOtherData},
    {"--random-image-width", Takes::kNumber, nullptr, kOtherData},
    {"--random-image-height", Takes::kNumber, nullptr, kOtherData},
    {"--random-image-size", Takes::kNumber, nullptr, kOtherData},
    {"--random-num-images", Takes::kNumber, nullptr, kOtherData},
    {"--hf-subset", Takes::kText, nullptr, kOtherData},
    {"--hf-split", Takes::kText, nullptr, kOtherData},
    {"--hf-output-len", Takes::kNumber, nullptr, kOtherData},
};

struct Options {
  ForeignOptions foreign;
  std::string backend = "openai";
  std::optional<std::string> base_url, host, endpoint;
  std::optional<int> port;
  std::string model, served_model_name;
  std::string api_key;
  std::string dataset, dataset_name;
  ServingRequestOptions requests;
  bool ignore_eos = false, stop_at_eos = false, non_streaming = false;
  std::optional<double> temperature;
  std::string percentile_metrics = "ttft,tpot,itl", metric_percentiles = "99";
  std::vector<std::string> goodput, metadata;
  bool save_result = false, save_detailed = false, disable_tqdm = false;
  std::string result_dir, result_filename;
  std::string prediction;  // a file of `wideep advise --json`
  bool json = false;
  measure::ServingOptions bench;
};

Result<client::HttpAddress> address_of(const Options& options) {
  if (options.base_url && (options.host || options.port)) {
    return invalid_input("--base-url and --host or --port both say where the server is: give one");
  }
  const std::string host = options.host.value_or("127.0.0.1");
  const std::string url = options.base_url.value_or(
      fmt::format("http://{}:{}",
                  host.find(':') == host.npos || host.starts_with('[') ? host : "[" + host + "]",
                  options.port.value_or(8000)));
  WIDEEP_TRY_ASSIGN(client::HttpAddress address, client::parse_address(url));
  // A base URL may end in /v1, as clients of OpenAI write it.
  if (address.path.ends_with("/v1")) address.path.resize(address.path.size() - 3);
  address.api_key = options.api_key;
  for (const char* variable : {"WIDEEP_API_KEY", "OPENAI_API_KEY"}) {
    const char* key = std::getenv(variable);
    if (key != nullptr && address.api_key.empty()) address.api_key = key;
  }
  return address;
}

// Of a data set that is not theirs, options are named. Those of random prompts are refused beside
// --dataset by the parser.
void note_unused(const ServingRequestOptions& requests) {
  const ServingRequestOptions plain;
  const std::tuple<const char*, bool, const char*> set[] = {
      {"--random-input-len", requests.input_tokens != plain.input_tokens, "random"},
      {"--random-output-len", requests.output_tokens != plain.output_tokens, "random"},
      {"--random-range-ratio", requests.range_ratio != plain.range_ratio, "random"},
      {"--random-prefix-len", requests.prefix_tokens != plain.prefix_tokens, "random"},
      {"--random-least-id", requests.min_id != plain.min_id, "random"},
      {"--random-num-ids", requests.num_ids != plain.num_ids, "random"},
      {"--sharegpt-output-len", requests.sharegpt_output_tokens != 0, "sharegpt"}};
  for (const auto& [option, given, kind] : set) {
    if (!given || requests.kind == kind) continue;
    log::info("{}: accepted, no effect: the data set is not {}", option, kind);
  }
}

Result<ServingRequestOptions> request_options(const Options& options) {
  ServingRequestOptions requests = options.requests;
  requests.seed = options.bench.arrivals.seed;
  requests.as_texts = options.backend == "openai-chat";
  if (requests.as_texts && requests.as_ids) {
    return invalid_input(
        "--tokenize-on-client: has no meaning with --backend openai-chat, which "
        "sends texts; leave it out");
  }
  requests.kind = options.dataset_name;
  if (!options.dataset.empty()) {
    if (!options.dataset_name.empty() || !requests.path.empty()) {
      return invalid_input(
          "--dataset and --dataset-name or --dataset-path both say what to send: give one");
    }
    requests.kind = "wideep";
    requests.path = options.dataset;
  } else if (requests.kind.empty()) {
    if (!requests.path.empty()) {
      return invalid_input(
          "--dataset-path: expected also --dataset-name sharegpt or trtllm_custom");
    }
    requests.kind = "random";
  } else if (requests.kind == "random" && !requests.path.empty()) {
    log::info("--dataset-path: accepted, no effect: random prompts are always random token ids");
  }
  for (const char* refused : {"burstgpt", "sonnet", "random_image", "hf"}) {
    if (requests.kind != refused) continue;
    return invalid_input(
        fmt::format("--dataset-name: expected random, sharegpt or trtllm_custom, found {}; "
                    "wideep bench prepare-dataset makes files of other data for --dataset",
                    refused));
  }
  note_unused(requests);
  return requests;
}

Result<measure::ServingOptions> bench_options(const Options& options) {
  measure::ServingOptions result = options.bench;
  WIDEEP_TRY_ASSIGN(result.address, address_of(options));
  if (options.ignore_eos && options.stop_at_eos) {
    return invalid_input("--ignore-eos and --stop-at-eos contradict each other: give one of them");
  }
  result.model = options.served_model_name.empty() ? options.model : options.served_model_name;
  result.ignore_eos = !options.stop_at_eos;
  result.streams = !options.non_streaming;
  result.temperature = options.temperature.value_or(0.0);
  result.keeps_texts = options.save_result && options.save_detailed;
  const bool is_chat = options.backend == "openai-chat";
  result.api = is_chat ? measure::ServingApi::kChat : measure::ServingApi::kCompletions;
  result.endpoint = options.endpoint.value_or(is_chat ? "/v1/chat/completions" : "/v1/completions");
  if (!result.endpoint.starts_with("/")) result.endpoint.insert(0, "/");
  WIDEEP_TRY_ASSIGN(const ServingRequestOptions requests, request_options(options));
  WIDEEP_TRY_ASSIGN(result.requests, serving_requests(requests));
  return result;
}

// ---- the result file ----

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &parts);
  return text;
}

Result<ServingRun> run_of(const Options& options) {
  ServingRun run{.backend = options.backend,
                 .model = options.model,
                 .tokenizer = options.requests.tokenizer,
                 .num_prompts = options.requests.num_prompts,
                 .request_rate = options.bench.arrivals.request_rate,
                 .burstiness = options.bench.arrivals.burstiness,
                 .max_concurrency = options.bench.max_concurrency,
                 .metadata = {},
                 .is_detailed = options.save_detailed};
  for (const std::string& item : options.metadata) {
    const size_t sign = item.find('=');
    if (sign == item.npos || sign == 0) {
      return invalid_input(fmt::format("--metadata: expected KEY=VALUE, found {}", item));
    }
    run.metadata.emplace_back(item.substr(0, sign), item.substr(sign + 1));
  }
  return run;
}

// Where the result goes; "": nowhere. Checked before the run, so that a bad path does not cost its
// results.
Result<std::string> result_path(const Options& options, const ServingRun& run,
                                const std::string& date) {
  if (!options.save_result) {
    const std::pair<const char*, bool> without[] = {
        {"--save-detailed", options.save_detailed},
        {"--metadata", !options.metadata.empty()},
        {"--result-dir", !options.result_dir.empty()},
        {"--result-filename", !options.result_filename.empty()}};
    for (const auto& [option, given] : without) {
      if (given) log::info("{}: accepted, no effect without --save-result", option);
    }
    return std::string();
  }
  const std::filesystem::path name =
      options.result_filename.empty() ? result_file_name(run, date) : options.result_filename;
  const std::string path = (std::filesystem::path(options.result_dir) / name).string();
  WIDEEP_TRY(check_output_file(path, "--save-result"));
  return path;
}

// Replies in one piece have no times of tokens.
Status leave_end_to_end(ServingFigures* figures) {
  for (const auto& [metric, ms] : figures->goals) {
    if (metric == "e2el") continue;
    return invalid_input(fmt::format(
        "--goodput: {}:{} is not known with --non-streaming: expected e2el:MS", metric, ms));
  }
  figures->metrics = {"e2el"};
  return {};
}

Status run(const Options& options) {
  WIDEEP_TRY(options.foreign.take());
  WIDEEP_TRY_ASSIGN(ServingFigures figures,
                    read_serving_figures(options.percentile_metrics, options.metric_percentiles,
                                         options.goodput));
  if (options.non_streaming) WIDEEP_TRY(leave_end_to_end(&figures));
  if (!options.prediction.empty()) {
    if (options.non_streaming) {
      return invalid_input(
          "--prediction: times of tokens are not known with --non-streaming; leave out one of "
          "them");
    }
    WIDEEP_TRY_ASSIGN(figures.prediction, read_serving_prediction(options.prediction));
  }
  WIDEEP_TRY_ASSIGN(const ServingRun run, run_of(options));
  const std::string date = date_now();
  WIDEEP_TRY_ASSIGN(const std::string path, result_path(options, run, date));
  WIDEEP_TRY_ASSIGN(const measure::ServingOptions bench, bench_options(options));
  const auto serve = [&] {
    std::optional<base::Progress> progress;
    if (!options.disable_tqdm) {
      progress.emplace("serving", static_cast<int64_t>(bench.requests.size()), "requests");
    }
    return measure::run_serving_bench(bench, [&] {
      if (progress) progress->step();
    });
  };
  WIDEEP_TRY_ASSIGN(const measure::ServingReport report, serve());
  if (report.completed == 0) {
    return failed(
        fmt::format("no request succeeded; the first failed with: {}", report.failures.front()));
  }
  const std::string text = options.json
                               ? formats::json_text(serving_json(report, figures), 2) + "\n"
                               : serving_text(report, figures);
  std::fputs(text.c_str(), stdout);
  if (!path.empty()) {
    WIDEEP_TRY(formats::write_file(path, json_text(result_json(run, date, report, figures))));
    log::info("result: {}", path);
  }
  if (report.failures.empty()) return {};
  return failed(fmt::format("{} requests failed; the first with: {}", report.failures.size(),
                            report.failures.front()));
}

// ---- options ----

void add_server_options(command_line::Command command, Options& options) {
  command.add_option("--base-url", options.base_url,
                     "Address of the server, with or without /v1 (default: http://127.0.0.1:8000)");
  command.add_option("--host", options.host, "Its host, instead of --base-url");
  command.add_option("--port", options.port, "Its port, instead of --base-url").range(1, 65535);
  command
      .add_option("--backend", options.backend,
                  "Endpoint: openai: completions; openai-chat: chats of one message")
      .one_of({"openai", "openai-chat"})
      .show_default();
  command.add_option("--endpoint", options.endpoint,
                     "Its path (default: /v1/completions or /v1/chat/completions)");
  command.add_option("--model", options.model, "Name of the model on the server").required();
  command.add_option(
      "--served-model-name", options.served_model_name,
      "Name of the model on the server, where --model is another one for the report");
  command.add_option("--api-key", options.api_key,
                     "Key that the server expects (also WIDEEP_API_KEY, OPENAI_API_KEY)");
}

void add_random_options(command_line::Command command, ServingRequestOptions& requests,
                        const command_line::Option& dataset) {
  command.add_option("--random-input-len", requests.input_tokens, "Tokens of a random prompt")
      .range(1, 1 << 24)
      .excludes(dataset)
      .show_default();
  command
      .add_option("--random-output-len", requests.output_tokens,
                  "Tokens to generate for each random prompt")
      .range(1, 1 << 24)
      .excludes(dataset)
      .show_default();
  command
      .add_option("--random-range-ratio", requests.range_ratio,
                  "Spread of these two: lengths are uniform in length * (1 - R) to * (1 + R)")
      .range(0.0, 0.999999)
      .excludes(dataset)
      .show_default();
  command
      .add_option("--random-prefix-len", requests.prefix_tokens,
                  "Tokens before each random prompt, the same for all")
      .range(0, 1 << 24)
      .excludes(dataset)
      .show_default();
  command.add_option("--random-least-id", requests.min_id, "Smallest id of random tokens")
      .range(0, 1 << 24)
      .excludes(dataset)
      .show_default();
  command
      .add_option("--random-num-ids", requests.num_ids, "Number of different ids of random tokens")
      .range(1, 1 << 24)
      .excludes(dataset)
      .show_default();
}

void add_request_options(command_line::Command command, Options& options) {
  ServingRequestOptions& requests = options.requests;
  const command_line::Option dataset =
      command.add_option("--dataset", options.dataset,
                         "JSON lines with \"prompt\" or \"input_ids\", and \"output_tokens\" "
                         "(default: random token ids)");
  command
      .add_option("--dataset-name", options.dataset_name,
                  "What --dataset-path has: sharegpt: conversations; trtllm_custom: requests with "
                  "messages; or random: random token ids")
      .one_of({"random", "sharegpt", "trtllm_custom", "burstgpt", "sonnet", "random_image", "hf"});
  command.add_option("--dataset-path", requests.path, "File of --dataset-name").path();
  command
      .add_option("--num-prompts", requests.num_prompts,
                  "Number of requests; of a file the most to use")
      .range(1, 1 << 24)
      .show_default();
  command
      .add_option("--tokenizer", requests.tokenizer,
                  "Model directory whose tokenizer counts and converts prompts, where needed")
      .model();
  command.add_flag("--tokenize-on-client", requests.as_ids,
                   "Send the token ids of texts (random prompts are ids anyway)");
  command
      .add_option("--sharegpt-output-len", requests.sharegpt_output_tokens,
                  "Tokens to generate for each conversation (default: as many as its answer has)")
      .range(1, 1 << 24);
  add_random_options(command, requests, dataset);
}

void add_sampling_options(command_line::Command command, Options& options) {
  command.add_flag("--ignore-eos", options.ignore_eos,
                   "Ask the server to ignore the end token, as it is asked by default");
  command.add_flag("--stop-at-eos", options.stop_at_eos,
                   "Let answers end at the end token (default: ask the server to ignore it, which "
                   "not every server supports)");
  command.add_flag("--non-streaming", options.non_streaming,
                   "Ask for replies in one piece: only their end-to-end latency is known");
  command.add_option("--temperature", options.temperature, "As requests have it (default: 0)")
      .range(0.0, 100.0);
  command.add_option("--top-p", options.bench.top_p, "As requests have it (default: none)")
      .range(0.0, 1.0);
  command.add_option("--top-k", options.bench.top_k, "As requests have it (default: none)")
      .range(-1, 1 << 24);
  command.add_option("--min-p", options.bench.min_p, "As requests have it (default: none)")
      .range(0.0, 1.0);
  command.add_option("--logprobs", options.bench.logprobs, "As requests have it (default: none)")
      .range(0, 1000);
}

void add_arrival_options(command_line::Command command, Options& options) {
  command
      .add_option("--max-concurrency", options.bench.max_concurrency,
                  "Most requests at the same time")
      .range(1, 4096)
      .show_default();
  command
      .add_option("--request-rate", options.bench.arrivals.request_rate,
                  "Requests per second, which arrive as a Poisson process; inf: all at once")
      .check(check_request_rate)
      .show_default();
  command
      .add_option("--burstiness", options.bench.arrivals.burstiness,
                  "Shape of the gamma distribution of the gaps between requests; 1: a Poisson "
                  "process; less: more bursts")
      .range(0.001, 1e6)
      .show_default();
  command.add_option("--seed", options.bench.arrivals.seed,
                     "Seed of arrival times and of random prompts");
}

void add_report_options(command_line::Command command, Options& options) {
  command
      .add_option("--percentile-metrics", options.percentile_metrics,
                  "Blocks to print, of ttft,tpot,itl,e2el")
      .show_default();
  command.add_option("--metric-percentiles", options.metric_percentiles, "Percentiles of each")
      .show_default();
  command.add_option("--goodput", options.goodput,
                     "Goals in milliseconds, as ttft:500 tpot:50 e2el:9000: also count the "
                     "requests that meet all of them");
  command
      .add_option("--prediction", options.prediction,
                  "Also compare with what `wideep advise --json` has predicted, in this file")
      .path();
  command.add_flag("--save-result", options.save_result, "Write the result to a file of JSON");
  command.add_flag("--save-detailed", options.save_detailed,
                   "With the lengths, times, texts and errors of every request");
  command.add_option("--metadata", options.metadata, "KEY=VALUE pairs for that file");
  command.add_option("--result-dir", options.result_dir, "Its directory").path();
  command.add_option("--result-filename", options.result_filename,
                     "Its name (default: {backend}-{rate}qps-concurrency{N}-{model}-{date}.json)");
  command.add_flag("--disable-tqdm", options.disable_tqdm, "No progress line");
  command.add_flag("--json", options.json, "Only JSON on stdout");
}

}  // namespace

void add_bench_serving_command(command_line::Command bench, Status* status) {
  const command_line::Command command =
      bench.add_command("serving", "Measure a running server as its clients see it");
  auto options = std::make_shared<Options>();
  add_server_options(command, *options);
  add_request_options(command, *options);
  add_sampling_options(command, *options);
  add_arrival_options(command, *options);
  add_report_options(command, *options);
  options->foreign.add_to(command, kForeign);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
