// SPDX-License-Identifier: Apache-2.0
// wideep serve while its processes die: what clients see, and what they do not.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "command_model.h"
#include "command_server.h"
#include "fault_load.h"
#include "group/fault_drill.h"
#include "http/http_client_testing.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using server::ask;
using server::Reply;
using server::Socket;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::vector<std::string> kFourRanks = {"--ranks", "4"};

json long_request(int max_tokens) {
  return {{"model", "m"},  {"prompt", "The cat"}, {"max_tokens", max_tokens},
          {"seed", 5},     {"temperature", 0.8},  {"stream", true},
          {"logprobs", 2}, {"ignore_eos", true}};
}

void expect_all_active(Server& server, int ranks) {
  EXPECT_TRUE(
      wait_until([&] { return server.metric("wideep_ep_active_ranks") == ranks; }, 20s * kSlowdown))
      << server.command().err();
}

void expect_clean_end(Server& server) {
  server.command().send(SIGTERM);
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(server.command().ranks(), IsEmpty()) << "processes that outlived wideep";
}

// ---- every step ----

struct Drill {
  const char* steps;
  const char* name;
};
void PrintTo(const Drill& drill, std::ostream* out) { *out << drill.steps; }

// While ranks die at these steps, a server with these arguments gives the same replies as one with
// `alone` that nothing happens to.
struct Drilled {
  std::string model;
  std::vector<std::string> alone, arguments;
  std::string steps;
  int ranks = 4;
};

void expect_nobody_notices(const Drilled& drilled) {
  FaultLoad load({.num_requests = 10, .num_clients = 6, .max_tokens = 40});
  {
    const Server undisturbed(drilled.model, drilled.alone);
    ASSERT_GT(undisturbed.port(), 0);
    load.learn(undisturbed.port());
    ASSERT_THAT(load.problems(), IsEmpty());
  }
  std::vector<std::string> arguments = {
      "serve", "--model", drilled.model, "--port", "0", "--served-model-name", "m"};
  arguments.insert(arguments.end(), drilled.arguments.begin(), drilled.arguments.end());
  Server server(CommandOptions{.arguments = arguments,
                               .environment = {{"WIDEEP_FAULT_DRILL", drilled.steps}}});
  ASSERT_GT(server.port(), 0) << server.command().err();
  load.start(server.port());
  const auto deaths = [&] {
    const std::string err = server.command().err();
    size_t count = 0;
    for (size_t at = err.find("signal 9"); at != err.npos; at = err.find("signal 9", at + 1)) {
      ++count;
    }
    return count;
  };
  const auto wanted = 1 + static_cast<size_t>(std::ranges::count(drilled.steps, ','));
  EXPECT_TRUE(wait_until([&] { return deaths() >= wanted; }, 30s * kSlowdown))
      << server.command().err();
  std::this_thread::sleep_for(300ms);
  expect_all_active(server, drilled.ranks);
  load.stop();
  EXPECT_THAT(load.problems(), IsEmpty()) << server.command().err();
  EXPECT_GT(load.num_replies(), 0);
  expect_clean_end(server);
}

class FaultDrills : public ::testing::TestWithParam<Drill> {};

// The first kill, of a rank that computes, leads to the steps at which the next ones come.
TEST_P(FaultDrills, NobodyNotices) {
  expect_nobody_notices({.model = small_model(),
                         .alone = kFourRanks,
                         .arguments = kFourRanks,
                         .steps = GetParam().steps});
}

