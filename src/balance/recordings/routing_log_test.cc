// SPDX-License-Identifier: Apache-2.0
//
// The example of docs/routing_log.md is also text here, so that page, writer and reader cannot
// drift apart. Each check is broken once, in the text or in the log, and must name the key, what it
// expected and what it found. Sums are bounded like single numbers, because pictures add them up. A
// failure is a file that other programs cannot read, or a picture of a log that contradicts itself.
#include "recordings/routing_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::recordings {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Two ranks, three experts in four slots, top-2, one MoE layer; the example of docs/routing_log.md.
RoutingLog small_log() {
  RoutingLog log;
  log.model = "tiny";
  log.ep_size = 2;
  log.num_experts = 3;
  log.num_slots = 4;
  log.top_k = 2;
  log.layers = {1};
  log.requests = {"Hello", "A \"quoted\" prompt"};
  log.tokens_per_second = 12.5;
  log.critical_path_ms = 0.75;
  log.wall_ms = 160;
  log.iterations = {{.iteration = 0,
                     .prompt_tokens = 5,
                     .generated_tokens = 0,
                     .sent = {{{4, 2}, {3, 1}}},
                     .counts = {{{3, 2, 1}, {2, 1, 1}}},
                     .critical_path_us = {500.5}},
                    {.iteration = 1,
                     .prompt_tokens = 0,
                     .generated_tokens = 2,
                     .sent = {{{1, 1}, {2, 0}}},
                     .counts = {{{1, 0, 1}, {1, 1, 0}}},
                     .critical_path_us = {249.5}}};
  log.request_counts = {{{4, 2, 2}}, {{3, 2, 1}}};
  return log;
}

std::string read_error(const std::string& text) {
  const Result<RoutingLog> log = parse_routing_log(text, "log.json");
  return log.ok() ? "accepted" : log.status().message();
}

// The small log's text with one place of it changed.
std::string with(const std::string& from, const std::string& to) {
  std::string text = format_routing_log(small_log());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string check_error(const std::function<void(RoutingLog*)>& change) {
  RoutingLog log = small_log();
  change(&log);
  return check_routing_log(log).message();
}

TEST(RoutingLog, ReadsWhatItWrote) {
  const base::ScratchDirectory scratch;
  const RoutingLog log = small_log();
  ASSERT_TRUE(write_routing_log(scratch.file("log.json"), log).ok());
  const Result<RoutingLog> again = read_routing_log(scratch.file("log.json"));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, log);
}

TEST(RoutingLog, KeepsTheUpdatesOfLayers) {
  RoutingLog log = small_log();
  log.layer_updates = {{1, 0, 1, 3}, {1, 4, 9, 0}};
  const std::string text = format_routing_log(log);
  EXPECT_THAT(text, HasSubstr("\"layer_updates\":[\n"
                              "{\"layer\":1,\"decided\":0,\"switched\":1,\"moves\":3},\n"));
  const Result<RoutingLog> again = parse_routing_log(text, "log.json");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, log);
}

TEST(RoutingLog, ChecksTheUpdatesOfLayers) {
  const auto error = [](RoutingLog::LayerUpdate update) {
    return check_error([&](RoutingLog* log) { log->layer_updates = {{1, 3, 5, 1}, update}; });
  };
  EXPECT_EQ(error({1, 5, 6, 0}), "");
  EXPECT_EQ(error({2, 5, 6, 0}), "layer_updates[1].layer: expected one of `layers`, found 2");
  EXPECT_THAT(error({1, 6, 6, 0}), StartsWith("layer_updates[1].switched: expected an integer"));
  EXPECT_THAT(error({1, 2, 4, 0}), HasSubstr("from 5 to"));  // ascending
  EXPECT_THAT(error({1, -1, 6, 0}), StartsWith("layer_updates[1].decided: "));
  EXPECT_THAT(error({1, 5, 6, -2}), StartsWith("layer_updates[1].moves: "));
}

