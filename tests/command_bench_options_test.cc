// SPDX-License-Identifier: Apache-2.0
//
// Every option of trtllm-bench and of benchmark_serving is honoured (then --help lists it),
// accepted with a line, or refused by name. The tables are those programs' options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using Arguments = std::vector<std::string>;

enum class Fate { kHonoured, kAccepted, kRefused };
struct TheirOption {
  Arguments arguments;  // its name as there, and values
  Fate fate;
};
using enum Fate;

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// command: with all that it needs. Each refused option is tried alone, the accepted ones together.
void check(const Arguments& command, const std::vector<TheirOption>& options,
           const Arguments& words) {
  Arguments help = words;
  help.push_back("--help");
  const std::string listed = run_command({.arguments = help}).out;
  Arguments accepted = command;
  for (const TheirOption& option : options) {
    const std::string name = dashed(option.arguments[0]);
    EXPECT_EQ(listed.find("  " + name) != listed.npos || listed.find("," + name) != listed.npos,
              option.fate == kHonoured)
        << name << "\n"
        << listed;
    if (option.fate == kAccepted) {
      accepted.insert(accepted.end(), option.arguments.begin(), option.arguments.end());
    }
    if (option.fate != kRefused) continue;
    Arguments alone = command;
    alone.insert(alone.end(), option.arguments.begin(), option.arguments.end());
    expect_refused(run_command({.arguments = alone}), {name});
  }
  const CommandEnd end = run_command({.arguments = accepted});
  EXPECT_THAT(end.exit_code, testing::AnyOf(0, 1)) << end.err;  // 1: no server is there
  for (const TheirOption& option : options) {
    if (option.fate != kAccepted) continue;
    EXPECT_THAT(end.err, HasSubstr(dashed(option.arguments[0]) + ": accepted, no effect: "));
  }
}

class CommandBenchOptions : public ::testing::Test {
 protected:
  CommandBenchOptions() {
    std::string lines;
    for (int i = 0; i < 4; ++i) lines += "{\"input_ids\": [40, 41, 42], \"output_tokens\": 3}\n";
    EXPECT_TRUE(formats::write_file(dataset_, lines).ok());
  }
  std::string write(const std::string& name, const std::string& content) const {
    EXPECT_TRUE(formats::write_file(directory_.file(name), content).ok());
    return directory_.file(name);
  }
  CommandEnd bench(Arguments arguments, std::pair<std::string, std::string> variable = {}) const {
    arguments.insert(arguments.begin(), "bench");
    CommandOptions options{.arguments = std::move(arguments), .environment = {}};
    if (!variable.first.empty()) options.environment.push_back(std::move(variable));
    return run_command(options);
  }

  const base::ScratchDirectory directory_;
  const std::string dataset_ = directory_.file("data.jsonl");
};

TEST_F(CommandBenchOptions, ThroughputAndLatency) {
  const std::vector<TheirOption> options = {
      {{"--model"}, kHonoured},
      {{"--model_path"}, kHonoured},
      {{"--workspace", "/tmp"}, kAccepted},
      {{"--log_level", "info"}, kAccepted},
      {{"--revision", "main"}, kRefused},
      {{"--telemetry"}, kAccepted},
      {{"--no-telemetry"}, kAccepted},
      {{"--engine_dir", "x"}, kRefused},
      {{"--backend", "pytorch"}, kAccepted},
      {{"--custom_module_dirs", "x"}, kRefused},
      {{"--config"}, kHonoured},
      {{"--extra_llm_api_options"}, kHonoured},
      {{"--sampler_options"}, kHonoured},
      {{"--max_batch_size"}, kHonoured},
      {{"--max_num_tokens"}, kHonoured},
      {{"--max_seq_len"}, kHonoured},
      {{"--beam_width", "2"}, kRefused},
      {{"--beam_width", "1"}, kAccepted},
      {{"--kv_cache_free_gpu_mem_fraction"}, kHonoured},
      {{"--mamba_ssm_cache_dtype", "float16"}, kRefused},
      {{"--mamba_ssm_cache_dtype", "auto"}, kAccepted},
      {{"--dataset"}, kHonoured},
      {{"--no_skip_tokenizer_init"}, kHonoured},
      {{"--custom_tokenizer", "my.Class"}, kRefused},
      {{"--custom_tokenizer", "deepseek_v32"}, kAccepted},
      {{"--eos_id"}, kHonoured},
      {{"--ignore_eos"}, kHonoured},
      {{"--modality", "image"}, kRefused},
      {{"--image_data_format", "pil"}, kAccepted},
      {{"--data_device", "cpu"}, kAccepted},
      {{"--data_device", "tpu"}, kRefused},
      {{"--max_input_len", "4096"}, kAccepted},
      {{"--max_input_len", "long"}, kRefused},
      {{"--num_requests"}, kHonoured},
      {{"--warmup"}, kHonoured},
      {{"--target_input_len", "8"}, kAccepted},
      {{"--target_output_len", "8"}, kAccepted},
      {{"--tp"}, kHonoured},
      {{"--pp"}, kHonoured},
      {{"--ep"}, kHonoured},
      {{"--cluster_size", "2"}, kRefused},
      {{"--concurrency"}, kHonoured},
      {{"--streaming"}, kHonoured},
      {{"--report_json"}, kHonoured},
      {{"--iteration_log"}, kHonoured},
      {{"--output_json"}, kHonoured},
      {{"--request_json"}, kHonoured},
      {{"--enable_chunked_context"}, kAccepted},
      {{"--disable_chunked_context"}, kRefused},
      {{"--scheduler_policy"}, kHonoured},
      {{"--medusa_choices", "x"}, kRefused},
  };
  for (const std::string kind : {"throughput", "latency"}) {
    check({"bench", kind, "--model", small_model(), "--dataset", dataset_, "--warmup", "0"},
          options, {"bench", kind});
  }
}

