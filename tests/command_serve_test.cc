// SPDX-License-Identifier: Apache-2.0
// wideep serve as a user runs it: the same answers as wideep generate, whatever other clients do,
// and clean ends with a message.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <optional>
#include <thread>

#include "base/sanitized.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "http/http_client_testing.h"
#include "recordings/statistics_reader.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using server::ask;
using server::Reply;
using server::Socket;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<std::string> kPrompts = {"The cat", "A second prompt, somewhat longer",
                                           "x",       "Once upon a time",
                                           "12345",   "The quick brown fox jumps over"};
constexpr int kMaxTokens = Server::kMaxTokens;

class CommandServe : public ::testing::Test {
 protected:
  // The texts that `wideep generate` produces on one rank, by prompt.
  static const std::map<std::string, std::string>& expected() {
    static const std::map<std::string, std::string> texts = [] {
      std::vector<std::string> arguments = {"generate", "--model",      small_model(),
                                            "--json",   "--max-tokens", std::to_string(kMaxTokens)};
      for (const std::string& prompt : kPrompts) {
        arguments.insert(arguments.end(), {"--prompt", prompt});
      }
      const CommandEnd end = run_command({.arguments = arguments});
      std::map<std::string, std::string> all;
      const json report = json::parse(end.out);
      for (size_t i = 0; i < kPrompts.size(); ++i) all[kPrompts[i]] = report["results"][i]["text"];
      return all;
    }();
    return texts;
  }

  // Many requests at the same time, some streamed, some not.
  static void expect_equal_answers(const Server& server, int clients) {
    std::vector<std::thread> threads;
    std::atomic<int> equal{0};
    for (int client = 0; client < clients; ++client) {
      threads.emplace_back([&, client] {
        const std::string& prompt = kPrompts[static_cast<size_t>(client) % kPrompts.size()];
        const bool stream = client % 2 == 0;
        const Reply reply = server.complete({{"prompt", prompt}, {"stream", stream}});
        std::string text;
        if (stream && reply.status == 200) {
          for (const json& event : reply.events()) text += event["choices"][0]["text"];
        } else if (reply.status == 200) {
          text = reply.body_json()["choices"][0]["text"];
        }
        EXPECT_EQ(text, expected().at(prompt)) << reply.status << reply.body;
        if (text == expected().at(prompt)) ++equal;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(equal, clients);
  }

  static void expect_served(const Server& server, int clients) {
    expect_equal_answers(server, clients);
    EXPECT_EQ(server.metric("wideep_answers_running"), 0);
  }

  // Starts a long streamed request and waits for its first bytes. The model's context must be long
  // enough.
  static void start_long_answer(Socket& socket) {
    const std::string body =
        json({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 1'000'000}, {"stream", true}}).dump();
    socket.send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{}",
                    body.size(), body));
    EXPECT_THAT(socket.receive(), StartsWith("HTTP/1.1 200"));
  }

  std::string config(const std::string& text) {
    const std::string path = directory_.file("parallel.yaml");
    FILE* file = std::fopen(path.c_str(), "w");
    std::fputs(text.c_str(), file);
    std::fclose(file);
    return path;
  }

  base::ScratchDirectory directory_;
};

TEST_F(CommandServe, AnswersAreThoseOfGenerateUnderLoad) {
  Server server(small_model(), {"--ranks", "4"});
  ASSERT_GT(server.port(), 0);
  expect_served(server, base::is_command_sanitized() ? 48 : 256);
  EXPECT_EQ(ask(server.port(), "GET", "/v1/models").body_json()["data"][0]["id"], "m");
  server.command().send(SIGTERM);
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("stopping"));
}

