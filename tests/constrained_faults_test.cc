// SPDX-License-Identifier: Apache-2.0
// wideep serve while its processes die: answers with a schema go on, with the same tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "command_server.h"
#include "fault_load.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// A string so long that there is time for what happens in the middle of it, then what it must end
// with.
json request(bool with_two_answers) {
  const json schema = {{"type", "object"},
                       {"properties",
                        {{"text", {{"type", "string"}, {"pattern", "^[a-z ]{400,420}$"}}},
                         {"mood", {{"enum", {"glad", "sad"}}}},
                         {"numbers",
                          {{"type", "array"},
                           {"items", {{"type", "integer"}, {"minimum", 0}, {"maximum", 99}}},
                           {"minItems", 3},
                           {"maxItems", 3}}}}},
                       {"required", {"text", "mood", "numbers"}}};
  return {{"model", "m"},         {"prompt", "The cat"},
          {"max_tokens", 600},    {"seed", 5},
          {"temperature", 0.8},   {"stream", true},
          {"logprobs", 1},        {"n", with_two_answers ? 2 : 1},
          {"guided_json", schema}};
}

// The answer with that number, of the events of a stream.
std::string answer_of(const PlainReply& reply, int number) {
  std::string text;
  size_t at = 0;
  for (size_t end = reply.text.find('\n'); end != reply.text.npos;
       at = end + 1, end = reply.text.find('\n', at)) {
    const json event = json::parse(reply.text.substr(at, end - at), nullptr, false);
    if (!event.is_object() || !event.contains("choices") || event["choices"].empty()) continue;
    const json& choice = event["choices"][0];
    if (choice.value("index", 0) == number) text += choice.value("text", "");
  }
  return text;
}

void expect_valid(const PlainReply& reply, int number) {
  const std::string text = answer_of(reply, number);
  const json value = json::parse(text, nullptr, false);
  ASSERT_TRUE(value.is_object()) << text;
  EXPECT_TRUE(value["text"].is_string());
  EXPECT_TRUE(value["mood"] == "glad" || value["mood"] == "sad") << text;
  EXPECT_EQ(value["numbers"].size(), 3u) << text;
}

// Kills each of the processes once while the answer is computed, one of which computes it.
void expect_to_go_on(const std::vector<std::string>& options, int num_ranks, bool with_two) {
  // With an end token: without one no format is taken.
  const base::ScratchDirectory model;
  write_random_model(model.path(), {});
  Server server(model.path(), options);
  ASSERT_GT(server.port(), 0) << server.command().err();
  const auto ask = [&] { return ask_plainly(server.port(), "/v1/completions", request(with_two)); };
  const PlainReply expected = ask();
  ASSERT_EQ(expected.status, 200) << expected.text;
  for (int i = 0; i < (with_two ? 2 : 1); ++i) expect_valid(expected, i);
  int killed_early = 0;
  for (int victim = 0; victim <= num_ranks; ++victim) {
    auto disturbed = std::async(std::launch::async, ask);
    EXPECT_TRUE(
        wait_until([&] { return server.metric("wideep_answers_running") >= 1; }, 10s * kSlowdown));
    const bool is_front = victim == num_ranks;
    const std::vector<pid_t> processes =
        is_front ? front_processes(server.command()) : rank_processes(server.command());
    const pid_t process = processes.at(is_front ? 0 : static_cast<size_t>(victim));
    // In the middle: not before the first tokens.
    std::this_thread::sleep_for(30ms);
    ::kill(process, SIGKILL);
    killed_early += disturbed.wait_for(0s) != std::future_status::ready ? 1 : 0;
    const PlainReply reply = disturbed.get();
    EXPECT_EQ(reply.text, expected.text) << "process " << victim << " was killed; " << reply.error;
    EXPECT_TRUE(wait_until([&] { return server.metric("wideep_ep_active_ranks") == num_ranks; },
                           20s * kSlowdown))
        << server.command().err();
  }
  EXPECT_GT(killed_early, num_ranks / 2) << "the answers were there before the kills";
  server.command().send(SIGTERM);
  EXPECT_EQ(server.command().wait().exit_code, 0);
}

TEST(ConstrainedFaults, AnAnswerWithASchemaGoesOn) { expect_to_go_on({"--ranks", "4"}, 4, false); }

TEST(ConstrainedFaults, TwoAnswersOfOneRequestGoOn) { expect_to_go_on({"--ranks", "2"}, 2, true); }

TEST(ConstrainedFaults, OneRankAloneIsStartedAgain) { expect_to_go_on({}, 1, false); }

}  // namespace
}  // namespace wideep::tests