TEST_F(CommandBenchOptions, PrepareDataset) {
  const Arguments synthetic = {"token-norm-dist",
                               "--num-requests",
                               "3",
                               "--input-mean",
                               "5",
                               "--input-stdev",
                               "1",
                               "--output-mean",
                               "4",
                               "--output-stdev",
                               "0"};
  Arguments before = {"bench",       "prepare-dataset", "--output", directory_.file("made.jsonl"),
                      "--tokenizer", small_model()};
  const std::vector<TheirOption> group = {
      {{"--output"}, kHonoured},
      {{"--model"}, kHonoured},
      {{"--tokenizer"}, kHonoured},
      {{"--stdout"}, kHonoured},
      {{"--random-seed"}, kHonoured},
      {{"--task-id", "3"}, kAccepted},
      {{"--rand-task-id", "0", "4"}, kAccepted},
      {{"--lora-dir", "x"}, kRefused},
      {{"--log-level", "debug"}, kAccepted},
      {{"--trust-remote-code"}, kAccepted},
  };
  const std::string listed = run_command({.arguments = {"bench", "prepare-dataset", "--help"}}).out;
  for (const TheirOption& option : group) {
    EXPECT_EQ(listed.find(option.arguments[0]) != listed.npos, option.fate == kHonoured)
        << option.arguments[0] << listed;
  }
  // Behind the sub-command's options the group's are not known: they stand before it.
  Arguments all = before;
  for (const TheirOption& option : group) {
    if (option.fate == kAccepted) {
      all.insert(all.end(), option.arguments.begin(), option.arguments.end());
    }
    if (option.fate != kRefused) continue;
    Arguments refused = before;
    refused.insert(refused.end(), option.arguments.begin(), option.arguments.end());
    refused.insert(refused.end(), synthetic.begin(), synthetic.end());
    expect_refused(run_command({.arguments = refused}), {option.arguments[0]});
  }
  all.insert(all.end(), synthetic.begin(), synthetic.end());
  const CommandEnd end = run_command({.arguments = all});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  for (const TheirOption& option : group) {
    if (option.fate != kAccepted) continue;
    EXPECT_THAT(end.err, HasSubstr(option.arguments[0] + ": accepted, no effect: "));
  }
  before.insert(before.end(), {"real-dataset", "--dataset-name", dataset_});
  const std::string texts = write("texts.jsonl", "{\"prompt\": \"abc\"}\n{\"prompt\": \"de\"}\n");
  before.back() = texts;
  check(before,
        {{{"--dataset-name"}, kHonoured},
         {{"--dataset-config-name"}, kHonoured},
         {{"--dataset-split"}, kHonoured},
         {{"--dataset-input-key"}, kHonoured},
         {{"--dataset-image-key", "picture"}, kRefused},
         {{"--dataset-image-key", "image"}, kAccepted},
         {{"--dataset-prompt-key"}, kHonoured},
         {{"--dataset-prompt"}, kHonoured},
         {{"--dataset-output-key"}, kHonoured},
         {{"--num-requests"}, kHonoured},
         {{"--max-input-len"}, kHonoured},
         {{"--output-len-dist"}, kHonoured}},
        {"bench", "prepare-dataset", "real-dataset"});
}