TEST(RoutingLog, WritesTheFileOfTheDocumentation) {
  EXPECT_EQ(format_routing_log(small_log()), R"({"version":1,
"model":"tiny",
"ep_size":2,
"num_experts":3,
"num_slots":4,
"top_k":2,
"layers":[1],
"requests":["Hello","A \"quoted\" prompt"],
"tokens_per_second":12.5,
"critical_path_ms":0.75,
"wall_ms":160.0,
"iterations":[
{"iteration":0,"prompt_tokens":5,"generated_tokens":0,"sent":[[[4,2],[3,1]]],"counts":[[[3,2,1],[2,1,1]]],"critical_path_us":[500.5]},
{"iteration":1,"prompt_tokens":0,"generated_tokens":2,"sent":[[[1,1],[2,0]]],"counts":[[[1,0,1],[1,1,0]]],"critical_path_us":[249.5]}],
"request_counts":[
[[4,2,2]],
[[3,2,1]]]}
)");
}

TEST(RoutingLog, ReadsTheExampleOfTheDocumentation) {
  const Result<std::string> page =
      formats::read_file(std::string(WIDEEP_SOURCE_DIR) + "/docs/routing_log.md");
  ASSERT_TRUE(page.ok()) << page.status().message();
  const std::string fence = "```json\n";
  const size_t begin = page->find(fence) + fence.size();
  const std::string example = page->substr(begin, page->find("```", begin) - begin);
  const Result<RoutingLog> log = parse_routing_log(example, "routing_log.md");
  ASSERT_TRUE(log.ok()) << log.status().message();
  EXPECT_EQ(*log, small_log());
}

TEST(RoutingLog, WritesLabelsThatAreNotUtf8WithReplacementCharacters) {
  RoutingLog log = small_log();
  log.requests[0] = "caf\xE9";
  const Result<RoutingLog> again = parse_routing_log(format_routing_log(log), "log.json");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->requests[0], "caf\xEF\xBF\xBD");
}

TEST(RoutingLog, WriterRefusesAWrongLogAndWritesNothing) {
  const base::ScratchDirectory scratch;
  RoutingLog log = small_log();
  log.iterations[1].sent[0][1] = {2, 1};
  const Status status = write_routing_log(scratch.file("log.json"), log);
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_THAT(status.message(),
              HasSubstr("log.json: iterations[1].sent[0][1]: expected the sum 2"));
  EXPECT_EQ(scratch.num_files(), 0);
}

TEST(RoutingLog, ReaderErrorsNameKeyAndValue) {
  EXPECT_EQ(read_error(with("\"top_k\":2", "\"top_k\":2.5")),
            "log.json: top_k: expected an integer from 0 to 2147483647, found 2.5");
  EXPECT_EQ(read_error(with("\"version\":1", "\"version\":7")),
            "log.json: version: expected 1, found 7");
  EXPECT_EQ(read_error(with("\"version\":1,", "")),
            "log.json: version: this key is missing; not a routing log");
  EXPECT_EQ(read_error(with("\"wall_ms\":160.0,", "")), "log.json: wall_ms: this key is missing");
  EXPECT_EQ(read_error(with("\"wall_ms\"", "\"wall_m\"")),
            "log.json: wall_ms: this key is missing");
  EXPECT_EQ(read_error(with("\"top_k\":2,", "\"top_k\":2,\"topk\":2,")),
            "log.json: topk: unknown key; did you mean 'top_k'?");
  EXPECT_EQ(read_error(with("[[[4,2],[3,1]]]", "[[[4,2],[3,-1]]]")),
            "log.json: iterations[0].sent[0][1][1]: expected an integer from 0 to 2147483647, "
            "found -1");
  EXPECT_EQ(read_error(with("[[[4,2],[3,1]]]", "[[[4,2],3]]")),
            "log.json: iterations[0].sent[0][1]: expected a list, found 3");
  EXPECT_EQ(read_error(with("\"iteration\":1,", "\"iteration\":1,\"x\":0,")),
            "log.json: iterations[1].x: unknown key");
  EXPECT_EQ(read_error(with("\"Hello\"", "1")), "log.json: requests[0]: expected a text, found 1");
  EXPECT_EQ(read_error(with("12.5", "null")),
            "log.json: tokens_per_second: expected a number, found null");
  EXPECT_THAT(read_error("[]"), StartsWith("log.json: "));
  EXPECT_THAT(read_error("{"), StartsWith("log.json:1:"));
}