// Each rank has a part of every state; the replies are those of one rank.
TEST(CommandFaults, RanksThatDivideStatesLoseNone) {
  const base::ScratchDirectory model, files;
  write_random_model_like(model.path(), "qwen3_next_plain");
  for (const char* parallel :
       {"tensor_parallel_size: 2\nenable_attention_dp: false\n", "context_parallel_size: 2\n"}) {
    std::ofstream(files.file("config.yaml")) << parallel;
    expect_nobody_notices({.model = model.path(),
                           .alone = {},
                           .arguments = {"--config", files.file("config.yaml")},
                           .steps = "agreed:60,agreed:90",
                           .ranks = 2});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Steps, FaultDrills,
    ::testing::Values(
        Drill{"agreed:60,loaded:5", "Loaded"}, Drill{"agreed:60,joined:6", "Joined"},
        Drill{"agreed:60,holding:2", "Holding"}, Drill{"agreed:60,regrouped:3", "Regrouped"},
        Drill{"agreed:60,filled:6,filled:9", "Filled"},
        Drill{"agreed:61,agreed:90,agreed:91", "Agreed"}, Drill{"agreed:60,leaving:2", "Leaving"},
        // The first steps of a server are passed by all four ranks.
        Drill{"read:9,read:14", "Read"}, Drill{"recording:77", "Recording"},
        Drill{"recorded:120,recorded:121", "Recorded"}, Drill{"writing:33,writing:150", "Writing"},
        Drill{"replied:3,replied:11", "Replied"},
        Drill{"agreed:60,recording:100,joined:9,writing:90", "Mixed"}),
    [](const auto& test) { return test.param.name; });

// ---- single cases ----

// A long answer that is being computed.
std::future<PlainReply> begin_answer(Server& server, int max_tokens) {
  auto reply = std::async(std::launch::async, [&server, max_tokens] {
    return ask_plainly(server.port(), "/v1/completions", long_request(max_tokens));
  });
  EXPECT_TRUE(
      wait_until([&] { return server.metric("wideep_answers_running") == 1; }, 10s * kSlowdown));
  return reply;
}

TEST(CommandFaults, AStoppedRankIsReplacedWithinASecond) {
  Server server(small_model(), kFourRanks);
  ASSERT_GT(server.port(), 0);
  const PlainReply expected = ask_plainly(server.port(), "/v1/completions", long_request(1000));
  auto disturbed = begin_answer(server, 1000);
  ::kill(rank_processes(server.command())[2], SIGSTOP);
  const PlainReply reply = disturbed.get();
  EXPECT_EQ(reply.text, expected.text);
  double longest = 0.0;
  for (size_t i = 1; i < reply.arrivals.size(); ++i) {
    const std::chrono::duration<double> gap = reply.arrivals[i] - reply.arrivals[i - 1];
    longest = std::max(longest, gap.count());
  }
  EXPECT_LT(longest, 1.0 * kSlowdown);
  expect_all_active(server, 4);
  expect_clean_end(server);
}

// A rank hangs, and its keeper cannot know: a process that a debugger holds is not reported as
// stopped. The others wait for it up to --timeout.
TEST(CommandFaults, ARankThatHangsIsReplaced) {
  Server server(small_model(), {"--ranks", "4", "--timeout", std::to_string(1 * kSlowdown)});
  ASSERT_GT(server.port(), 0);
  const PlainReply expected = ask_plainly(server.port(), "/v1/completions", long_request(1000));
  auto disturbed = begin_answer(server, 1000);
  const pid_t rank = rank_processes(server.command())[2];
  if (::ptrace(PTRACE_SEIZE, rank, nullptr, nullptr) != 0) GTEST_SKIP() << "ptrace is not allowed";
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, rank, nullptr, nullptr), 0);
  // The keeper hears of the end when the tracer has seen it.
  int how = 0;
  do {
    ASSERT_EQ(::waitpid(rank, &how, __WALL), rank);
  } while (WIFSTOPPED(how));
  EXPECT_EQ(disturbed.get().text, expected.text);
  EXPECT_EQ(server.metric("wideep_ep_failed_ranks_total"), 1);  // only it
  expect_all_active(server, 4);
  expect_clean_end(server);
}

TEST(CommandFaults, AllRanksDieAtOnce) {
  Server server(small_model(), kFourRanks);
  ASSERT_GT(server.port(), 0);
  const PlainReply expected = ask_plainly(server.port(), "/v1/completions", long_request(500));
  auto disturbed = begin_answer(server, 500);
  for (const pid_t rank : rank_processes(server.command())) ::kill(rank, SIGKILL);
  EXPECT_EQ(disturbed.get().text, expected.text);
  expect_all_active(server, 4);
  EXPECT_EQ(server.metric("wideep_ep_failed_ranks_total"), 4);
  expect_clean_end(server);
}

TEST(CommandFaults, OneRankAloneIsStartedAgainToo) {
  Server server(small_model(), {});
  ASSERT_GT(server.port(), 0);
  const PlainReply expected = ask_plainly(server.port(), "/v1/completions", long_request(500));
  auto disturbed = begin_answer(server, 500);
  ::kill(rank_processes(server.command()).at(0), SIGKILL);
  EXPECT_EQ(disturbed.get().text, expected.text);
  expect_clean_end(server);
}