TEST_F(CommandBenchOptions, Serving) {
  const std::string conversations = write("c.json", "[]");
  check({"bench", "serving", "--model", "m", "--port", "1", "--num-prompts", "1"},
        {{{"--backend"}, kHonoured},
         {{"--base-url"}, kHonoured},
         {{"--host"}, kHonoured},
         {{"--port"}, kHonoured},
         {{"--endpoint"}, kHonoured},
         {{"--dataset-name"}, kHonoured},
         {{"--dataset-path"}, kHonoured},
         {{"--download-path", "x"}, kAccepted},
         {{"--download-timeout", "180"}, kAccepted},
         {{"--max-concurrency"}, kHonoured},
         {{"--model"}, kHonoured},
         {{"--tokenizer"}, kHonoured},
         {{"--tokenizer-mode", "mistral"}, kRefused},
         {{"--tokenizer-mode", "auto"}, kAccepted},
         {{"--custom-tokenizer", "x.Y"}, kRefused},
         {{"--use-beam-search"}, kRefused},
         {{"--num-prompts"}, kHonoured},
         {{"--logprobs"}, kHonoured},
         {{"--request-rate"}, kHonoured},
         {{"--burstiness"}, kHonoured},
         {{"--non-streaming"}, kHonoured},
         {{"--seed"}, kHonoured},
         {{"--trust-remote-code"}, kAccepted},
         {{"--disable-tqdm"}, kHonoured},
         {{"--profile"}, kRefused},
         {{"--save-result"}, kHonoured},
         {{"--save-detailed"}, kHonoured},
         {{"--metadata"}, kHonoured},
         {{"--result-dir"}, kHonoured},
         {{"--result-filename"}, kHonoured},
         {{"--ignore-eos"}, kHonoured},
         {{"--percentile-metrics"}, kHonoured},
         {{"--metric-percentiles"}, kHonoured},
         {{"--goodput"}, kHonoured},
         {{"--sonnet-input-len", "550"}, kAccepted},
         {{"--sonnet-output-len", "150"}, kAccepted},
         {{"--sonnet-prefix-len", "200"}, kAccepted},
         {{"--sharegpt-output-len"}, kHonoured},
         {{"--random-input-len"}, kHonoured},
         {{"--random-output-len"}, kHonoured},
         {{"--random-range-ratio"}, kHonoured},
         {{"--random-prefix-len"}, kHonoured},
         {{"--random-ids"}, kAccepted},
         {{"--tokenize-on-client"}, kHonoured},
         {{"--random-image-width", "512"}, kAccepted},
         {{"--random-image-height", "512"}, kAccepted},
         {{"--random-image-size", "512"}, kAccepted},
         {{"--random-num-images", "1"}, kAccepted},
         {{"--hf-subset", "x"}, kAccepted},
         {{"--hf-split", "x"}, kAccepted},
         {{"--hf-output-len", "8"}, kAccepted},
         {{"--top-p"}, kHonoured},
         {{"--top-k"}, kHonoured},
         {{"--min-p"}, kHonoured},
         {{"--temperature"}, kHonoured},
         {{"--served-model-name"}, kHonoured},
         {{"--lora-modules", "a", "b"}, kRefused},
         {{"--no-test-input"}, kAccepted}},
        {"bench", "serving"});
  const auto refused = [&](const Arguments& more, const Arguments& parts) {
    Arguments all = {"serving", "--model", "m"};
    all.insert(all.end(), more.begin(), more.end());
    expect_refused(bench(all), parts);
  };
  for (const char* name : {"burstgpt", "sonnet", "random_image", "hf"}) {
    refused({"--dataset-name", name}, {"--dataset-name", name});
  }
  refused({"--dataset-name", "sharegpt"}, {"--dataset-path", "nothing is downloaded"});
  refused({"--dataset-path", conversations}, {"--dataset-path", "--dataset-name"});
  refused({"--dataset-name", "sharegpt", "--dataset-path", conversations}, {"--tokenizer"});
  refused(
      {"--dataset-name", "sharegpt", "--dataset-path", conversations, "--tokenizer", small_model()},
      {conversations, "has no request"});
  refused({"--host", "a", "--base-url", "http://b"}, {"--base-url", "--host"});
  refused({"--ignore-eos", "--stop-at-eos"}, {"--ignore-eos", "--stop-at-eos"});
  refused({"--percentile-metrics", "ttft,x"}, {"--percentile-metrics", "found x"});
  refused({"--metric-percentiles", "101"}, {"--metric-percentiles", "found 101"});
  refused({"--goodput", "itl:5"}, {"--goodput", "found itl:5"});
  refused({"--goodput", "ttft:5", "--non-streaming"}, {"--goodput", "--non-streaming"});
  refused({"--metadata", "x"}, {"--metadata", "found x"});
  refused({"--backend", "openai-chat"}, {"--tokenizer", "sends texts"});
  refused({"--save-result", "--result-dir", "/nowhere"}, {"--save-result", "/nowhere"});
}