TEST_F(CommandServe, SharedPrefixesAreComputedOnce) {
  Server server(small_model(), {"--scheduler-policy", "max_utilization"});
  ASSERT_GT(server.port(), 0);
  const std::string alike(150, 'a');
  const json first = server.complete({{"prompt", alike + "b"}}).body_json();
  EXPECT_EQ(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  const json again = server.complete({{"prompt", alike + "b"}, {"n", 2}}).body_json();
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], 128);
  EXPECT_EQ(again["choices"][0]["text"], first["choices"][0]["text"]);
  EXPECT_EQ(again["choices"][1]["text"], first["choices"][0]["text"]);
  EXPECT_EQ(server.metric("wideep_cached_prompt_tokens_total"), 256);
  EXPECT_EQ(server.metric("wideep_prompt_tokens_total"),  // for three answers
            3 * first["usage"]["prompt_tokens"].get<int>());
  EXPECT_EQ(server.metric("wideep_cached_prompts_total"), 2);
  EXPECT_EQ(server.metric("wideep_kv_pages_used"), 0);
  EXPECT_GE(server.metric("wideep_kv_pages_kept"), 2);
  EXPECT_EQ(server.metric("wideep_pauses_total"), 0);
}

TEST_F(CommandServe, RanksThatShareBatchesSequencesAndLayers) {
  const std::string sizes[] = {
      "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n",
      "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\nenable_attention_dp: true\n"
      "pipeline_parallel_size: 2\n"};
  for (const std::string& each : sizes) {
    SCOPED_TRACE(each);
    Server server(small_model(), {"--config", config(each)});
    ASSERT_GT(server.port(), 0);
    expect_served(server, 24);
    server.command().send(SIGTERM);
    EXPECT_EQ(server.command().wait().exit_code, 0);
  }
}