TEST(CommandFaults, HealthAndMetricsTellOfADeadRank) {
  // It dies again each time before it has joined, so that it stays away for a while.
  Server server(CommandOptions{
      .arguments = {"serve", "--model", small_model(), "--port", "0", "--served-model-name", "m",
                    "--ranks", "4"},
      .environment = {{"WIDEEP_FAULT_DRILL", "loaded:5,loaded:6,loaded:7,loaded:8,loaded:9"}}});
  ASSERT_GT(server.port(), 0);
  EXPECT_EQ(ask(server.port(), "GET", "/health").body_json()["status"], "ok");
  ::kill(rank_processes(server.command())[1], SIGKILL);
  Reply health;
  EXPECT_TRUE(wait_until(
      [&] {
        health = ask(server.port(), "GET", "/health");
        return health.body.find("degraded") != health.body.npos &&
               server.metric("wideep_ep_active_ranks") == 3;
      },
      5s * kSlowdown));
  EXPECT_EQ(health.status, 200);
  EXPECT_THAT(health.body, HasSubstr("rank 1"));
  EXPECT_EQ(server.complete({{"prompt", "x"}}).status, 200);
  EXPECT_THAT(ask(server.port(), "GET", "/metrics").body,
              HasSubstr("wideep_ep_rank_active{ep_rank=\"1\"} 0\n"));
  EXPECT_THAT(ask(server.port(), "GET", "/dashboard/data").body,
              HasSubstr("\"states\":[\"active\""));
  expect_all_active(server, 4);
  EXPECT_EQ(ask(server.port(), "GET", "/health").body_json()["status"], "ok");
  EXPECT_GE(server.metric("wideep_recoveries_total"), 1);
  EXPECT_GT(server.metric("wideep_experts_reloaded_total"), 0);
  EXPECT_THAT(server.command().err(), HasSubstr("3 of 4 ranks compute"));
  expect_clean_end(server);
}

// ---- the front ----

// A client that keeps its connection, one in the middle of its request, and one that comes while
// nobody serves.
TEST(CommandFaults, ConnectionsOutliveTheProcessThatServesThem) {
  Server server(small_model(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  const std::string get = "GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n";
  Socket kept(server.port()), halfway(server.port());
  kept.send(get);
  EXPECT_THAT(kept.receive(), HasSubstr("200 OK"));
  const std::string body = json({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 3}}).dump();
  const std::string request =
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body);
  halfway.send(request.substr(0, request.size() - 5));
  std::this_thread::sleep_for(100ms);
  ::kill(front_processes(server.command()).at(0), SIGKILL);
  Socket late(server.port());
  late.send(get);
  halfway.send(request.substr(request.size() - 5));
  EXPECT_THAT(late.receive(), HasSubstr("200 OK"));
  EXPECT_THAT(halfway.receive(), HasSubstr("200 OK"));
  kept.send(get);
  EXPECT_THAT(kept.receive(), HasSubstr("200 OK"));
  expect_clean_end(server);
}