// As in the guides of TensorRT-LLM, with options of the group before the sub-command, in any order.
TEST_F(CommandBenchOptions, GroupOptionsStandBeforeTheSubCommand) {
  for (const Arguments& group : {Arguments{"--model", "org/name", "--model_path", small_model()},
                                 Arguments{"--log_level=info", "-w", "/tmp",
                                           "--model_path=" + small_model(), "-m", "org/name"}}) {
    Arguments all = group;
    all.insert(all.end(), {"throughput", "--dataset", dataset_, "--warmup", "0", "--json"});
    const CommandEnd end = bench(all);
    ASSERT_EQ(end.exit_code, 0) << end.err;
    const json engine = json::parse(end.out)["engine"];
    EXPECT_EQ(engine["model"], "org/name");
    EXPECT_EQ(engine["model_path"], small_model());
  }
  EXPECT_EQ(bench({"--model", small_model(), "latency", "--dataset", dataset_}).exit_code, 0);
  // The model's tokenizer makes the data set.
  const std::string made = directory_.file("made.jsonl");
  const CommandEnd prepared = bench({"--model", small_model(), "prepare-dataset", "--output", made,
                                     "token-unif-dist", "--num-requests", "3", "--input-min", "2",
                                     "--input-max", "4", "--output-min", "1", "--output-max", "2"});
  EXPECT_EQ(prepared.exit_code, 0) << prepared.err;
  EXPECT_THAT(prepared.out, HasSubstr("made.jsonl: 3 requests"));
  expect_refused(bench({"throughput", "--dataset", dataset_}), {"--model", "found none"});
  expect_refused(bench({"prepare-dataset", "token-unif-dist", "--num-requests", "3", "--input-min",
                        "2", "--input-max", "4", "--output-min", "1", "--output-max", "2"}),
                 {"--tokenizer", "--model"});
  expect_refused(bench({"--workspace", "/tmp", "rows", "--model", small_model()}), {"--workspace"});
}

TEST_F(CommandBenchOptions, OlderNamesOfPrepareDataset) {
  const Arguments lengths = {"--num-requests", "3", "--input-mean",   "5", "--input-stdev", "1",
                             "--output-mean",  "4", "--output-stdev", "0"};
  std::string printed;
  for (const std::string name : {"prepare_dataset", "dataset", "prepare-dataset"}) {
    Arguments all = {name, "--stdout", "--tokenizer", small_model(), "token-norm-dist"};
    all.insert(all.end(), lengths.begin(), lengths.end());
    const CommandEnd end = bench(all);
    ASSERT_EQ(end.exit_code, 0) << end.err;
    EXPECT_EQ(std::count(end.out.begin(), end.out.end(), '\n'), 3);
    if (printed.empty()) printed = end.out;
    EXPECT_EQ(end.out, printed);
  }
  const std::string texts = write("texts.csv", "q,a\nabc,defgh\n");
  const CommandEnd real =
      bench({"prepare_dataset", "--stdout", "--tokenizer", small_model(), "dataset",
             "--dataset-name", texts, "--dataset-split", "train", "--dataset-input-key", "q",
             "--dataset-prompt", "Say", "--dataset-output-key", "a"});
  ASSERT_EQ(real.exit_code, 0) << real.err;
  EXPECT_EQ(json::parse(real.out)["output_tokens"], 5);  // a token for each byte
  EXPECT_EQ(json::parse(real.out)["input_ids"].size(), 7u);
  EXPECT_THAT(real.err, HasSubstr("--dataset-split: accepted, no effect"));
  expect_refused(bench({"prepare-dataset", "--stdout", "--output", "x", "--tokenizer",
                        small_model(), "dataset", "--dataset-name", texts}),
                 {"--stdout", "--output"});
  expect_refused(bench({"prepare-dataset", "--stdout", "--tokenizer", small_model(), "dataset",
                        "--dataset-name", write("x.parquet", "PAR1")}),
                 {"x.parquet", "cannot be read"});
}