TEST_F(CommandServe, SeedsAreReproducibleAndDifferPerAnswer) {
  Server server(small_model(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  const json request = {{"prompt", "x"}, {"temperature", 1.0}, {"seed", 7}, {"n", 2}};
  const json first = server.complete(request).body_json()["choices"];
  const json again = server.complete(request).body_json()["choices"];
  EXPECT_EQ(first, again);
  EXPECT_NE(first[0]["text"], first[1]["text"]);
  const json free = {{"prompt", "x"}, {"temperature", 1.0}};
  EXPECT_NE(server.complete(free).body_json()["choices"],
            server.complete(free).body_json()["choices"]);
}

TEST_F(CommandServe, DisconnectCancelsTheRequest) {
  ModelCopy model;
  model.edit_config([](json& config) { config["max_position_embeddings"] = 1 << 20; });
  Server server(model.path(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  {
    Socket socket(server.port());
    start_long_answer(socket);
  }
  EXPECT_TRUE(wait_until([&] { return server.metric("wideep_answers_cancelled_total") == 1; },
                         10s * kSlowdown));
  // The engine has stopped working on that request.
  const auto iterations = [&] { return server.metric("wideep_iterations_total"); };
  EXPECT_TRUE(wait_until(
      [&] {
        const double before = iterations();
        std::this_thread::sleep_for(100ms);
        return iterations() == before;
      },
      10s * kSlowdown));
}

TEST_F(CommandServe, RunningRequestsFinishAfterSigterm) {
  Server server(small_model(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  const std::string body = json({{"model", "m"},
                                 {"prompt", "x"},
                                 {"max_tokens", 100},
                                 {"temperature", 0},
                                 {"stream", true}})
                               .dump();
  Socket socket(server.port());
  socket.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                  "Content-Length: {}\r\n\r\n{}",
                  body.size(), body));
  std::string all = socket.receive();
  server.command().send(SIGTERM);
  all += socket.receive_all();
  EXPECT_THAT(all, HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_THAT(all, HasSubstr("[DONE]"));
  EXPECT_EQ(server.command().wait().exit_code, 0);
}

// A request during the shutdown, for example of a load balancer, gets an error at once.
TEST_F(CommandServe, RefusesRequestsWhileItStops) {
  ModelCopy model;
  model.edit_config([](json& config) { config["max_position_embeddings"] = 1 << 20; });
  Server server(model.path(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  Socket socket(server.port());
  start_long_answer(socket);
  server.command().send(SIGTERM);
  ASSERT_TRUE(
      wait_until([&] { return server.command().err().find("stopping") != std::string::npos; },
                 10s * kSlowdown));
  EXPECT_TRUE(wait_until([&] { return ask(server.port(), "GET", "/health").status == 503; },
                         10s * kSlowdown));
  EXPECT_EQ(server.complete({{"prompt", "x"}}).status, 503);
  server.command().send(SIGTERM);
  EXPECT_EQ(server.command().wait().exit_code, 130);
}

// With --on-rank-loss fail a stream gets an error event and [DONE], a whole request a 503 object,
// before their connections close.
TEST_F(CommandServe, ADeadRankEndsTheServerWithItsName) {
  ModelCopy model;
  model.edit_config([](json& config) { config["max_position_embeddings"] = 1 << 20; });
  Server server(model.path(), {"--ranks", "4", "--on-rank-loss", "fail", "--access-log"});
  ASSERT_GT(server.port(), 0);
  ASSERT_EQ(server.complete({{"prompt", "x"}}).status, 200);
  Socket socket(server.port());
  start_long_answer(socket);
  auto whole = std::async(std::launch::async, [&] {
    return server.complete({{"prompt", "x"}, {"max_tokens", 1'000'000}});
  });
  ASSERT_TRUE(
      wait_until([&] { return server.metric("wideep_answers_running") == 2; }, 10s * kSlowdown));
  ::kill(server.command().ranks()[1], SIGKILL);
  const std::string stream = socket.receive_all();
  EXPECT_THAT(stream,
              HasSubstr("data: {\"error\":{\"message\":\"the server has failed: rank 1 (process"));
  EXPECT_THAT(stream, HasSubstr("\"code\":\"ranks_ended\"}}\n\ndata: [DONE]\n\n"));
  const Reply refused = whole.get();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body_json()["error"]["code"], "ranks_ended");
  EXPECT_EQ(refused.body_json()["error"]["type"], "server_error");
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 1) << end.err;
  EXPECT_THAT(end.err, HasSubstr("rank 1 (process"));
  for (const char* status : {"200", "503"}) {
    EXPECT_THAT(end.err, HasSubstr(fmt::format("status={} error=ranks_ended ", status)));
  }
}

// A rank hangs: /health says so long before the run fails, and clients get the reason when it does.
TEST_F(CommandServe, AHungRankIsSeenInHealthAndEndsAnswersWithAnError) {
  ModelCopy model;
  model.edit_config([](json& config) { config["max_position_embeddings"] = 1 << 20; });
  const double timeout = kSlowdown > 1 ? 12.0 : 6.0;  // less than the socket waits
  Server server(model.path(), {"--ranks", "4", "--timeout", fmt::format("{}", timeout),
                               "--on-rank-loss", "fail"});
  ASSERT_GT(server.port(), 0);
  ASSERT_EQ(server.complete({{"prompt", "x"}}).status, 200);
  EXPECT_EQ(ask(server.port(), "GET", "/health").status, 200);
  Socket socket(server.port());
  start_long_answer(socket);
  const auto start = std::chrono::steady_clock::now();
  ::kill(server.command().ranks()[2], SIGSTOP);
  Reply health;
  EXPECT_TRUE(wait_until(
      [&] {
        health = ask(server.port(), "GET", "/health");
        return health.status == 503;
      },
      10s * kSlowdown));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::duration<double>(0.8 * timeout));
  EXPECT_EQ(health.body_json()["error"]["code"], "iteration_overdue");
  EXPECT_THAT(socket.receive_all(), HasSubstr("\"code\":\"ranks_ended\"}}\n\ndata: [DONE]\n\n"));
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 1) << end.err;
  EXPECT_THAT(end.err, HasSubstr("rank 2"));
}

// Two whole servers behind one `wideep route`; one of them dies.
TEST_F(CommandServe, ReplicasAnswerBehindOneEndpoint) {
  std::optional<Server> first(std::in_place, small_model(), std::vector<std::string>{});
  Server second(small_model(), {"--ranks", "2"});
  const auto url = [](const Server& each) {
    return "http://127.0.0.1:" + std::to_string(each.port());
  };
  Server router({"route", "--port", "0", "--replica", url(*first), "--replica", url(second)});
  ASSERT_GT(router.port(), 0);
  expect_equal_answers(router, 32);
  EXPECT_GT(first->metric("wideep_generated_tokens_total"), 0);
  EXPECT_GT(second.metric("wideep_generated_tokens_total"), 0);
  first->command().send(SIGKILL);
  first.reset();
  expect_equal_answers(router, 16);
  router.command().send(SIGTERM);
  EXPECT_EQ(router.command().wait().exit_code, 0);
}

// The ranks and the connections may end in any order.
TEST_F(CommandServe, EveryEndIsClean) {
  for (int i = 0; i < (base::is_command_sanitized() ? 4 : 12); ++i) {
    Server server(small_model(), {"--ranks", "2"});
    ASSERT_GT(server.port(), 0);
    ASSERT_EQ(server.complete({{"prompt", "x"}}).status, 200);
    server.command().send(i % 2 == 0 ? SIGTERM : SIGINT);
    const CommandEnd end = server.command().wait();
    EXPECT_EQ(end.exit_code, 0) << end.err;
  }
}

// Sums over all iterations, by layer.
std::map<int, std::vector<int64_t>> expert_tokens(const std::string& directory) {
  const auto read = recordings::read_statistics(directory);
  EXPECT_TRUE(read.ok()) << read.status().message();
  std::map<int, std::vector<int64_t>> all;
  for (int i = 0; read.ok() && i < read->num_layers(); ++i) {
    all[read->layers[static_cast<size_t>(i)]] = read->layer_load(i);
  }
  return all;
}

// Statistics of a recording are those of `wideep generate` with the same prompts; requests before
// and after the recording do not count.
TEST_F(CommandServe, ExpertRecordsAreThoseOfGenerate) {
  const std::string recorded = directory_.file("served"), generated = directory_.file("generated");
  for (const std::string& sizes : std::vector<std::string>{
           "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\nenable_attention_dp: true\n",
           "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\nenable_attention_dp: true\n"
           "pipeline_parallel_size: 2\n"}) {
    SCOPED_TRACE(sizes);
    const std::string file = config(sizes);
    Server server(small_model(), {"--config", file, "--expert-statistic-path", recorded});
    ASSERT_GT(server.port(), 0);
    const auto post = [&](const std::string& what) {
      const Reply reply = ask(server.port(), "POST", "/" + what + "_expert_distribution_record");
      EXPECT_EQ(reply.status, 200) << reply.body;
      return reply.body_json();
    };
    server.complete({{"prompt", "before"}});
    post("start");
    for (const std::string& prompt : kPrompts) server.complete({{"prompt", prompt}});
    EXPECT_GT(post("stop")["iterations"], 0);
    server.complete({{"prompt", "after"}});
    const std::string dumped = post("dump")["directory"];

    std::filesystem::remove_all(generated);
    std::vector<std::string> arguments = {"generate",
                                          "--model",
                                          small_model(),
                                          "--config",
                                          file,
                                          "--expert-statistic-path",
                                          generated,
                                          "--expert-statistic-iter-range",
                                          "0-100000",
                                          "--max-tokens",
                                          std::to_string(kMaxTokens)};
    for (const std::string& prompt : kPrompts) {
      arguments.insert(arguments.end(), {"--prompt", prompt});
    }
    ASSERT_EQ(run_command({.arguments = arguments}).exit_code, 0);
    const auto expected = expert_tokens(generated);
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(expert_tokens(dumped), expected);
  }
}

TEST_F(CommandServe, ALogThatCannotBeWrittenIsSaidAtOnce) {
  Server server(small_model(), {"--iteration-log", "/dev/full"});
  ASSERT_GT(server.port(), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(server.complete({{"prompt", "x"}}).status, 200);
  const std::string line =
      "--iteration-log /dev/full: cannot be written: No space left on device; "
      "no more lines are written, serving goes on";
  EXPECT_TRUE(wait_until([&] { return server.command().err().find(line) != std::string::npos; },
                         10s * kSlowdown))
      << server.command().err();
  server.command().send(SIGTERM);
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_EQ(end.err.find(line), end.err.rfind(line)) << end.err;  // once
}

TEST_F(CommandServe, ARecordingThatIsLostIsSaid) {
  Server server(small_model(), {"--expert-statistic-path", directory_.file("records")});
  ASSERT_GT(server.port(), 0);
  ASSERT_EQ(ask(server.port(), "POST", "/start_expert_distribution_record").status, 200);
  EXPECT_EQ(server.complete({{"prompt", "x"}}).status, 200);
  server.command().send(SIGTERM);
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("were recorded but not dumped: they are lost"));
  EXPECT_FALSE(std::filesystem::exists(directory_.file("records")));
}

// wideep bench serving counts the server's tokens, and reports the first failure.
TEST_F(CommandServe, BenchServingSeesEveryToken) {
  Server server(small_model(), {"--ranks", "2", "--api-key", "k"});
  ASSERT_GT(server.port(), 0);
  const std::string url = fmt::format("http://127.0.0.1:{}/v1", server.port());
  const auto bench = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"bench",      "serving",
                                          "--base-url", url,
                                          "--model",    "m",
                                          "--json",     "--random-least-id",
                                          "1",          "--random-num-ids",
                                          "50",         "--num-prompts",
                                          "20",         "--random-input-len",
                                          "30",         "--random-output-len",
                                          "12",         "--max-concurrency",
                                          "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command({.arguments = arguments, .environment = {}});
  };
  const CommandEnd end = bench({"--api-key", "k", "--request-rate", "400"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out);
  EXPECT_EQ(report["completed"], 20);
  EXPECT_EQ(report["input_tokens"], 20 * 30);
  EXPECT_EQ(report["output_tokens"], 20 * 12);
  EXPECT_GT(report["ttft_seconds"]["median"], 0);
  EXPECT_GE(report["e2el_seconds"]["median"], report["ttft_seconds"]["median"]);
  const CommandEnd refused = bench({});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("no request succeeded; the first failed with: status 401"));
  // As `wideep advise --disaggregated --json` prints it.
  const std::string file = directory_.file("advice.json");
  std::ofstream(file) << R"({"disaggregated": {"recommended": {"name": "CTX=1xTP-1|GEN=1xTP-1",
      "ranks": 2, "tokens_per_second_per_rank": 50, "ttft_ms": 20, "tpot_ms": 4}}})";
  const CommandEnd predicted = bench({"--api-key", "k", "--prediction", file});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  const json measured = json::parse(predicted.out);
  const json& beside = measured["prediction"];
  EXPECT_EQ(beside["of"], "CTX=1xTP-1|GEN=1xTP-1");
  EXPECT_EQ(beside["output_tokens_per_second"]["predicted"], 100);
  EXPECT_NEAR(beside["output_tokens_per_second"]["ratio"],
              measured["output_tokens_per_second"].get<double>() / 100, 1e-9);
  std::ofstream(file) << R"({"recommended": null})";
  EXPECT_THAT(bench({"--prediction", file}).err, HasSubstr("recommended: expected what"));
}

// A script's own variable is empty: it would start a server that everybody may use.
TEST_F(CommandServe, RefusesAnEmptyKey) {
  for (const char* variable : {"WIDEEP_API_KEY", "WIDEEP_ADMIN_KEY"}) {
    const CommandEnd end = run_command(
        {.arguments = {"serve", "--model", small_model()}, .environment = {{variable, ""}}});
    expect_error(end, 2, {variable, "expected a key, found an empty one"});
  }
  for (const char* option : {"--api-key", "--admin-key"}) {
    const CommandEnd end =
        run_command({.arguments = {"serve", "--model", small_model(), option, ""}});
    expect_error(end, 2, {option, "expected a key, found an empty one"});
  }
}

TEST_F(CommandServe, RefusesAnAddressInUseBeforeLoading) {
  Server server(small_model(), {});
  const CommandEnd end = run_command(
      {.arguments = {"serve", "--model", small_model(), "--port", std::to_string(server.port())}});
  expect_error(end, 1, {"cannot listen on 127.0.0.1 port", "choose another --port"});
}

}  // namespace
}  // namespace wideep::tests
