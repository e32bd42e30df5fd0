// SPDX-License-Identifier: Apache-2.0
// wideep serve after SIGTERM: until the last answer has been read, it serves as at any other time,
// whatever dies, hangs or changes meanwhile.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitized.h"
#include "command_model.h"
#include "command_server.h"
#include "fault_load.h"
#include "http/http_client_testing.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json stream(int seed) {
  return {{"model", "m"},       {"prompt", "The cat"}, {"max_tokens", 500}, {"seed", seed},
          {"temperature", 0.8}, {"stream", true},      {"logprobs", 2},     {"ignore_eos", true}};
}

struct Case {
  const char* name;
  // What happens around the signal, which it sends itself.
  std::function<void(Server&)> strike;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

void kill_rank(Server& server, size_t rank, int signal = SIGKILL) {
  ::kill(rank_processes(server.command()).at(rank), signal);
}
void kill_front(Server& server, int signal = SIGKILL) {
  ::kill(front_processes(server.command()).at(0), signal);
}
void terminate(Server& server) { server.command().send(SIGTERM); }
void pause(std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }

class Drain : public ::testing::TestWithParam<Case> {};

TEST_P(Drain, EveryAnswerEndsAsIfNothingHadHappened) {
  constexpr int kStreams = 4;
  Server server(small_model(), {"--ranks", "4"});
  ASSERT_GT(server.port(), 0);
  std::vector<PlainReply> expected;
  for (int i = 0; i < kStreams; ++i) {
    expected.push_back(ask_plainly(server.port(), "/v1/completions", stream(i)));
  }
  std::vector<std::future<PlainReply>> disturbed;
  for (int i = 0; i < kStreams; ++i) {
    disturbed.push_back(std::async(std::launch::async, [&server, i] {
      return ask_plainly(server.port(), "/v1/completions", stream(i));
    }));
  }
  ASSERT_TRUE(wait_until([&] { return server.metric("wideep_answers_running") == kStreams; },
                         10s * kSlowdown));
  GetParam().strike(server);
  for (int i = 0; i < kStreams; ++i) {
    const PlainReply reply = disturbed[static_cast<size_t>(i)].get();
    EXPECT_EQ(reply.text, expected[static_cast<size_t>(i)].text) << i << ": " << reply.error;
  }
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(server.command().ranks(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    While, Drain,
    ::testing::Values(Case{"NothingElse", [](Server& server) { terminate(server); }},
                      Case{"ARankDies",
                           [](Server& server) {
                             terminate(server);
                             pause(50ms);
                             kill_rank(server, 1);
                           }},
                      Case{"ARankHasJustDied",
                           [](Server& server) {
                             kill_rank(server, 1);
                             pause(20ms);
                             terminate(server);
                           }},
                      Case{"ARankIsStopped",
                           [](Server& server) {
                             terminate(server);
                             kill_rank(server, 1, SIGSTOP);
                           }},
                      Case{"AllRanksDie",
                           [](Server& server) {
                             for (const pid_t each : rank_processes(server.command()))
                               ::kill(each, SIGKILL);
                             pause(20ms);
                             terminate(server);
                           }},
                      Case{"TheFrontDies",
                           [](Server& server) {
                             terminate(server);
                             pause(50ms);
                             kill_front(server);
                           }},
                      // The signal reaches a process that dies before it has read of it.
                      Case{"TheFrontIsStopped",
                           [](Server& server) {
                             kill_front(server, SIGSTOP);
                             pause(20ms);
                             terminate(server);
                           }},
                      Case{"ARankAndTheFrontDie",
                           [](Server& server) {
                             terminate(server);
                             kill_rank(server, 2);
                             pause(10ms);
                             kill_front(server);
                           }},
                      Case{"TheNumberOfRanksChanges",
                           [](Server& server) {
                             auto scaled = std::async(std::launch::async, [&server] {
                               return server::ask(server.port(), "POST", "/scale_elastic_ep",
                                                  R"({"new_data_parallel_size": 2})");
                             });
                             pause(5ms);
                             terminate(server);
                             EXPECT_EQ(scaled.get().status, 200);
                           }}),
    [](const auto& test) { return std::string(test.param.name); });

// More than the system takes from a server at once.
TEST(CommandDrain, ARepliesIsReadToItsEndHoweverSlowly) {
  Server server(small_model(), {});
  ASSERT_GT(server.port(), 0);
  // Each becomes six bytes of JSON.
  const json body = {{"tokens", std::vector<int>(1'500'000, 1)}};
  const std::string text = body.dump();
  server::Socket reader(server.port(), server::Socket::kUnconnected);
  const int little = 4096;
  ::setsockopt(reader.fd(), SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
  reader.connect();
  reader.send(
      fmt::format("POST /detokenize HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                  "Content-Length: {}\r\n\r\n{}",
                  text.size(), text));
  std::string all = reader.receive(12);  // the reply is complete
  terminate(server);
  pause(500ms);
  EXPECT_THAT(server.command().ranks(), Not(IsEmpty()));
  all += reader.receive_all();
  const size_t head = all.find("\r\n\r\n");
  const size_t length = all.find("Content-Length: ");
  ASSERT_NE(length, all.npos);
  EXPECT_EQ(all.size() - head - 4, std::stoul(all.substr(length + 16)));
  EXPECT_EQ(server.command().wait().exit_code, 0);
}

// ---- draining without an end ----

// An answer that runs when it begins is whole; afterwards nothing is answered, also by another
// serving process and by other ranks, until it is taken back.
TEST(CommandDrain, LastsUntilItIsTakenBackWhateverDies) {
  Server server(small_model(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  const PlainReply expected = ask_plainly(server.port(), "/v1/completions", stream(1));
  auto running = std::async(std::launch::async, [&server] {
    return ask_plainly(server.port(), "/v1/completions", stream(1));
  });
  ASSERT_TRUE(
      wait_until([&] { return server.metric("wideep_answers_running") == 1; }, 10s * kSlowdown));
  ASSERT_EQ(server::ask(server.port(), "POST", "/drain").status, 200);
  EXPECT_EQ(server.complete({}).status, 503);
  kill_front(server);
  EXPECT_EQ(running.get().text, expected.text);
  const auto drains = [&] {
    return server::ask(server.port(), "GET", "/health").body_json() ==
           json({{"status", "draining"}, {"running", 0}});
  };
  EXPECT_TRUE(drains());
  EXPECT_EQ(server.complete({}).body_json()["error"]["code"], "draining");
  kill_rank(server, 1);
  EXPECT_TRUE(wait_until([&] { return server.metric("wideep_ep_failed_ranks_total") == 1; },
                         10s * kSlowdown));
  EXPECT_TRUE(
      wait_until([&] { return server.metric("wideep_ep_active_ranks") == 2; }, 60s * kSlowdown));
  EXPECT_TRUE(drains());
  EXPECT_EQ(server::ask(server.port(), "DELETE", "/drain").status, 200);
  EXPECT_EQ(server.complete({}).status, 200);
  kill_front(server);  // nor does it come back
  EXPECT_EQ(server.complete({}).status, 200);
  terminate(server);
  EXPECT_EQ(server.command().wait().exit_code, 0);
}

TEST(CommandDrain, SighupDrainsAndSigtermEnds) {
  if (const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY); terminal >= 0) {
    ::close(terminal);
    GTEST_SKIP() << "with a terminal SIGHUP says that it has gone";
  }
  for (const char* on_loss : {"recover", "fail"}) {
    Server server(small_model(), {"--ranks", "2", "--on-rank-loss", on_loss});
    ASSERT_GT(server.port(), 0);
    server.command().send(SIGHUP);
    EXPECT_TRUE(
        wait_until([&] { return server::ask(server.port(), "GET", "/health").status == 503; },
                   10s * kSlowdown));
    EXPECT_EQ(server.complete({}).status, 503);
    EXPECT_EQ(server.command().ranks().empty(), false);
    terminate(server);
    const CommandEnd end = server.command().wait();
    EXPECT_EQ(end.exit_code, 0) << end.err;
  }
}

TEST(CommandDrain, TheGraceIsAsLongAsSaid) {
  Server server(small_model(), {"--ranks", "2", "--grace-seconds", "0"});
  ASSERT_GT(server.port(), 0);
  auto cut = std::async(std::launch::async, [&server] {
    json body = stream(1);
    body["n"] = 8;
    return ask_plainly(server.port(), "/v1/completions", body);
  });
  ASSERT_TRUE(
      wait_until([&] { return server.metric("wideep_answers_running") == 8; }, 10s * kSlowdown));
  terminate(server);
  EXPECT_THAT(cut.get().text, HasSubstr("the server has stopped before the answer was complete"));
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 130) << end.err;
  EXPECT_THAT(end.err, HasSubstr("running requests have 0 s to finish"));
}

// Nobody reads, though there is time: the grace has an end.
// Ranks that are to be added die first, so that it takes a while.
TEST(CommandDrain, WhoWaitsForRanksIsAnswered) {
  Server server(CommandOptions{
      .arguments = {"serve", "--model", small_model(), "--port", "0", "--served-model-name", "m",
                    "--ranks", "4", "--start-ranks", "2"},
      .environment = {{"WIDEEP_FAULT_DRILL", "loaded:3,loaded:4,loaded:5,loaded:6"}}});
  ASSERT_GT(server.port(), 0) << server.command().err();
  auto reply = std::async(std::launch::async, [&] {
    return server::ask(server.port(), "POST", "/scale_elastic_ep",
                       R"({"new_data_parallel_size": 4})");
  });
  const auto is_scaling = [&] {
    return server::ask(server.port(), "POST", "/is_scaling_elastic_ep")
        .body_json()["is_scaling_elastic_ep"];
  };
  EXPECT_TRUE(wait_until(is_scaling, 10s * kSlowdown));
  terminate(server);
  EXPECT_EQ(reply.get().status, 200) << server.command().err();
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
}

TEST(CommandDrain, ASecondSignalEndsEverything) {
  Server server(small_model(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  auto cut = std::async(std::launch::async, [&server] {
    json body = stream(1);
    body["n"] = 8;  // it takes a while
    return ask_plainly(server.port(), "/v1/completions", body);
  });
  ASSERT_TRUE(
      wait_until([&] { return server.metric("wideep_answers_running") == 8; }, 10s * kSlowdown));
  terminate(server);
  pause(100ms);
  terminate(server);
  EXPECT_THAT(cut.get().text, HasSubstr("the server has stopped before the answer was complete"));
  EXPECT_EQ(server.command().wait().exit_code, 130);
}

}  // namespace
}  // namespace wideep::tests