// Attention DP and the balancer are in the file, and the sizes on the command line.
TEST_F(CommandBenchOptions, SizesAreAddedToTheConfiguration) {
  const auto run = [&](const std::string& yaml, const Arguments& more) {
    Arguments all = {"--model",
                     small_model(),
                     "throughput",
                     "--dataset",
                     dataset_,
                     "--warmup",
                     "0",
                     "--json",
                     "--extra_llm_api_options",
                     write("extra.yaml", yaml)};
    all.insert(all.end(), more.begin(), more.end());
    return bench(all);
  };
  for (const std::string yaml :
       {"enable_attention_dp: true\nmoe_config:\n  load_balancer:\n    num_slots: 20\n",
        "# one line\n{enable_attention_dp: true, moe_config: {load_balancer: {num_slots: 20}}}\n",
        "---\n  enable_attention_dp: true\n  tensor_parallel_size: 4"}) {
    const CommandEnd end = run(yaml, {"--tp", "4", "--ep", "4"});
    ASSERT_EQ(end.exit_code, 0) << yaml << end.err;
    const json world = json::parse(end.out)["world_info"];
    EXPECT_EQ(world["tp_size"], 4);
    EXPECT_EQ(world["ep_size"], 4);
    EXPECT_EQ(world["world_size"], 4);
  }
  EXPECT_EQ(json::parse(run("", {"--tp", "2"}).out)["world_info"]["ep_size"], 2);
  expect_refused(run("a: 1\ntensor_parallel_size: 8\n", {"--tp", "4"}),
                 {"--tp 4 contradicts tensor_parallel_size: 8", "extra.yaml"});
  expect_refused(run("moe_expert_parallel_size: 2\n", {"--tp", "4", "--ep", "4"}),
                 {"--ep 4 contradicts moe_expert_parallel_size: 2"});
  expect_refused(run("pipeline_parallel_size: 2\n", {"--pp", "1"}),
                 {"--pp 1 contradicts pipeline_parallel_size: 2"});
  expect_refused(run("enable_attention_dp: true\ntypo: 1\n", {"--tp", "2"}),
                 {"extra.yaml:2: typo"});
  const std::string part = write("several.yaml", "gen: {enable_attention_dp: true}\n") + ":gen";
  expect_refused(bench({"throughput", "--model", small_model(), "--dataset", dataset_, "--config",
                        part, "--tp", "2"}),
                 {"several.yaml:gen", "cannot be added to a part of a file"});
}

// A script that gives both must see which of the two holds.
TEST_F(CommandBenchOptions, OptionsAndFileThatSaySomethingElse) {
  const std::string config = write("both.yaml",
                                   "max_batch_size: 8\nmax_num_tokens: 64\nmax_seq_len: 128\n"
                                   "kv_cache_config: {dtype: bf16, enable_block_reuse: true}\n"
                                   "scheduler_config: {capacity_scheduler_policy: "
                                   "GUARANTEED_NO_EVICT}\n");
  Arguments all = {"throughput", "--model", small_model(), "--dataset", dataset_,
                   "--warmup",   "0",       "--json",      "--config",  config};
  const CommandEnd plain = bench(all);
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.err, Not(HasSubstr(" holds, not ")));
  EXPECT_THAT(plain.err, HasSubstr("requests with the same prefix share pages"));
  all.insert(all.end(), {"--max-batch-size", "4", "--max-num-tokens", "32", "--max-seq-len", "64",
                         "--kv-cache-dtype", "fp8", "--scheduler-policy", "max_utilization"});
  const CommandEnd both = bench(all);
  EXPECT_EQ(both.exit_code, 0) << both.err;
  for (const char* line : {"--max-batch-size 4 holds, not max_batch_size 8 of ",
                           "--max-num-tokens 32 holds, not max_num_tokens 64 of ",
                           "--max-seq-len 64 holds, not max_seq_len 128 of ",
                           "--kv-cache-dtype FP8 holds, not kv_cache_config.dtype BF16 of ",
                           "--scheduler-policy MAX_UTILIZATION holds, not "
                           "scheduler_config.capacity_scheduler_policy GUARANTEED_NO_EVICT of "}) {
    EXPECT_THAT(both.err, HasSubstr(line));
  }
  const std::string off = write("off.yaml", "kv_cache_config: {enable_block_reuse: false}\n");
  expect_refused(bench({"throughput", "--model", small_model(), "--dataset", dataset_, "--config",
                        off, "--enable-block-reuse"}),
                 {"--enable-block-reuse contradicts kv_cache_config.enable_block_reuse: false"});
}

