// SPDX-License-Identifier: Apache-2.0
// wideep serve: what is kept, counted or sent as a difference is right after other members, another
// serving process, a hanging one, a changed checkpoint.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "command_model.h"
#include "command_server.h"
#include "fault_load.h"
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
using ::testing::Not;

void kill_front(const Server& server) {
  ::kill(front_processes(const_cast<Server&>(server).command()).at(0), SIGKILL);
}
bool all_compute(const Server& server, int ranks) {
  return wait_until([&] { return server.metric("wideep_ep_active_ranks") == ranks; },
                    20s * kSlowdown);
}
Reply scale(const Server& server, int ranks, int timeout = 60) {
  return ask(server.port(), "POST", "/scale_elastic_ep",
             json({{"new_data_parallel_size", ranks}, {"drain_timeout", timeout}}).dump());
}
json long_stream(int max_tokens) {
  return {{"model", "m"},  {"prompt", "The cat"}, {"max_tokens", max_tokens},
          {"seed", 5},     {"temperature", 0.8},  {"stream", true},
          {"logprobs", 2}, {"ignore_eos", true}};
}
std::future<PlainReply> begin(Server& server, const json& body) {
  const auto before = server.metric("wideep_answers_running");
  auto reply = std::async(std::launch::async, [&server, body] {
    return ask_plainly(server.port(), "/v1/completions", body);
  });
  EXPECT_TRUE(wait_until([&] { return server.metric("wideep_answers_running") > before; },
                         10s * kSlowdown));
  return reply;
}

// Holds a process as a debugger does, which nobody is told of; until it has ended.
class Held {
 public:
  explicit Held(pid_t process) : process_(process) {
    is_held_ = ::ptrace(PTRACE_SEIZE, process, nullptr, nullptr) == 0 &&
               ::ptrace(PTRACE_INTERRUPT, process, nullptr, nullptr) == 0;
  }
  bool is_held() const { return is_held_; }
  // The keeper hears of the end when the tracer has seen it.
  void wait_for_end() const {
    int how = 0;
    do {
      ASSERT_EQ(::waitpid(process_, &how, __WALL), process_);
    } while (WIFSTOPPED(how));
  }

 private:
  pid_t process_;
  bool is_held_ = false;
};

// ---- formats ----

struct Change {
  const char* name;
  std::vector<std::string> options;
  std::function<void(Server&)> make;
};
void PrintTo(const Change& each, std::ostream* out) { *out << each.name; }

class FormatsAndMembers : public ::testing::TestWithParam<Change> {};

// Requests without a format, of every kind, before and after another one had one.
TEST_P(FormatsAndMembers, AFormatIsOfItsRequestAlone) {
  const base::ScratchDirectory model;
  write_random_model(model.path(), {});
  Server server(model.path(), GetParam().options);
  ASSERT_GT(server.port(), 0) << server.command().err();
  const json plain = {
      {"model", "m"}, {"prompt", "The sea was"}, {"max_tokens", 24}, {"temperature", 0}};
  json sampled = plain, formatted = plain;
  sampled["temperature"] = 0.9;
  sampled["seed"] = 3;
  formatted["guided_regex"] = "(yes|no|maybe) and secret-[0-9]{4}";
  const auto text_of = [&](const json& body) {
    return ask(server.port(), "POST", "/v1/completions", body.dump()).body_json()["choices"];
  };
  const json expected = text_of(plain), expected_sampled = text_of(sampled);
  const json expected_formatted = text_of(formatted);
  ASSERT_THAT(expected_formatted[0]["text"].get<std::string>(), HasSubstr(" and secret-"));
  for (int turn = 0; turn < 2; ++turn) {
    GetParam().make(server);
    // To every rank, of which some were there before.
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(text_of(plain), expected);
      EXPECT_EQ(text_of(sampled), expected_sampled);
    }
    EXPECT_EQ(text_of(formatted), expected_formatted);
  }
}

void kill_last_rank(Server& server) {
  const auto ranks = rank_processes(server.command());
  ::kill(ranks.back(), SIGKILL);
  EXPECT_TRUE(wait_until(
      [&] {
        const auto now = rank_processes(server.command());
        return now.size() == ranks.size() && now != ranks;
      },
      20s * kSlowdown));
  EXPECT_TRUE(all_compute(server, static_cast<int>(ranks.size())));
}

