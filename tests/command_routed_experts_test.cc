// SPDX-License-Identifier: Apache-2.0
// Router replay: the experts of each token and the log-probabilities that `wideep serve` returns
// are the same for every layout, and they are those that the router has chosen.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "formats/files.h"
#include "recordings/routing_log.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using server::ask;
using server::Reply;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kReference = WIDEEP_SOURCE_DIR "/models/reference";

// What numpy.load reads from the field of a choice.
struct Experts {
  std::vector<int> shape;
  std::vector<int32_t> values;

  int at(int position, int layer, int k) const {
    return values[static_cast<size_t>((position * shape[1] + layer) * shape[2] + k)];
  }
};

std::string decoded(const std::string& base64) {
  static const std::string digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0, count = 0;
  for (const char each : base64) {
    if (each == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(each));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

Experts experts_of(const json& choice) {
  const std::string bytes = decoded(choice.at("routed_experts").get<std::string>());
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t begin = 10 + static_cast<unsigned char>(bytes.at(8)) +
                       256 * static_cast<size_t>(static_cast<unsigned char>(bytes.at(9)));
  EXPECT_EQ(begin % 64, 0u);
  const std::string header = bytes.substr(10, begin - 10);
  EXPECT_THAT(header, HasSubstr("{'descr': '<i4', 'fortran_order': False, 'shape': ("));
  Experts experts{.shape = {0, 0, 0}, .values = {}};
  EXPECT_EQ(std::sscanf(header.c_str() + header.find("'shape': ("), "'shape': (%d, %d, %d)",
                        &experts.shape[0], &experts.shape[1], &experts.shape[2]),
            3);
  experts.values.resize((bytes.size() - begin) / sizeof(int32_t));
  if (!experts.values.empty()) {
    std::memcpy(experts.values.data(), bytes.data() + begin, bytes.size() - begin);
  }
  EXPECT_EQ(static_cast<int>(experts.values.size()),
            experts.shape[0] * experts.shape[1] * experts.shape[2]);
  return experts;
}

std::vector<std::string> with_flag(std::vector<std::string> more) {
  more.push_back("--enable-return-routed-experts");
  return more;
}

class CommandRoutedExperts : public ::testing::Test {
 protected:
  std::string config(const std::string& text) {
    const std::string path = directory_.file(fmt::format("{}.yaml", num_files_++));
    EXPECT_TRUE(formats::write_file(path, text).ok());
    return path;
  }

  const base::ScratchDirectory directory_;
  int num_files_ = 0;
};

// ---- layouts ----

struct Question {
  const char* path;
  json body;
};

// Of several kinds: greedy, sampled, several answers, a chat, a start, a stop string, a text that
// repeats itself over several pages.
std::vector<Question> questions() {
  std::string list;
  for (int i = 0; i < 24; ++i) list += "one, two, three, ";
  const auto completion = [](json more) {
    json body = {{"model", "m"}, {"max_tokens", 40}, {"temperature", 0}, {"logprobs", 5}};
    body.update(more);
    return Question{"/v1/completions", std::move(body)};
  };
  return {
      completion({{"prompt", "And the king said to his servants,"}}),
      completion({{"prompt", list}}),
      completion({{"prompt", "def read_file(self, path):\n"},
                  {"temperature", 0.8},
                  {"seed", 5},
                  {"n", 2}}),
      completion({{"prompt", {list + "one", "English: Open a file.\nGerman:"}},
                  {"routed_experts_prompt_start", 30}}),
      completion({{"prompt", "And the king said to his servants,"}, {"stop", "e"}}),
      {"/v1/chat/completions",
       {{"model", "m"},
        {"messages", {{{"role", "user"}, {"content", "What is 3 + 4?"}}}},
        {"max_tokens", 30},
        {"temperature", 0.5},
        {"seed", 11},
        {"logprobs", true},
        {"top_logprobs", 5}}},
  };
}

// Choices and usage, where all are asked at the same time.
std::vector<json> answers_of(const Server& server, const std::vector<Question>& all = questions()) {
  std::vector<std::future<Reply>> replies;
  for (const Question& each : all) {
    replies.push_back(std::async(std::launch::async, [&server, each] {
      return ask(server.port(), "POST", each.path, each.body.dump());
    }));
  }
  std::vector<json> answers;
  for (auto& reply : replies) {
    const Reply got = reply.get();
    EXPECT_EQ(got.status, 200) << got.body;
    json body = got.status == 200 ? got.body_json() : json::object();
    answers.push_back({{"choices", body["choices"]}, {"usage", body["usage"]}});
  }
  return answers;
}

// Why two lists of answers differ; "": they do not. Their text would be too long.
std::string difference(const std::vector<json>& a, const std::vector<json>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i]["choices"].size(); ++j) {
      for (const auto& [key, value] : a[i]["choices"][j].items()) {
        if (value == b[i]["choices"][j][key]) continue;
        return fmt::format("question {}, choice {}: {}", i, j, key);
      }
    }
    if (a[i] != b[i]) return fmt::format("question {}", i);
  }
  return a.size() == b.size() ? "" : "number of answers";
}