TEST(RoutingLog, MissingFileIsInvalidInput) {
  const Result<RoutingLog> log = read_routing_log("/nonexistent/log.json");
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(log.status().message(), HasSubstr("/nonexistent/log.json"));
}

TEST(RoutingLog, ChecksShape) {
  EXPECT_EQ(check_error([](RoutingLog*) {}), "");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->ep_size = 0; }),
            "ep_size: expected an integer from 1 to 4096, found 0");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->num_slots = 2; }),
            "num_slots: expected an integer from 3 to 1048576, found 2");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->num_slots = 5; }),
            "num_slots: expected a multiple of ep_size 2, found 5");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->top_k = 4; }),
            "top_k: expected an integer from 1 to 3, found 4");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->layers = {}; }),
            "layers: expected at least one MoE layer, found none");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->layers = {1, 1}; }),
            "layers[1]: expected an index from 2 to 65536, ascending, found 1");
}

TEST(RoutingLog, ChecksIterations) {
  EXPECT_EQ(check_error([](RoutingLog* log) { log->iterations.clear(); }),
            "iterations: expected at least one iteration, found none");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->iterations[1].iteration = 0; }),
            "iterations[1].iteration: expected at least 1, ascending, found 0");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->iterations[0].sent.clear(); }),
            "iterations[0].sent: expected a list of 1 (layers), found 0");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->iterations[0].counts[0][1].pop_back(); }),
            "iterations[0].counts[0][1]: expected a list of 3 (num_experts), found 2");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->iterations[0].counts[0].pop_back(); }),
            "iterations[0].counts[0]: expected a list of 2 (ep_size), found 1");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->iterations[0].sent[0][0] = {7, -1}; }),
            "iterations[0].sent[0][0][1]: expected a count from 0 to 2^53, found -1");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->iterations[0].sent[0][0] = {4, 3}; }),
            "iterations[0].sent[0][0]: expected the sum 6 of iterations[0].counts[0][0] (both "
            "count the pairs that this rank sent), found 7");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->iterations[0].prompt_tokens = -5; }),
            "iterations[0].prompt_tokens: expected an integer from 0 to 9007199254740992, "
            "found -5");
}

TEST(RoutingLog, ChecksTimesAndRequests) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(check_error([&](RoutingLog* log) { log->wall_ms = infinity; }),
            "wall_ms: expected a finite number of at least 0, found inf");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->iterations[1].critical_path_us[0] = -1; }),
            "iterations[1].critical_path_us[0]: expected a finite number of at least 0, found -1");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->request_counts.pop_back(); }),
            "request_counts: expected a list of 2 (requests), found 1");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->request_counts[1].clear(); }),
            "request_counts[1]: expected a list of 1 (layers), found 0");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->request_counts[1][0][2] = -1; }),
            "request_counts[1][0][2]: expected a count from 0 to 2^53, found -1");
}

// What a picture adds up over the log is bounded like each number of it.
TEST(RoutingLog, ChecksSums) {
  constexpr int64_t kMax = int64_t{1} << 53;
  const auto set_tokens = [&](int64_t first, int64_t second) {
    return check_error([=](RoutingLog* log) {
      log->iterations[0].prompt_tokens = log->iterations[0].generated_tokens = first;
      log->iterations[1].prompt_tokens = 0;
      log->iterations[1].generated_tokens = second;
    });
  };
  EXPECT_EQ(set_tokens(kMax, 0), "");
  EXPECT_EQ(set_tokens(kMax, 1),
            "iterations[1].generated_tokens: expected a sum up to here of at most 2^53, found "
            "9007199254740993");
  EXPECT_EQ(check_error([](RoutingLog* log) {
              const int layer = log->layers[0];
              log->layer_updates = {{layer, 0, 1, kMax}, {layer, 1, 2, 1}};
            }),
            "layer_updates[1].moves: expected a sum up to here of at most 2^53, found "
            "9007199254740993");
  EXPECT_EQ(check_error([](RoutingLog* log) { log->iterations[0].critical_path_us[0] = 1e300; }),
            "iterations[0].critical_path_us[0]: expected a number of at most 2^53, found 1e+300");
}

}  // namespace
}  // namespace wideep::recordings