TEST(CommandFaults, IdsOfRepliesStayUnique) {
  Server server(small_model(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  const std::string first = server.complete({{"prompt", "x"}}).body_json()["id"];
  ::kill(front_processes(server.command()).at(0), SIGKILL);
  EXPECT_NE(server.complete({{"prompt", "x"}}).body_json()["id"], first);
  expect_clean_end(server);
}

// The tokens that the client has follow from the prompt that the first process made: a later one,
// after midnight where the template has the date, must not make another.
TEST(CommandFaults, TheTimeInAPromptStaysThatOfTheRequest) {
  const ModelCopy model;
  model.write("chat_template.jinja", "{{ strftime_now('%H:%M:%S') }} {{ messages[0].content }}");
  Server server(model.path(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  // The request comes shortly before a second ends, and its process dies shortly after.
  const auto in_second = [] { return std::chrono::system_clock::now().time_since_epoch() % 1s; };
  EXPECT_TRUE(wait_until([&] { return in_second() > 800ms; }, 5s));
  auto reply = std::async(std::launch::async, [&] {
    return ask(server.port(), "POST", "/v1/chat/completions",
               json({{"model", "m"},
                     {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                     {"max_tokens", 3900},
                     {"n", 4},
                     {"ignore_eos", true},
                     {"return_token_ids", true}})
                   .dump());
  });
  EXPECT_TRUE(
      wait_until([&] { return server.metric("wideep_answers_running") == 4; }, 10s * kSlowdown));
  const std::time_t begun = std::time(nullptr);
  EXPECT_TRUE(wait_until([&] { return std::time(nullptr) > begun; }, 5s));
  EXPECT_TRUE(wait_until([&] { return server.metric("wideep_generated_tokens_total") > 0; }, 5s));
  EXPECT_NE(reply.wait_for(0s), std::future_status::ready);
  ::kill(front_processes(server.command()).at(0), SIGKILL);
  const json body = reply.get().body_json();
  // What the dead process had counted is not counted again.
  EXPECT_EQ(server.metric("wideep_prompt_tokens_total"), 0);
  EXPECT_GT(server.metric("wideep_generated_tokens_total"), 0);
  EXPECT_LT(server.metric("wideep_generated_tokens_total"), 4 * 3900);
  EXPECT_EQ(server.metric("wideep_end_to_end_seconds_count"), 4);
  EXPECT_EQ(server.metric("wideep_serving_processes_died_total"), 1);
  const json prompt =
      ask(server.port(), "POST", "/detokenize", json({{"tokens", body["prompt_token_ids"]}}).dump())
          .body_json()["prompt"];
  const std::time_t created = body["created"];
  EXPECT_EQ(prompt, fmt::format("{:%H:%M:%S} Hi", *std::localtime(&created)));
  EXPECT_EQ(body["choices"][0]["token_ids"].size(), 3900);
  expect_clean_end(server);
}

// ---- the command itself ----

// Whoever kills the command means the service: everything ends with it.
TEST(CommandFaults, NothingOutlivesTheCommand) {
  const std::vector<std::string> shared_memory = list_shared_memory();
  Server server(small_model(), kFourRanks);
  ASSERT_GT(server.port(), 0);
  EXPECT_THAT(server.command().ranks(), SizeIs(5));
  server.command().send(SIGKILL);
  server.command().wait();
  EXPECT_TRUE(wait_until([&] { return server.command().ranks().empty(); }, 2s * kSlowdown));
  EXPECT_THAT(abandoned_shared_memory(shared_memory), IsEmpty());
}

TEST(CommandFaults, ARankThatCannotStartIsAnError) {
  const CommandEnd end =
      run_command({.arguments = {"serve", "--model", small_model(), "--port", "0", "--ranks", "2"},
                   .environment = {{"WIDEEP_FAULT_DRILL", "loaded:2"}}});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("was ended by signal 9"));
}

TEST(CommandFaults, ADrillMustNameAStep) {
  const CommandEnd end =
      run_command({.arguments = {"serve", "--model", small_model(), "--port", "0", "--ranks", "2"},
                   .environment = {{"WIDEEP_FAULT_DRILL", "lunch:2"}}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err,
              HasSubstr("expected step:number or step:number+milliseconds, with a step of loaded, "
                        "joined"));
}

// ---- the number of ranks ----

Reply scale(const Server& server, const json& body) {
  return ask(server.port(), "POST", "/scale_elastic_ep", body.dump());
}

TEST(CommandFaults, TheNumberOfRanksChangesUnderLoad) {
  base::ScratchDirectory files;
  std::ofstream(files.file("balancer.yaml")) << "num_slots: 24\nlayer_updates_per_iter: 1\n";
  std::ofstream(files.file("config.yaml"))
      << "tensor_parallel_size: 8\nmoe_expert_parallel_size: 8\nenable_attention_dp: true\n"
      << "moe_config:\n  load_balancer: " << files.file("balancer.yaml") << "\n";
  FaultLoad load({.num_requests = 10, .num_clients = 6, .max_tokens = 40});
  Server server(small_model(), {"--config", files.file("config.yaml"), "--start-ranks", "4",
                                "--threads-per-rank", "1"});
  ASSERT_GT(server.port(), 0) << server.command().err();
  EXPECT_EQ(server.metric("wideep_ep_active_ranks"), 4);
  load.learn(server.port());
  load.start(server.port());
  for (const int ranks : {8, 4, 1, 3, 8}) {
    const Reply reply = scale(server, {{"new_data_parallel_size", ranks}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.body_json()["message"],
              fmt::format("Scaled to {} data parallel engines", ranks));
    EXPECT_EQ(server.metric("wideep_ep_active_ranks"), ranks);
    EXPECT_THAT(rank_processes(server.command()).size(), ::testing::Ge(size_t(ranks)));
    std::this_thread::sleep_for(200ms);
  }
  load.stop();
  EXPECT_THAT(load.problems(), IsEmpty());
  EXPECT_EQ(ask(server.port(), "POST", "/is_scaling_elastic_ep").body_json(),
            json({{"is_scaling_elastic_ep", false}}));
  expect_clean_end(server);
}

// The serving process that follows has started with other options than those that hold now.
TEST(CommandFaults, ANumberOfRanksOutlivesTheServingProcess) {
  Server server(small_model(), kFourRanks);
  ASSERT_GT(server.port(), 0);
  EXPECT_EQ(scale(server, {{"new_data_parallel_size", 2}}).status, 200);
  ::kill(front_processes(server.command()).at(0), SIGKILL);
  expect_all_active(server, 2);
  EXPECT_EQ(ask(server.port(), "GET", "/health").body_json()["status"], "ok");
  const json ranks = ask(server.port(), "GET", "/dashboard/data").body_json()["ranks"];
  EXPECT_EQ(ranks["states"], json({"active", "active", "retired", "retired"}));
  EXPECT_EQ(ranks["wanted"], 2);
  EXPECT_EQ(server.metric("wideep_serving_processes_died_total"), 1);
  EXPECT_EQ(scale(server, {{"new_data_parallel_size", 4}}).status, 200);
  EXPECT_EQ(server.metric("wideep_ep_active_ranks"), 4);  // not before they compute
  expect_clean_end(server);
}

// The ranks that are added die a few times, so that the reply takes a while.
TEST(CommandFaults, AScalingOutlivesTheServingProcess) {
  Server server(CommandOptions{
      .arguments = {"serve", "--model", small_model(), "--port", "0", "--served-model-name", "m",
                    "--ranks", "4", "--start-ranks", "2"},
      .environment = {{"WIDEEP_FAULT_DRILL", "loaded:3,loaded:4,loaded:5,loaded:6,loaded:7"}}});
  ASSERT_GT(server.port(), 0);
  auto scaled = std::async(std::launch::async,
                           [&] { return scale(server, {{"new_data_parallel_size", 4}}); });
  ASSERT_TRUE(wait_until([&] { return server.metric("wideep_ep_failed_ranks_total") > 0; },
                         5s * kSlowdown));
  ::kill(front_processes(server.command()).at(0), SIGKILL);
  EXPECT_EQ(scaled.get().status, 200);
  EXPECT_EQ(server.metric("wideep_serving_processes_died_total"), 1);
  EXPECT_EQ(server.metric("wideep_ep_active_ranks"), 4);
  expect_clean_end(server);
}

TEST(CommandFaults, ANumberOfRanksThatCannotBeHadIsRefused) {
  Server server(small_model(), kFourRanks);
  ASSERT_GT(server.port(), 0);
  for (const json& body :
       {json::object(), json({{"new_data_parallel_size", 0}}),
        json({{"new_data_parallel_size", 5}}), json({{"new_data_parallel_size", "2"}}),
        json({{"new_data_parallel_size", 2}, {"drain_timeout", 0}}),
        json({{"new_data_parallel_size", 2}, {"ranks", 1}})}) {
    const Reply reply = scale(server, body);
    EXPECT_EQ(reply.status, 400) << body << reply.body;
  }
  EXPECT_THAT(scale(server, {{"new_data_parallel_size", 5}}).body,
              HasSubstr("expected 1 to 4 ranks, found 5"));
  EXPECT_EQ(server.complete({{"prompt", "x"}}).status, 200);
  EXPECT_EQ(server.metric("wideep_ep_active_ranks"), 4);
  expect_clean_end(server);
}

TEST(CommandFaults, OnlyElasticLayoutsHaveAnotherNumberOfRanks) {
  base::ScratchDirectory files;
  std::ofstream(files.file("config.yaml")) << "tensor_parallel_size: 2\n";
  Server server(small_model(), {"--config", files.file("config.yaml")});
  ASSERT_GT(server.port(), 0) << server.command().err();
  EXPECT_THAT(scale(server, {{"new_data_parallel_size", 1}}).body,
              HasSubstr("the number of ranks is fixed"));
  expect_clean_end(server);
  expect_refused(
      run_command({.arguments = {"serve", "--model", small_model(), "--port", "0", "--config",
                                 files.file("config.yaml"), "--start-ranks", "1"}}),
      {"--start-ranks"});
  expect_refused(run_command({.arguments = {"serve", "--model", small_model(), "--port", "0",
                                            "--ranks", "2", "--start-ranks", "3"}}),
                 {"--start-ranks", "expected 1 to 2", "found 3"});
}

}  // namespace
}  // namespace wideep::tests
