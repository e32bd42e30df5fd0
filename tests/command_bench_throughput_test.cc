// SPDX-License-Identifier: Apache-2.0
// wideep bench throughput, latency and compare-routing as a user runs them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kRequests = 6;

std::set<std::string> keys_of(const json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

class CommandBenchThroughput : public ::testing::Test {
 protected:
  // Request i has 10 + i token ids, or the same as text, and asks for 4 + i tokens.
  CommandBenchThroughput() {
    std::string lines;
    for (int i = 0; i < kRequests; ++i) {
      json line = {{"task_id", i}, {"output_tokens", 4 + i}};
      if (i % 2 == 0) line["input_ids"] = std::vector<int>(static_cast<size_t>(10 + i), 40 + i);
      if (i % 2 == 1) line["prompt"] = std::string(static_cast<size_t>(10 + i), 'a');
      lines += line.dump() + "\n";
    }
    EXPECT_TRUE(formats::write_file(dataset_, lines).ok());
  }

  CommandOptions bench(const std::string& kind, const std::vector<std::string>& more) const {
    CommandOptions options;
    options.arguments = {"bench", kind, "--model", small_model(), "--dataset", dataset_};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    return options;
  }
  json read(const std::string& name) const {
    return json::parse(formats::read_file(directory_.file(name)).value());
  }

  const base::ScratchDirectory directory_;
  const std::string dataset_ = directory_.file("data.jsonl");
};

TEST_F(CommandBenchThroughput, CountsEveryTokenAndUsesTensorRtLlmsNames) {
  const CommandEnd end =
      run_command(bench("throughput", {"--ranks", "4", "--streaming", "--concurrency", "3",
                                       "--json", "--report_json", directory_.file("report.json"),
                                       "--request-json", directory_.file("requests.json"),
                                       "--output-json", directory_.file("outputs.json")}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out);
  EXPECT_EQ(report, read("report.json"));
  EXPECT_EQ(keys_of(report), (std::set<std::string>{
                                 "engine", "machine", "world_info", "request_info", "performance",
                                 "streaming_metrics", "decoding_stats", "dataset", "iterations"}));
  EXPECT_EQ(keys_of(report["world_info"]),
            (std::set<std::string>{"tp_size", "pp_size", "ep_size", "world_size", "max_batch_size",
                                   "max_num_tokens", "scheduling_policy", "kv_cache_percentage",
                                   "issue_rate"}));
  EXPECT_EQ(report["world_info"]["world_size"], 4);
  EXPECT_EQ(report["request_info"]["num_requests"], kRequests);
  EXPECT_DOUBLE_EQ(report["request_info"]["avg_input_length"], 12.5);
  EXPECT_DOUBLE_EQ(report["request_info"]["avg_output_length"], 6.5);
  EXPECT_LE(report["request_info"]["avg_num_concurrent_requests"], 3.0);
  const json& performance = report["performance"];
  const double seconds = performance["total_latency_ms"].get<double>() / 1e3;
  EXPECT_GT(seconds, 0.0);
  EXPECT_LT(seconds, 5.0 * kSlowdown);  // no rank sleeps while others have a request
  EXPECT_NEAR(performance["system_output_throughput_tok_s"].get<double>() * seconds, 39.0, 1e-6);
  EXPECT_NEAR(performance["system_total_throughput_tok_s"].get<double>() * seconds, 114.0, 1e-6);
  EXPECT_NEAR(performance["output_throughput_per_gpu_tok_s"].get<double>() * 4,
              performance["system_output_throughput_tok_s"].get<double>(), 1e-6);
  EXPECT_EQ(keys_of(performance["request_latency_percentiles_ms"]),
            (std::set<std::string>{"minimum", "maximum", "average", "p50", "p90", "p95", "p99"}));
  EXPECT_GT(report["streaming_metrics"]["avg_ttft_ms"], 0.0);
  EXPECT_LT(report["streaming_metrics"]["avg_ttft_ms"], performance["avg_request_latency_ms"]);
  EXPECT_GE(report["iterations"]["count"], 4 + kRequests - 1);

  const json requests = read("requests.json"), outputs = read("outputs.json");
  ASSERT_EQ(requests.size(), kRequests);
  for (int i = 0; i < kRequests; ++i) {
    EXPECT_EQ(requests[i]["num_input_tokens"], 10 + i);
    EXPECT_EQ(requests[i]["num_generated_tokens"], 4 + i);
    EXPECT_EQ(outputs[i]["output_ids"].size(), 4u + i);
  }
}

// The same requests, one at a time and together in a batch.
TEST_F(CommandBenchThroughput, OutputsDoNotDependOnTheLoad) {
  const auto outputs = [&](const std::string& kind, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--output-json", directory_.file("outputs.json")};
    all.insert(all.end(), more.begin(), more.end());
    const CommandEnd end = run_command(bench(kind, all));
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return read("outputs.json");
  };
  const json alone = outputs("latency", {"--warmup", "0"});
  EXPECT_EQ(alone, outputs("throughput", {"--ranks", "2", "--warmup", "9"}));
  EXPECT_EQ(alone, outputs("throughput", {"--tp", "2", "--ep", "2", "--request-rate", "500"}));
}

TEST_F(CommandBenchThroughput, PrintsTensorRtLlmsBlocks) {
  const CommandEnd end =
      run_command(bench("latency", {"--num-requests", "2", "--request-rate", "inf"}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  for (const char* part :
       {"= WIDEEP BACKEND", "= MACHINE DETAILS", "= REQUEST DETAILS",
        "= WORLD + RUNTIME INFORMATION", "= PERFORMANCE OVERVIEW", "Request Throughput (req/sec):",
        "Total Output Throughput (tokens/sec):", "Per User Output Throughput [w/ ctx] (tps/user):",
        "Average time-to-first-token [TTFT] (ms):", "[Latency] P99    :", "[TTFT] P50    :",
        "[TPOT] P90    :", "[GTPS] AVERAGE:", "= DATASET DETAILS",
        "Number of requests:             2\n", "Number of concurrent requests:  "}) {
    EXPECT_THAT(end.out, HasSubstr(part));
  }
}

// File names are bytes, and JSON is UTF-8.
TEST_F(CommandBenchThroughput, FileNamesThatAreNotUtf8) {
  const std::string path = directory_.file("\xff.jsonl");
  ASSERT_TRUE(formats::write_file(path, "{\"input_ids\": [1, 2], \"output_tokens\": 3}\n").ok());
  const std::string log = directory_.file("\xfe.jsonl");
  CommandOptions options = bench("throughput", {"--json", "--iteration-log", log});
  options.arguments[5] = path;
  const CommandEnd end = run_command(options);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(json::accept(end.out));
  const CommandEnd table = run_command({.arguments = {"bench", "iterations", log, "--json"}});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_TRUE(json::accept(table.out));
}

TEST_F(CommandBenchThroughput, LengthDistributionIsTwoNumbers) {
  for (const std::string lengths : {"128,0junk", "128", "128;0", "128,-1"}) {
    expect_refused(
        run_command(
            {.arguments = {"bench", "prepare-dataset", "--output", directory_.file("made.jsonl"),
                           "--tokenizer", small_model(), "real-dataset", "--num-requests", "1",
                           "--dataset", dataset_, "--output-len-dist", lengths}}),
        {"--output-len-dist", lengths});
  }
}

TEST_F(CommandBenchThroughput, RandomWeightsNeedNoCheckpoint) {
  ModelCopy model;
  model.remove("model.safetensors");
  CommandOptions options = bench("throughput", {"--random-weights", "--ranks", "2", "--json"});
  options.arguments[3] = model.path();
  const CommandEnd end = run_command(options);
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(json::parse(end.out)["request_info"]["avg_output_length"], 6.5);
  EXPECT_THAT(end.err, HasSubstr("made-up bf16 weights"));
  // A shape alone, and requests that need no tokenizer.
  const std::string ids = directory_.file("ids.jsonl");
  ASSERT_TRUE(formats::write_file(ids, "{\"input_ids\": [1, 2], \"output_tokens\": 3}\n").ok());
  options.arguments[3] = model.file("config.json");
  options.arguments[5] = ids;
  EXPECT_EQ(run_command(options).exit_code, 0);
}

TEST_F(CommandBenchThroughput, RefusesWrongOptionsBeforeTheRun) {
  const auto refused = [&](const std::vector<std::string>& more,
                           const std::vector<std::string>& parts) {
    expect_refused(run_command(bench("throughput", more)), parts);
  };
  refused({"--engine-dir", "x"}, {"--engine-dir", "builds no engines"});
  refused({"--beam-width", "4"}, {"--beam-width", "expected 1", "found 4"});
  refused({"--modality", "image"}, {"--modality image", "only text"});
  refused({"--cluster_size", "2"}, {"--cluster-size", "found 2"});
  refused({"--tp", "2", "--ranks", "2"}, {"--tp", "give one of them"});
  refused({"--num-requests", "7"}, {"--num-requests", "has 6 requests, found 7"});
  refused({"--eos-id", "5"}, {"--eos-id", "end token of the model, found 5"});
  refused({"--max-seq-len", "14"}, {"request 1", "11 prompt tokens and 5 to generate"});
  for (const std::string rate : {"0", "-1", "nan", "fast"}) {
    refused({"--request-rate", rate}, {"--request-rate", rate});
  }
  const std::string same = directory_.file("same.json");
  refused({"--report-json", same, "--request-json", same}, {"--request-json", "--report-json"});
  refused({"--report-json", same, "--output-json", same}, {"--output-json", "--report-json"});
  refused({"--request-json", same, "--output-json", same}, {"--output-json", "--request-json"});
  const std::string wrong = directory_.file("wrong.jsonl");
  ASSERT_TRUE(formats::write_file(wrong, "{\"input_ids\": [999], \"output_tokens\": 3}\n").ok());
  refused({"--dataset", wrong}, {"--dataset"});  // given twice
  CommandOptions options = bench("throughput", {});
  options.arguments[5] = wrong;
  expect_refused(run_command(options), {"request 0", "token ids from 0 to", "found 999"});
  expect_error(run_command(bench("throughput", {"--report-json", "/nowhere/report.json"})), 2,
               {"/nowhere/report.json"});
}

TEST_F(CommandBenchThroughput, OutputsOfAPerfectRouterAreMarked) {
  const CommandEnd end =
      run_command(bench("throughput", {"--ranks", "4", "--perfect-router", "--output-json",
                                       directory_.file("outputs.json"), "--report-json",
                                       directory_.file("report.json")}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("outputs mean nothing"));
  EXPECT_TRUE(read("report.json")["perfect_router"].get<bool>());
  for (const json& output : read("outputs.json")) EXPECT_TRUE(output["meaningless"].get<bool>());
}

TEST_F(CommandBenchThroughput, RoutersAreComparedInTurn) {
  const CommandEnd end =
      run_command(bench("compare-routing", {"--ranks", "4", "--repeat", "2", "--json"}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out);
  EXPECT_GT(report["learned"]["critical_path_ms"], 0.0);
  EXPECT_GT(report["learned"]["imbalance_ratio"], report["perfect"]["imbalance_ratio"]);
  EXPECT_EQ(report["imbalance_matters"].get<bool>(), report["critical_path_gain"] > 0.10);
  EXPECT_THAT(report["verdict"], HasSubstr("perfect routing is"));
  const size_t learned = end.err.find("run 2 of 2: the model's router");
  EXPECT_LT(learned, end.err.find("run 2 of 2: perfect router"));
  expect_refused(run_command(bench("compare-routing", {})), {"experts are on one rank"});
  expect_refused(run_command(bench("compare-routing", {"--ranks", "2", "--perfect-router"})),
                 {"compare-routing runs both"});
}

}  // namespace
}  // namespace wideep::tests