// A share of the memory says nothing where the size of the cache is given.
TEST_F(CommandBenchOptions, OneSizeOfTheCache) {
  std::vector<std::string> all = {"throughput", "--model", small_model(),
                                  "--dataset",  dataset_,  "--kv-cache-free-gpu-mem-fraction",
                                  "0.01"};
  std::vector<std::string> with_bytes = all;
  with_bytes.insert(with_bytes.end(), {"--kv-cache-memory", "64M"});
  expect_refused(
      bench(with_bytes),
      {"--kv-cache-free-gpu-mem-fraction 0.01 contradicts --kv-cache-memory 64M: give one of"});
  all.insert(all.end(),
             {"--config", write("tokens.yaml", "kv_cache_config: {max_tokens: 4096}\n")});
  const CommandEnd tokens = bench(all);
  EXPECT_EQ(tokens.exit_code, 0) << tokens.err;
  EXPECT_THAT(tokens.err, HasSubstr("kv_cache_config.max_tokens 4096 of "));
  EXPECT_THAT(tokens.err, HasSubstr(" holds, not --kv-cache-free-gpu-mem-fraction 0.01"));
}

TEST_F(CommandBenchOptions, OptionsOfAnotherDataSetAreNamed) {
  const CommandEnd end =
      bench({"serving", "--model", "m", "--dataset-name", "trtllm_custom", "--dataset-path",
             "/nowhere", "--random-input-len", "9", "--sharegpt-output-len", "3"});
  EXPECT_THAT(end.err, HasSubstr("--random-input-len: accepted, no effect: the data set is not "
                                 "random"));
  EXPECT_THAT(end.err, HasSubstr("--sharegpt-output-len: accepted, no effect: the data set is not "
                                 "sharegpt"));
  EXPECT_THAT(end.err, Not(HasSubstr("--random-output-len")));
}

TEST_F(CommandBenchOptions, SamplerOptions) {
  const auto outputs = [&](const std::string& yaml) {
    const std::string file = directory_.file("outputs.json");
    const CommandEnd end =
        bench({"throughput", "--model", small_model(), "--dataset", dataset_, "--warmup", "0",
               "--sampler_options", write("sampler.yaml", yaml), "--output-json", file,
               "--no_skip_tokenizer_init", "--ignore_eos=True"});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return json::parse(formats::read_file(file).value());
  };
  const json greedy = outputs("temperature: 0\n");
  EXPECT_TRUE(greedy[0].contains("text"));
  EXPECT_EQ(greedy[0]["output_ids"], greedy[3]["output_ids"]);  // the same prompt
  EXPECT_EQ(outputs("top_k: 1\nseed: 5\n"), greedy);
  const json drawn = outputs("temperature: 5.0\nseed: 7\n");
  EXPECT_EQ(outputs("temperature: 5.0\nseed: 7\n"), drawn);
  EXPECT_NE(drawn, greedy);
  EXPECT_NE(drawn[0]["output_ids"], drawn[1]["output_ids"]);
  const auto refused = [&](const std::string& yaml, const Arguments& parts) {
    expect_refused(bench({"throughput", "--model", small_model(), "--dataset", dataset_,
                          "--sampler_options", write("sampler.yaml", yaml)}),
                   parts);
  };
  refused("length_penalty: 2\n", {"sampler.yaml:1: length_penalty"});
  refused("top_p: 2\n", {"sampler.yaml:1: top_p", "found '2'"});
  refused("n: 4\n", {"sampler.yaml:1: n"});
  refused("use_beam_search: true\n", {"use_beam_search", "no beam search"});
  expect_refused(bench({"throughput", "--model", small_model(), "--dataset", dataset_,
                        "--ignore-eos", "--eos-id", "3"}),
                 {"--ignore-eos contradicts --eos-id 3"});
}