struct Served {
  const char* name;
  std::string config;
};

const std::vector<Served>& layouts() {
  static const std::string dp2 =
      "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\nenable_attention_dp: true\n";
  static const std::vector<Served> all = {
      {"chunks", "max_num_tokens: 24\nmax_batch_size: 4\n"},
      {"attention dp 4, ep 4",
       "tensor_parallel_size: 4\nmoe_expert_parallel_size: 4\nenable_attention_dp: true\n"},
      {"tp 2", "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n"},
      {"pp 2", "pipeline_parallel_size: 2\n"},
      {"pp 3, tp 2", "pipeline_parallel_size: 3\ntensor_parallel_size: 2\n"},
      {"cp 2", "context_parallel_size: 2\n"},
      {"online", dp2 + "moe_config: {load_balancer: {num_slots: 40, layer_updates_per_iter: 2}}\n"},
      {"n-grams", "speculative_config: {decoding_type: NGram, max_draft_len: 5}\n"},
      {"tp 2, n-grams, chunks",
       "tensor_parallel_size: 2\nmax_num_tokens: 24\nmax_batch_size: 4\n"
       "speculative_config: {decoding_type: NGram, max_draft_len: 5}\n"},
      {"dp 2, prediction layer", dp2 + "speculative_config: {decoding_type: MTP}\n"}};
  return all;
}

TEST_F(CommandRoutedExperts, AreTheSameInEveryLayout) {
  std::vector<json> expected;
  {
    Server server(kReference, with_flag({}));
    ASSERT_GT(server.port(), 0);
    expected = answers_of(server);
    EXPECT_EQ(difference(answers_of(server), expected), "");
    EXPECT_THAT(server.command().err(), HasSubstr("pages are not shared"));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const json body = questions()[i].body;
    for (const json& choice : expected[i]["choices"]) {
      const Experts experts = experts_of(choice);
      EXPECT_EQ(experts.shape[1], 6);
      EXPECT_EQ(experts.shape[2], 4);
      const json& logprobs = choice["logprobs"];
      const json& list = logprobs.contains("content") ? logprobs["content"] : logprobs["tokens"];
      if (expected[i]["choices"].size() == 1) {
        EXPECT_EQ(experts.shape[0], expected[i]["usage"]["total_tokens"].get<int>() - 1);
        EXPECT_EQ(expected[i]["usage"]["completion_tokens"], list.size());
      }
      for (int row = 0; row < experts.shape[0] * experts.shape[1]; ++row) {
        std::set<int32_t> distinct;
        for (int k = 0; k < 4; ++k) distinct.insert(experts.at(0, row, k));
        EXPECT_EQ(distinct.size(), 4u);
        EXPECT_GE(*distinct.begin(), 0);
        EXPECT_LT(*distinct.rbegin(), 32);
      }
    }
  }
  for (const Served& each : layouts()) {
    if (base::is_command_sanitized() && std::string_view(each.name) == "pp 3, tp 2") continue;
    SCOPED_TRACE(each.name);
    Server server(kReference, with_flag({"--config", config(each.config)}));
    ASSERT_GT(server.port(), 0);
    for (int turn = 0; turn < 2; ++turn) {  // online, experts have moved by the second
      ASSERT_EQ(difference(answers_of(server), expected), "");
    }
    if (each.config.find("speculative") != std::string::npos) {
      EXPECT_GT(server.metric("vllm:spec_decode_num_accepted_tokens_total"), 20);
      EXPECT_GT(server.metric("vllm:spec_decode_num_draft_tokens_total"),
                server.metric("vllm:spec_decode_num_accepted_tokens_total"));
    }
    server.command().send(SIGTERM);
    EXPECT_EQ(server.command().wait().exit_code, 0) << server.command().err();
  }
}