INSTANTIATE_TEST_SUITE_P(After, FormatsAndMembers,
                         ::testing::Values(Change{"ADeath", {"--ranks", "4"}, kill_last_rank},
                                           Change{"Scaling",
                                                  {"--ranks", "4", "--start-ranks", "2"},
                                                  [](Server& server) {
                                                    for (const int ranks : {4, 3, 2}) {
                                                      EXPECT_EQ(scale(server, ranks).status, 200);
                                                    }
                                                  }},
                                           Change{"AnotherFront",
                                                  {"--ranks", "2"},
                                                  [](Server& server) { kill_front(server); }}),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- what was promised ----

// Two answers run or wait, as many as may: they go on, and others are refused as before.
TEST(CommandState, WhatWasAcceptedGoesOnWhateverTheQueueHolds) {
  Server server(small_model(), {"--ranks", "2", "--max-queue", "2"});
  ASSERT_GT(server.port(), 0);
  json two = long_stream(700);
  two["prompt"] = {"The cat", "The dog"};
  const PlainReply expected = ask_plainly(server.port(), "/v1/completions", two);
  auto disturbed = begin(server, two);
  for (int i = 0; i < 3; ++i) {
    kill_front(server);
    EXPECT_TRUE(
        wait_until([&] { return server.metric("wideep_serving_processes_died_total") == i + 1; },
                   20s * kSlowdown));
    const Reply refused = server.complete({{"prompt", "x"}});
    if (server.metric("wideep_answers_running") == 2) EXPECT_EQ(refused.status, 429);
  }
  EXPECT_EQ(disturbed.get().text, expected.text);
}

TEST(CommandState, AScalingThatFailsGoesBackWhoeverServes) {
  Server server(CommandOptions{
      .arguments = {"serve", "--model", small_model(), "--port", "0", "--served-model-name", "m",
                    "--ranks", "4", "--start-ranks", "2"},
      .environment = {{"WIDEEP_FAULT_DRILL",
                       "loaded:3,loaded:4,loaded:5,loaded:6,loaded:7,loaded:8,loaded:9,loaded:10,"
                       "loaded:11,loaded:12,loaded:13,loaded:14,loaded:15,loaded:16,loaded:17"}}});
  ASSERT_GT(server.port(), 0);
  auto scaled = std::async(std::launch::async, [&] { return scale(server, 4, 2); });
  ASSERT_TRUE(wait_until([&] { return server.metric("wideep_ep_failed_ranks_total") > 0; },
                         5s * kSlowdown));
  kill_front(server);
  const Reply reply = scaled.get();
  EXPECT_EQ(reply.status, 408) << reply.body;
  EXPECT_THAT(reply.body, HasSubstr("2 ranks stay"));
  EXPECT_EQ(ask(server.port(), "GET", "/dashboard/data").body_json()["ranks"]["wanted"], 2);
}

TEST(CommandState, ADeletedResponseStaysDeleted) {
  const base::ScratchDirectory model;
  write_random_model(model.path(), {});
  std::ofstream(model.file("chat_template.jinja"))
      << "{% for m in messages %}{{ m.content }}{% endfor %}";
  Server server(model.path(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0) << server.command().err();
  const auto respond = [&](const json& more) {
    json body = {{"model", "m"}, {"input", "Hello"}, {"max_output_tokens", 16}};
    body.update(more);
    return ask(server.port(), "POST", "/v1/responses", body.dump());
  };
  const Reply first = respond({{"store", true}});
  ASSERT_EQ(first.status, 200) << first.body;
  const std::string id = first.body_json()["id"];
  auto second = std::async(std::launch::async, [&] {
    return respond({{"previous_response_id", id}, {"max_output_tokens", 1500}});
  });
  ASSERT_TRUE(
      wait_until([&] { return server.metric("wideep_answers_running") == 1; }, 10s * kSlowdown));
  EXPECT_EQ(ask(server.port(), "DELETE", "/v1/responses/" + id).status, 200);
  kill_front(server);
  EXPECT_EQ(second.get().status, 200);
  EXPECT_EQ(ask(server.port(), "GET", "/v1/responses/" + id).status, 404);
  EXPECT_EQ(ask(server.port(), "GET", "/v1/responses/" + id + "/input_items").status, 404);
}

// ---- recordings and logs ----

TEST(CommandState, ARecordingEndsThoughARankDies) {
  for (const char* layout : {"tensor_parallel_size: 2\n",
                             "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n"
                             "enable_attention_dp: true\n"}) {
    const base::ScratchDirectory files;
    std::ofstream(files.file("config.yaml")) << layout;
    Server server(small_model(), {"--config", files.file("config.yaml"), "--expert-statistic-path",
                                  files.file("stats")});
    ASSERT_GT(server.port(), 0) << server.command().err();
    const auto post = [&](const char* what) {
      return ask(server.port(), "POST", fmt::format("/{}_expert_distribution_record", what));
    };
    for (int turn = 0; turn < 3; ++turn) {
      EXPECT_EQ(post("start").status, 200);
      auto running = begin(server, long_stream(200));
      ::kill(rank_processes(server.command()).at(1), SIGKILL);
      std::this_thread::sleep_for(turn * 25ms);
      const Reply stopped = post("stop");
      EXPECT_EQ(stopped.status, 200) << stopped.body;
      running.get();
    }
  }
}

// Rotated by one serving process, and written on by the next ones: every line is whole, none is
// written to a file that nobody sees.
TEST(CommandState, TheIterationLogGoesOnInItsFile) {
  const base::ScratchDirectory files;
  const std::string log = files.file("log.jsonl");
  Server server(small_model(),
                {"--ranks", "2", "--iteration-log", log, "--iteration-log-max-size", "1"});
  ASSERT_GT(server.port(), 0) << server.command().err();
  for (int front = 0; front < 4; ++front) {
    ask_plainly(server.port(), "/v1/completions", long_stream(700));
    kill_front(server);
    EXPECT_TRUE(wait_until(
        [&] { return server.metric("wideep_serving_processes_died_total") == front + 1; },
        20s * kSlowdown));
    ask_plainly(server.port(), "/v1/completions", long_stream(100));
  }
  server.command().send(SIGTERM);
  server.command().wait();
  int64_t last = -1;
  size_t lines = 0;
  for (const std::string& path : {log + ".1", log}) {
    EXPECT_LE(std::filesystem::file_size(path), size_t{1} << 20);
    std::ifstream file(path);
    for (std::string line; std::getline(file, line); ++lines) {
      const json value = json::parse(line, nullptr, false);
      ASSERT_TRUE(value.is_object()) << path << ": " << line;
      EXPECT_GT(value["iter"].get<int64_t>(), last);
      last = value["iter"];
    }
  }
  EXPECT_GT(lines, 1000u);
}

// Who has read /perf_metrics up to a number asks for what comes after it.
TEST(CommandState, IterationsAreCountedOnWhereRanksBeginAnew) {
  for (const char* layout : {"tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n",
                             "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n"
                             "enable_attention_dp: true\n"}) {
    const base::ScratchDirectory files;
    std::ofstream(files.file("config.yaml")) << layout;
    Server server(small_model(), {"--config", files.file("config.yaml"), "--iteration-log",
                                  files.file("log.jsonl")});
    ASSERT_GT(server.port(), 0) << server.command().err();
    int64_t last = -1;
    const auto expect_news = [&] {
      ask_plainly(server.port(), "/v1/completions", long_stream(50));
      const json read =
          ask(server.port(), "GET", fmt::format("/perf_metrics?since={}", last)).body_json();
      EXPECT_GE(read["iterations"].size(), 50u) << layout;
      EXPECT_EQ(read["iterations"].at(0)["iteration"], last + 1) << layout;
      last = read["last"];
    };
    expect_news();
    for (const pid_t rank : rank_processes(server.command())) ::kill(rank, SIGKILL);
    expect_news();
    kill_front(server);
    expect_news();
    server.command().send(SIGTERM);
    server.command().wait();
    std::ifstream file(files.file("log.jsonl"));
    int64_t before = -1;
    for (std::string line; std::getline(file, line);) {
      const int64_t number = json::parse(line)["iter"];
      EXPECT_GT(number, before) << layout;
      before = number;
    }
    EXPECT_EQ(before, last);
  }
}

TEST(CommandState, TheLineThatSaysWhereItServesComesAlsoIfARankDiesFirst) {
  for (const char* steps : {"filled:1", "joined:2"}) {
    Server server(CommandOptions{
        .arguments = {"serve", "--model", small_model(), "--port", "0", "--ranks", "4"},
        .environment = {{"WIDEEP_FAULT_DRILL", steps}}});
    EXPECT_GT(server.port(), 0) << steps << server.command().err();
  }
}

// ---- a checkpoint that changes ----

TEST(CommandState, NothingIsAnsweredFromACheckpointThatHasChanged) {
  const ModelCopy model;
  Server server(model.path(), {"--ranks", "4"});
  ASSERT_GT(server.port(), 0);
  const std::string weights = model.read("model.safetensors");
  std::string changed = weights;
  for (size_t at = changed.size() / 2; at < changed.size(); at += 2) changed[at] ^= '\x80';
  const int same_file = ::open(model.file("model.safetensors").c_str(), O_WRONLY);
  ASSERT_EQ(::write(same_file, changed.data(), changed.size()),
            static_cast<ssize_t>(changed.size()));
  ::close(same_file);
  EXPECT_EQ(server.complete({{"prompt", "x"}}).status, 200);  // nothing is read again
  auto running = begin(server, long_stream(1000));
  ::kill(rank_processes(server.command()).at(1), SIGKILL);
  EXPECT_THAT(running.get().text, HasSubstr("the file changed while it was read"));
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("model.safetensors: the file changed while it was read"));
}

TEST(CommandState, ACheckpointThatWasCutEndsTheServiceWithAReason) {
  const ModelCopy model;
  Server server(model.path(), {"--ranks", "4"});
  ASSERT_GT(server.port(), 0);
  std::filesystem::resize_file(model.file("model.safetensors"), 4096);
  ::kill(rank_processes(server.command()).at(0), SIGKILL);
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("model.safetensors: the file changed while it was read"));
  EXPECT_THAT(end.err, Not(HasSubstr("signal 7")));
}