// The first iteration of the measured requests has all of them, as many as are waited for.
TEST_F(CommandBenchOptions, TheFirstIterationWaitsForRequests) {
  const auto first_batch = [&](const std::string& wanted, const Arguments& more,
                               const std::string& line) {
    const std::string log = directory_.file("log.jsonl");
    const std::string report = directory_.file("report.json");
    Arguments all = {"throughput", "--model",       small_model(), "--dataset",
                     dataset_,     "--ranks",       "2",           "--request-rate",
                     "20",         "--warmup",      "1",           "--iteration-log",
                     log,          "--report-json", report};
    all.insert(all.end(), more.begin(), more.end());
    const CommandEnd end = bench(all, {"TLLM_BENCHMARK_REQ_QUEUES_SIZE", wanted});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_THAT(end.err, HasSubstr(line));
    const auto first =
        json::parse(formats::read_file(report).value())["iterations"]["first"].get<int>();
    std::istringstream lines(formats::read_file(log).value());
    for (std::string text; std::getline(lines, text);) {
      const json iteration = json::parse(text);
      if (iteration["iter"] == first) {
        return iteration["inflightBatchingStats"]["numScheduledRequests"].get<int>();
      }
    }
    return -1;
  };
  EXPECT_EQ(first_batch("4", {}, "waits for 4 requests"), 4);
  EXPECT_EQ(first_batch("100", {}, "waits for 4 requests"), 4);  // there are no more
  EXPECT_EQ(first_batch("100", {"--concurrency", "3"}, "waits for 3 requests"), 3);
  EXPECT_EQ(first_batch("100", {"--max-batch-size", "1"}, "waits for 2 requests"), 2);
  EXPECT_EQ(first_batch("", {}, ""), 1);  // 50 ms lie between two arrivals
  expect_refused(bench({"throughput", "--model", small_model(), "--dataset", dataset_},
                       {"TLLM_BENCHMARK_REQ_QUEUES_SIZE", "many"}),
                 {"TLLM_BENCHMARK_REQ_QUEUES_SIZE", "found many"});
}

// A server holds the first requests until so many have come, and lets them go when it stops.
TEST_F(CommandBenchOptions, AServersFirstIterationWaitsForRequests) {
  const auto arguments = [&](int port, const std::string& prompts) {
    return Arguments{"bench",
                     "serving",
                     "--model",
                     "m",
                     "--port",
                     std::to_string(port),
                     "--num-prompts",
                     prompts,
                     "--max-concurrency",
                     "3",
                     "--random-input-len",
                     "5",
                     "--random-output-len",
                     "4",
                     "--random-least-id",
                     "1",
                     "--random-num-ids",
                     "9",
                     "--request-rate",
                     "20"};
  };
  const auto serve = [&](const Arguments& more) {
    CommandOptions options{.arguments = {"serve", "--model", small_model(), "--port", "0",
                                         "--served-model-name", "m", "--ranks", "2"},
                           .environment = {{"TLLM_BENCHMARK_REQ_QUEUES_SIZE", "3"}}};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    return options;
  };
  const std::string log = directory_.file("served.jsonl");
  {
    Server server(serve({"--iteration-log", log}));
    const CommandEnd end = run_command({.arguments = arguments(server.port(), "6")});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_THAT(server.command().err(), HasSubstr("the first iteration waits for 3 requests"));
    server.command().send(SIGTERM);
    EXPECT_EQ(server.command().wait().exit_code, 0);
  }
  const std::string lines = formats::read_file(log).value();
  const json first = json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first["inflightBatchingStats"]["numScheduledRequests"], 3) << first;

  Server server(serve({}));
  Command client({.arguments = arguments(server.port(), "2")});
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_EQ(client.out(), "");  // both are held
  server.command().send(SIGTERM);
  const CommandEnd end = client.wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(server.command().wait().exit_code, 0);
}

TEST_F(CommandBenchOptions, DependentLaunchesAreNamedWhereThereAreNone) {
  const Arguments command = {"throughput", "--model", small_model(), "--dataset", dataset_};
  const CommandEnd end = bench(command, {"TRTLLM_ENABLE_PDL", "1"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err,
              HasSubstr("TRTLLM_ENABLE_PDL is set, but wideep bench throughput does not use it"));
}

}  // namespace
}  // namespace wideep::tests
