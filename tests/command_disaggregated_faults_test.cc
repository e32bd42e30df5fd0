// SPDX-License-Identifier: Apache-2.0
//
// What breaks disaggregated serving elsewhere (docs/disaggregated.md, "How others broke"), with
// servers of this command: references to prompts that are of no use any more, servers that die, come
// back or are silent, prompts that are too long, clients that leave, and many requests at once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "fault_load.h"
#include "http/http_client_testing.h"
#include "service_nodes.h"
#include "store/page_peer.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using server::Reply;
using testing::HasSubstr;
using testing::IsEmpty;
using Clock = std::chrono::steady_clock;

// A token each; two with different seeds have no page in common.
std::string letters(unsigned seed, int count) {
  std::mt19937 random(seed);
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>('a' + random() % 26);
  return text;
}

std::vector<std::string> options_of(const std::string& role,
                                    const std::vector<std::string>& more = {"--ranks", "1"}) {
  std::vector<std::string> options = {
      "--role", role, "--threads-per-rank", "1", "--host-cache-size", "16MiB"};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

// The answer to a prompt, with log-probabilities: 24 tokens, of which none is the end.
Reply answer(const Server& server, const std::string& prompt, json more = json::object()) {
  more.update({{"prompt", prompt}, {"logprobs", 2}});
  return server.complete(more);
}
std::string choices_of(const Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.status == 200 ? reply.body_json()["choices"].dump() : "";
}
int cached_tokens(const Reply& reply) {
  return reply.body_json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
}

// Has a prompt computed, and returns what is said of it to the server that answers.
json computed_at(const Server& server, const std::string& prompt) {
  const Reply reply = server.complete(
      {{"prompt", prompt}, {"disaggregated_params", {{"request_type", "context_only"}}}});
  EXPECT_EQ(reply.status, 200) << reply.body;
  if (reply.status != 200) return {};
  json params = reply.body_json()["choices"][0]["disaggregated_params"];
  params["request_type"] = "generation_only";
  return {{"disaggregated_params", params}};
}

// With all its processes, at once.
void kill_whole(Server& server) {
  ::kill(-server.command().pid(), SIGKILL);
  EXPECT_TRUE(wait_until([&] { return server.command().ranks().empty(); }, 10s * kSlowdown));
}

bool is_at_rest(const Server& server) {
  return server.metric("wideep_answers_running") == 0 && server.metric("wideep_kv_pages_used") == 0;
}

// `wideep disaggregated` before one server of each kind. Prompts of more than 256 letters are
// divided: by what it guesses, they have more than a page.
class Proxy {
 public:
  Proxy(const Server& computes, const Server& answers, const std::string& style) {
    std::ofstream(files_.file("d.yaml")) << fmt::format(
        "hostname: 127.0.0.1\nport: 0\nschedule_style: {}\n"
        "conditional_disagg_config: {{max_local_prefill_length: 64}}\n"
        "context_servers: {{urls: ['127.0.0.1:{}']}}\n"
        "generation_servers: {{urls: ['127.0.0.1:{}']}}\n",
        style, computes.port(), answers.port());
    server_ = std::make_unique<Server>(
        std::vector<std::string>{"disaggregated", "-c", files_.file("d.yaml")});
    const auto is_known = [&](const Server& server, const char* role) {
      return server_->metric(
                 fmt::format("wideep_router_role{{replica=\"http://127.0.0.1:{}\",role=\"{}\"}}",
                             server.port(), role)) == 1;
    };
    EXPECT_TRUE(
        wait_until([&] { return is_known(computes, "prefill") && is_known(answers, "decode"); },
                   20s * kSlowdown));
  }
  const Server& server() const { return *server_; }
  double divided(const Server& answers) const {
    return server_->metric(fmt::format(
        "wideep_router_prompts_divided_total{{replica=\"http://127.0.0.1:{}\"}}", answers.port()));
  }

 private:
  base::ScratchDirectory files_;
  std::unique_ptr<Server> server_;
};

// Elsewhere a reference that was unknown, used, or of an earlier life of its server had the answer
// made from whatever lay there, even from another prompt.
TEST(CommandDisaggregatedFaults, AReferenceIsAPlaceToLookAndNoMore) {
  Server computes(small_model(), options_of("prefill"));
  Server answers(small_model(), options_of("decode"));
  ASSERT_GT(computes.port(), 0) << computes.command().err();
  ASSERT_GT(answers.port(), 0) << answers.command().err();
  // Its prompt is one that neither server has seen.
  unsigned seed = 1;
  const auto expect_right = [&](const json& reference) {
    const std::string prompt = letters(++seed, 300);
    const Reply reply = answer(answers, prompt, reference);
    EXPECT_EQ(choices_of(reply), choices_of(answer(computes, prompt))) << reference;
    EXPECT_EQ(cached_tokens(reply), 0) << reference;
  };
  const std::string first = letters(1, 300);
  const json reference = computed_at(computes, first);
  const Reply reply = answer(answers, first, reference);
  EXPECT_EQ(choices_of(reply), choices_of(answer(computes, first)));
  EXPECT_EQ(cached_tokens(reply), 256);  // all whole pages
  // A used one, for the same prompt and for another one.
  EXPECT_EQ(choices_of(answer(answers, first, reference)), choices_of(reply));
  expect_right(reference);
  // Unknown ones: of the request, of the place, of the server.
  json unknown = reference;
  unknown["disaggregated_params"]["ctx_request_id"] = 4711;
  expect_right(unknown);
  auto peer = store::parse_page_peer(
      reference["disaggregated_params"]["encoded_opaque_state"].get<std::string>());
  ASSERT_TRUE(peer.ok());
  peer->token = "guessed";
  json guessed = reference;
  guessed["disaggregated_params"]["encoded_opaque_state"] = store::text_of(*peer);
  expect_right(guessed);
  peer->host.port = static_cast<uint16_t>(free_port());
  guessed["disaggregated_params"]["encoded_opaque_state"] = store::text_of(*peer);
  expect_right(guessed);
  // vLLM's, with blocks that there are not.
  json blocks = computes
                    .complete({{"prompt", letters(100, 300)},
                               {"kv_transfer_params", {{"do_remote_decode", true}}}})
                    .body_json()["kv_transfer_params"];
  blocks["remote_block_ids"] = {0, 1'000'000'000};
  expect_right({{"kv_transfer_params", blocks}});
  EXPECT_THAT(own_deaths(answers.command().err()), IsEmpty());
}

// Elsewhere the server that answers fell over what it had remembered of the other one.
TEST(CommandDisaggregatedFaults, APrefillServerThatCameBackIsAnotherOne) {
  const std::vector<std::string> where = {"--ranks", "1", "--page-address",
                                          fmt::format("127.0.0.1:{}", free_port())};
  auto computes = std::make_unique<Server>(small_model(), options_of("prefill", where));
  Server answers(small_model(), options_of("decode"));
  ASSERT_GT(computes->port(), 0) << computes->command().err();
  ASSERT_GT(answers.port(), 0) << answers.command().err();
  const std::string before = letters(1, 300), lost = letters(2, 300), after = letters(3, 300);
  const json known = computed_at(*computes, before);
  EXPECT_EQ(cached_tokens(answer(answers, before, known)), 256);
  const std::string expected = choices_of(answer(*computes, lost));
  const json old = computed_at(*computes, lost);
  kill_whole(*computes);
  computes = std::make_unique<Server>(small_model(), options_of("prefill", where));
  ASSERT_GT(computes->port(), 0) << computes->command().err();
  // What was said of the server before: nothing is there.
  const Reply reply = answer(answers, lost, old);
  EXPECT_EQ(choices_of(reply), expected);
  EXPECT_EQ(cached_tokens(reply), 0);
  // The one that is there now is asked, as soon as the outage is over.
  int taken = 0;
  for (unsigned seed = 10; seed < 30 && taken == 0; ++seed) {
    const std::string prompt = letters(seed, 300);
    const json reference = computed_at(*computes, prompt);
    const Reply later = answer(answers, prompt, reference);
    EXPECT_EQ(choices_of(later), choices_of(answer(*computes, prompt)));
    taken = cached_tokens(later);
    if (taken == 0) std::this_thread::sleep_for(500ms);
  }
  EXPECT_EQ(taken, 256);
  EXPECT_THAT(own_deaths(answers.command().err()), IsEmpty());
}

// Elsewhere clients waited for ever, or until a limit of minutes.
TEST(CommandDisaggregatedFaults, AServerThatIsSilentIsNotWaitedForForEver) {
  Server computes(small_model(), options_of("prefill"));
  Server answers(small_model(), options_of("decode"));
  ASSERT_GT(computes.port(), 0) << computes.command().err();
  ASSERT_GT(answers.port(), 0) << answers.command().err();
  const std::string prompt = letters(1, 300);
  const std::string expected = choices_of(answer(computes, prompt));
  const json reference = computed_at(computes, prompt);
  ::kill(-computes.command().pid(), SIGSTOP);
  const auto asked = Clock::now();
  EXPECT_EQ(choices_of(answer(answers, prompt, reference)), expected);
  EXPECT_LT(Clock::now() - asked, 45s * kSlowdown);
  ::kill(-computes.command().pid(), SIGCONT);
}

// Elsewhere the other server answered from pages that were never computed.
TEST(CommandDisaggregatedFaults, APromptThatIsTooLongIsRefusedOrComputedElsewhere) {
  constexpr int kMost = 400;  // tokens of a sequence
  Server computes(small_model(),
                  options_of("prefill", {"--ranks", "1", "--context", std::to_string(kMost)}));
  Server answers(small_model(), options_of("decode"));
  ASSERT_GT(computes.port(), 0) << computes.command().err();
  ASSERT_GT(answers.port(), 0) << answers.command().err();
  unsigned seed = 0;
  for (const char* style : {"generation_first", "context_first"}) {
    SCOPED_TRACE(style);
    const Proxy proxy(computes, answers, style);
    ASSERT_GT(proxy.server().port(), 0);
    // For both servers.
    const auto asked = Clock::now();
    const Reply refused = answer(proxy.server(), letters(++seed, 5000));
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(refused.body, HasSubstr("maximum context length"));
    EXPECT_LT(Clock::now() - asked, 10s * kSlowdown);
    // For the one that was to compute it.
    const std::string prompt = letters(++seed, 2 * kMost);
    const std::string got = choices_of(answer(proxy.server(), prompt));
    EXPECT_EQ(got, choices_of(answer(answers, prompt)));
    // For none.
    const std::string small = letters(++seed, kMost - 100);
    EXPECT_EQ(choices_of(answer(proxy.server(), small)), choices_of(answer(computes, small)));
    EXPECT_TRUE(
        wait_until([&] { return is_at_rest(computes) && is_at_rest(answers); }, 10s * kSlowdown));
  }
}

// Elsewhere the other server was not told, and held its slots for 300 s: it took an hour until all
// was as before.
TEST(CommandDisaggregatedFaults, AStormOfClientsThatLeaveIsOverAtOnce) {
  Server computes(small_model(), options_of("prefill"));
  Server answers(small_model(), options_of("decode"));
  ASSERT_GT(computes.port(), 0) << computes.command().err();
  ASSERT_GT(answers.port(), 0) << answers.command().err();
  const Proxy proxy(computes, answers, "generation_first");
  ASSERT_GT(proxy.server().port(), 0);
  constexpr int kClients = 64;
  std::vector<std::unique_ptr<server::Socket>> clients;
  for (unsigned i = 0; i < kClients; ++i) {
    const std::string body =
        json({{"model", "m"}, {"prompt", letters(i, 3000)}, {"max_tokens", 500}}).dump();
    clients.push_back(std::make_unique<server::Socket>(proxy.server().port()));
    clients.back()->send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                         std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  EXPECT_TRUE(wait_until(
      [&] {
        return computes.metric("wideep_answers_running") > 0 &&
               answers.metric("wideep_answers_running") > 0;
      },
      20s * kSlowdown));
  clients.clear();
  const auto left = Clock::now();
  EXPECT_TRUE(
      wait_until([&] { return is_at_rest(computes) && is_at_rest(answers); }, 10s * kSlowdown));
  const std::string prompt = letters(1000, 300);
  EXPECT_EQ(choices_of(answer(proxy.server(), prompt)), choices_of(answer(computes, prompt)));
  EXPECT_LT(Clock::now() - left, 15s * kSlowdown);
}

// Elsewhere servers of different layouts became slow, or died, with 128 requests at once, or refused
// each other when a client already waited.
TEST(CommandDisaggregatedFaults, ManyPromptsGoBetweenLayoutsAtOnce) {
  const base::ScratchDirectory files;
  std::ofstream(files.file("tp.yaml"))
      << "tensor_parallel_size: 2\nmoe_expert_parallel_size: 1\nmoe_tensor_parallel_size: 2\n";
  std::ofstream(files.file("ep.yaml"))
      << "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\nenable_attention_dp: true\n";
  Server computes(small_model(), options_of("prefill", {"--config", files.file("tp.yaml")}));
  Server answers(small_model(), options_of("decode", {"--config", files.file("ep.yaml")}));
  ASSERT_GT(computes.port(), 0) << computes.command().err();
  ASSERT_GT(answers.port(), 0) << answers.command().err();
  const Proxy proxy(computes, answers, "generation_first");
  ASSERT_GT(proxy.server().port(), 0);
  constexpr unsigned kRequests = 128;
  const auto ask_all = [](const Server& server) {
    std::vector<std::future<std::string>> asked;
    for (unsigned i = 0; i < kRequests; ++i) {
      asked.push_back(std::async(std::launch::async, [&server, i] {
        return choices_of(answer(server, letters(i, 300 + static_cast<int>(i))));
      }));
    }
    std::vector<std::string> all;
    for (auto& each : asked) all.push_back(each.get());
    return all;
  };
  const std::vector<std::string> got = ask_all(proxy.server());
  EXPECT_GT(proxy.divided(answers), kRequests / 2);
  EXPECT_GT(metric_at(answers.port(), "wideep_prompt_transfer_pages_total"), 0);
  for (Server* each : {&computes, &answers}) {
    EXPECT_THAT(own_deaths(each->command().err()), IsEmpty());
  }
  Server alone(small_model(), {"--ranks", "1", "--threads-per-rank", "1"});
  ASSERT_GT(alone.port(), 0) << alone.command().err();
  EXPECT_EQ(got, ask_all(alone));
}

}  // namespace
}  // namespace wideep::tests