// A cache that is too small for all: requests are paused, and computed again.
TEST_F(CommandRoutedExperts, AreTheSameAfterPauses) {
  std::vector<Question> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back({"/v1/completions",
                   {{"model", "m"},
                    {"prompt", fmt::format("{} captains looked at the sea", i)},
                    {"max_tokens", 130},
                    {"temperature", 0.7},
                    {"seed", i},
                    {"ignore_eos", true},
                    {"logprobs", 1}}});
  }
  Server roomy(kReference, with_flag({}));
  Server crowded(kReference, with_flag({"--config",
                                        config("max_num_tokens: 64\nmax_batch_size: 8\n"
                                               "kv_cache_config: {max_tokens: 512}\n"),
                                        "--scheduler-policy", "max_utilization"}));
  ASSERT_GT(roomy.port(), 0);
  ASSERT_GT(crowded.port(), 0);
  EXPECT_EQ(difference(answers_of(crowded, all), answers_of(roomy, all)), "");
  EXPECT_GT(crowded.metric("wideep_pauses_total"), 0);
}

// ---- ranks and the serving process die ----

// Others go on with the requests, and with what was not sent of their experts: the same answers.
TEST_F(CommandRoutedExperts, OutliveTheirRanks) {
  std::vector<json> expected;
  {
    Server server(kReference, with_flag({}));
    expected = answers_of(server);
  }
  const Served layouts[] = {
      {"attention dp 2, ep 2",
       "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\nenable_attention_dp: true\n"},
      {"pp 2", "pipeline_parallel_size: 2\n"}};
  for (const Served& each : layouts) {
    SCOPED_TRACE(each.name);
    Server server(kReference, with_flag({"--config", config(each.config)}));
    ASSERT_GT(server.port(), 0);
    std::atomic<bool> ends{false};
    std::atomic<int> rounds{0};
    std::vector<std::thread> clients;
    for (int client = 0; client < 2; ++client) {
      clients.emplace_back([&] {
        while (!ends) {
          EXPECT_EQ(difference(answers_of(server), expected), "");
          ++rounds;
        }
      });
    }
    for (const char* name :
         {"wideep-rank-1", "wideep-front", "wideep-rank-0", "wideep-front", "wideep-rank-1"}) {
      const int before = rounds;
      EXPECT_TRUE(wait_until([&] { return rounds > before + 1; }, 30s * kSlowdown)) << name;
      pid_t pid = -1;
      EXPECT_TRUE(
          wait_until([&] { return (pid = process_named(server, name)) > 0; }, 10s * kSlowdown))
          << name;
      if (pid > 0) ::kill(pid, SIGKILL);
    }
    ends = true;
    for (std::thread& client : clients) client.join();
    EXPECT_GT(rounds, 10);
  }
}

// The serving process dies when it has kept the last token of an answer, and lacks its experts:
// whether the engine has ended it, or a stop string.
TEST_F(CommandRoutedExperts, OutliveTheServingProcessAfterTheLastToken) {
  const json whole = {{"prompt", "And the king said"}, {"max_tokens", 6}, {"logprobs", 2}};
  json stopped = whole;
  stopped.update({{"max_tokens", 60}, {"stop", "e"}});
  for (const json& body : {whole, stopped}) {
    json expected;
    {
      Server server(kReference, with_flag({}));
      ASSERT_GT(server.port(), 0);
      expected = server.complete(body).body_json();
    }
    const int tokens = expected["usage"]["completion_tokens"];
    ASSERT_GT(tokens, 1);
    for (const char* config_text : {"tensor_parallel_size: 2\nenable_attention_dp: true\n"
                                    "moe_expert_parallel_size: 2\n",
                                    "pipeline_parallel_size: 2\n"}) {
      SCOPED_TRACE(config_text);
      Server server(
          {.arguments = {"serve", "--model", kReference, "--port", "0", "--served-model-name", "m",
                         "--enable-return-routed-experts", "--config", config(config_text)},
           .environment = {{"WIDEEP_FAULT_DRILL", fmt::format("recorded:{}", tokens)}}});
      ASSERT_GT(server.port(), 0);
      const pid_t front = process_named(server, "wideep-front");
      const Reply reply = server.complete(body);
      ASSERT_EQ(reply.status, 200) << reply.body;
      EXPECT_EQ(reply.body_json()["choices"], expected["choices"]);
      EXPECT_EQ(reply.body_json()["usage"], expected["usage"]);
      EXPECT_NE(process_named(server, "wideep-front"), front);
    }
  }
}