// The host pool has all experts: the file is not needed any more.
TEST(CommandState, WhatIsInTheHostPoolOutlivesTheFile) {
  const ModelCopy model;
  const base::ScratchDirectory files;
  std::ofstream(files.file("config.yaml"))
      << "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\nenable_attention_dp: true\n"
      << "moe_config:\n  load_balancer: {num_slots: 20, layer_updates_per_iter: 1}\n";
  Server server(model.path(), {"--config", files.file("config.yaml")});
  ASSERT_GT(server.port(), 0) << server.command().err();
  const PlainReply expected = ask_plainly(server.port(), "/v1/completions", long_stream(300));
  auto disturbed = begin(server, long_stream(300));
  model.write("model.safetensors", "another one");
  ::kill(rank_processes(server.command()).at(1), SIGKILL);
  EXPECT_EQ(disturbed.get().text, expected.text);
  EXPECT_TRUE(all_compute(server, 2)) << server.command().err();
}

// ---- what hangs ----

// In all its threads, at a moment at which no other rank waits for it with a deadline.
TEST(CommandState, ARankThatHangsBeforeItComputesIsReplaced) {
  Server server(small_model(), {"--ranks", "4", "--timeout", "4"});
  ASSERT_GT(server.port(), 0);
  const PlainReply expected = ask_plainly(server.port(), "/v1/completions", long_stream(400));
  auto disturbed = begin(server, long_stream(400));
  const std::vector<pid_t> ranks = rank_processes(server.command());
  // Held while the members change: it leaves, or has not joined, or waits for the others.
  ::kill(ranks[1], SIGKILL);
  const Held held(ranks[0]);
  if (!held.is_held()) GTEST_SKIP() << "ptrace is not allowed";
  held.wait_for_end();
  EXPECT_EQ(disturbed.get().text, expected.text);
  EXPECT_TRUE(all_compute(server, 4)) << server.command().err();
}

TEST(CommandState, ARankThatHangsWhileItLoadsIsReplaced) {
  Server server(small_model(), {"--ranks", "4", "--timeout", "4"});
  ASSERT_GT(server.port(), 0);
  const std::vector<pid_t> before = rank_processes(server.command());
  ::kill(before[2], SIGKILL);
  pid_t successor = 0;
  ASSERT_TRUE(wait_until(
      [&] {
        for (const pid_t each : rank_processes(server.command())) {
          if (std::ranges::find(before, each) == before.end()) successor = each;
        }
        return successor != 0;
      },
      5s * kSlowdown));
  const Held held(successor);
  if (!held.is_held()) GTEST_SKIP() << "ptrace is not allowed";
  held.wait_for_end();
  EXPECT_TRUE(all_compute(server, 4)) << server.command().err();
  EXPECT_EQ(server.complete({{"prompt", "x"}}).status, 200);
}

TEST(CommandState, AServingProcessThatHangsIsReplaced) {
  Server server(small_model(), {"--ranks", "2", "--timeout", "4"});
  ASSERT_GT(server.port(), 0);
  const PlainReply expected = ask_plainly(server.port(), "/v1/completions", long_stream(900));
  auto disturbed = begin(server, long_stream(900));
  const Held held(front_processes(server.command()).at(0));
  if (!held.is_held()) GTEST_SKIP() << "ptrace is not allowed";
  held.wait_for_end();
  EXPECT_EQ(disturbed.get().text, expected.text);
  EXPECT_THAT(server.command().err(), HasSubstr("has not answered for"));
  EXPECT_EQ(server.metric("wideep_serving_processes_died_total"), 1);
}

}  // namespace
}  // namespace wideep::tests