// ---- what the router has chosen ----

// The routing log of `wideep generate` counts experts by another way. The prompts' prefixes tell
// the experts of each position: a prefix has those of one position more than the prefix before.
TEST_F(CommandRoutedExperts, AreThoseOfTheRoutingLog) {
  const std::string prompt = "The quick brown fox";
  const std::string file = directory_.file("log.json");
  const auto counts_of = [&](const std::vector<std::string>& prompts, int max_tokens) {
    std::vector<std::string> arguments = {
        "generate",      "--model", small_model(), "--max-tokens", std::to_string(max_tokens),
        "--routing-log", file};
    for (const std::string& each : prompts) {
      arguments.insert(arguments.end(), {"--prompt", each});
    }
    const CommandEnd end = run_command({.arguments = arguments});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return recordings::read_routing_log(file).value().request_counts;
  };
  Server server(small_model(), with_flag({"--ranks", "2"}));
  ASSERT_GT(server.port(), 0);
  const json body = server.complete({{"prompt", prompt}, {"max_tokens", 20}}).body_json();
  const Experts experts = experts_of(body["choices"][0]);
  ASSERT_EQ(body["usage"]["prompt_tokens"], prompt.size());
  ASSERT_THAT(experts.shape, ElementsAre(static_cast<int>(prompt.size()) + 19, 2, 4));

  std::vector<std::string> prefixes;
  for (size_t length = 1; length <= prompt.size(); ++length) {
    prefixes.push_back(prompt.substr(0, length));
  }
  const auto of_prefixes = counts_of(prefixes, 1);
  for (int layer = 0; layer < 2; ++layer) {
    std::vector<int64_t> sums(16);
    for (int position = 0; position < experts.shape[0]; ++position) {
      for (int k = 0; k < 4; ++k) ++sums[static_cast<size_t>(experts.at(position, layer, k))];
      if (position >= static_cast<int>(prompt.size())) continue;
      EXPECT_EQ(of_prefixes[static_cast<size_t>(position)][static_cast<size_t>(layer)], sums)
          << "position " << position;
    }
    EXPECT_EQ(counts_of({prompt}, 20)[0][static_cast<size_t>(layer)], sums);
  }
}

// ---- bad input, and streams ----

TEST_F(CommandRoutedExperts, StreamsHaveNoneAndTheFieldNeedsTheOption) {
  Server without(small_model(), {});
  ASSERT_GT(without.port(), 0);
  EXPECT_FALSE(
      without.complete({{"prompt", "x"}}).body_json()["choices"][0].contains("routed_experts"));
  const Reply refused = without.complete({{"prompt", "x"}, {"routed_experts_prompt_start", 0}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("--enable-return-routed-experts"));

  Server server(small_model(), with_flag({}));
  ASSERT_GT(server.port(), 0);
  const Reply stream = server.complete({{"prompt", "x"}, {"stream", true}});
  EXPECT_EQ(stream.status, 200);
  EXPECT_GT(stream.events().size(), 10u);
  EXPECT_EQ(stream.body.find("routed_experts"), std::string::npos);
  for (const auto& [start, streams] :
       {std::pair<json, bool>{-1, false}, {"2", false}, {1.5, false}, {2, true}}) {
    const Reply reply = server.complete(
        {{"prompt", "x"}, {"stream", streams}, {"routed_experts_prompt_start", start}});
    EXPECT_EQ(reply.status, 400) << start;
    EXPECT_EQ(reply.body_json()["error"]["param"], "routed_experts_prompt_start") << reply.body;
  }
  const json late =
      server.complete({{"prompt", "x"}, {"routed_experts_prompt_start", 1000}}).body_json();
  EXPECT_THAT(experts_of(late["choices"][0]).shape, ElementsAre(0, 2, 4));
}

}  // namespace
}  // namespace wideep::tests
