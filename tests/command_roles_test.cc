// SPDX-License-Identifier: Apache-2.0
//
// Servers with a role (docs/serve.md): what a router is told of them, while their role changes and
// their processes die.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "http/http_client_testing.h"
#include "service_nodes.h"
#include "store/page_peer.h"
#include "store/peer_place.h"
#include "store/record.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using server::ask;
using server::Reply;
using testing::HasSubstr;

json role_of(const Server& server) {
  const Reply reply = ask(server.port(), "GET", "/v1/pd_role");
  return reply.status == 200 ? reply.body_json() : json::object();
}

Reply switch_role(const Server& server, const char* name) {
  return ask(server.port(), "POST", "/pd_role_switch", json({{"new_role", name}}).dump());
}

// Whether the server that its opaque state names knows whoever has its token.
bool serves_pages(const json& state) {
  const auto peer = store::parse_page_peer(state["encoded_opaque_state"].get<std::string>());
  if (!peer.ok()) return false;
  const auto place = store::PeerPlace::make(
      {.host = peer->host, .token = peer->token, .record_class = peer->record_class});
  return place.ok() && (*place)->state("1").ok();
}

TEST(CommandRoles, OutliveTheProcessThatServes) {
  Server server(small_model(), {"--ranks", "2", "--role", "prefill"});
  ASSERT_GT(server.port(), 0) << server.command().err();
  ASSERT_TRUE(wait_until([&] { return role_of(server)["seen_by"] == 2; }, 20s * kSlowdown));
  const json first = role_of(server);
  EXPECT_EQ(first["role"], "prefill");
  EXPECT_EQ(first["epoch"], 1);
  EXPECT_TRUE(serves_pages(first)) << first;
  const std::string answer = server.complete({{"prompt", "The cat"}}).body_json()["choices"].dump();

  const Reply switched = switch_role(server, "decode");
  ASSERT_EQ(switched.status, 200) << switched.body;
  EXPECT_EQ(switched.body_json()["previous_role"], "prefill");
  EXPECT_EQ(switched.body_json()["epoch"], 2);
  EXPECT_EQ(switched.body_json()["seen_by"], 2);

  ::kill(process_named(server, "wideep-front"), SIGKILL);
  ASSERT_TRUE(wait_until([&] { return role_of(server)["seen_by"] == 2; }, 20s * kSlowdown));
  const json second = role_of(server);
  EXPECT_EQ(second["role"], "decode");
  EXPECT_EQ(second["epoch"], 2);
  for (const char* same : {"instance", "encoded_opaque_state", "record_class"}) {
    EXPECT_EQ(second[same], first[same]) << same;
  }
  EXPECT_TRUE(serves_pages(second)) << second;

  ::kill(process_named(server, "wideep-rank-1"), SIGKILL);
  const Reply again = switch_role(server, "both");
  ASSERT_EQ(again.status, 200) << again.body;
  EXPECT_EQ(again.body_json()["epoch"], 3);
  EXPECT_EQ(server.complete({{"prompt", "The cat"}}).body_json()["choices"].dump(), answer);
}

// The second turn of a conversation that the other server has answered: of its prompt only what is
// new is computed, and the token is that server's.
TEST(CommandRoles, APromptIsComputedFromPagesOfTheServerThatAnswers) {
  Server decode(small_model(), {"--ranks", "1", "--role", "decode"});
  Server prefill(small_model(), {"--ranks", "2", "--role", "prefill"});
  ASSERT_GT(decode.port(), 0) << decode.command().err();
  ASSERT_GT(prefill.port(), 0) << prefill.command().err();
  std::string turn;
  while (turn.size() < 400) turn += "The cat sat on mat " + std::to_string(turn.size()) + ". ";
  ASSERT_EQ(decode.complete({{"prompt", turn}}).status, 200);
  const auto pages = static_cast<double>(turn.size() / store::kPageTokens);
  // They are kept beside what is computed, and told once a second.
  ASSERT_TRUE(wait_until(
      [&] { return decode.metric("wideep_prompt_cache_taken_total{tier=\"host\"}") >= pages; },
      20s * kSlowdown));

  const std::string second = turn + "And then it went away, as cats do.";
  const json params = {{"request_type", "context_only"},
                       {"disagg_request_id", 7},
                       {"encoded_opaque_state", role_of(decode)["encoded_opaque_state"]}};
  const Reply context = prefill.complete({{"prompt", second}, {"disaggregated_params", params}});
  ASSERT_EQ(context.status, 200) << context.body;
  EXPECT_EQ(prefill.metric("wideep_prompt_transfer_pages_total"), pages);
  EXPECT_EQ(prefill.metric("wideep_prompt_transfers_total{outcome=\"whole\"}"), 1);
  const Reply own = decode.complete({{"prompt", second}, {"max_tokens", 1}});
  EXPECT_EQ(context.body_json()["choices"][0]["text"], own.body_json()["choices"][0]["text"]);

  // And the other way: what is new comes from there.
  const std::string third = second + std::string(130, '.');
  json back = {{"request_type", "context_only"}, {"disagg_request_id", 8}};
  const Reply computed = prefill.complete({{"prompt", third}, {"disaggregated_params", back}});
  ASSERT_EQ(computed.status, 200) << computed.body;
  back = computed.body_json()["choices"][0]["disaggregated_params"];
  back["request_type"] = "generation_only";
  const Reply answer = decode.complete({{"prompt", third}, {"disaggregated_params", back}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_GT(decode.metric("wideep_prompt_transfer_pages_total"), 0);
  EXPECT_LE(decode.metric("wideep_prompt_transfer_pages_total"), 3);
}

TEST(CommandRoles, APageAddressThatIsTakenIsAnErrorAtTheStart) {
  Server server(small_model(), {"--ranks", "1", "--role", "both"});
  ASSERT_GT(server.port(), 0) << server.command().err();
  const auto peer =
      store::parse_page_peer(role_of(server)["encoded_opaque_state"].get<std::string>());
  ASSERT_TRUE(peer.ok());
  Command other({.arguments = {"serve", "--model", small_model(), "--port", "0", "--ranks", "1",
                               "--page-address", peer->host.text()}});
  const CommandEnd end = other.wait();
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("--page-address: cannot listen on " + peer->host.text()));
}

// Prompts of 3 pages and some tokens, of which ranks of both nodes compute some.
class PagesOfNodes {
 public:
  PagesOfNodes() : prefill_(2, small_model(), arguments()) {}
  ServiceNodes& prefill() { return prefill_; }
  Server& decode() { return decode_; }

  // All at once, so that they are dealt out.
  void expect_all_pages_come() {
    const double sent_before = std::max(sent(), 0.0);
    std::vector<std::string> prompts;
    for (int i = 0; i < kPrompts; ++i) prompts.emplace_back(200, static_cast<char>('A' + next_++));
    std::vector<std::future<Reply>> computed;
    for (const std::string& each : prompts) {
      computed.push_back(std::async(std::launch::async, [this, &each] {
        return prefill_.server().complete(
            {{"prompt", each}, {"disaggregated_params", {{"request_type", "context_only"}}}});
      }));
    }
    std::vector<json> params;
    for (auto& each : computed) {
      const Reply reply = each.get();
      ASSERT_EQ(reply.status, 200) << reply.body;
      params.push_back(reply.body_json()["choices"][0]["disaggregated_params"]);
      params.back()["request_type"] = "generation_only";
    }
    // Ranks say what they have sent once a second.
    ASSERT_TRUE(wait_until([&] { return sent() > sent_before; }, 20s * kSlowdown));
    const double before = decode_.metric(kWhole);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const json body = {{"prompt", prompts[i]}};
      json divided = body;
      divided["disaggregated_params"] = params[i];
      const Reply reply = decode_.complete(divided);
      ASSERT_EQ(reply.status, 200) << reply.body;
      EXPECT_EQ(reply.body_json()["choices"][0]["text"],
                prefill_.server().complete(body).body_json()["choices"][0]["text"]);
    }
    EXPECT_EQ(decode_.metric(kWhole), before + kPrompts);
  }
  double sent() {
    return prefill_.server().metric("wideep_prompt_cache_taken_total{tier=\"front\"}");
  }

 private:
  static constexpr int kPrompts = 8;
  static constexpr const char* kWhole = "wideep_prompt_transfers_total{outcome=\"whole\"}";
  std::vector<std::string> arguments() const {
    std::ofstream(directory_.file("config.yaml"))
        << "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\nenable_attention_dp: true\n";
    return {"--config",
            directory_.file("config.yaml"),
            "--threads-per-rank",
            "1",
            "--role",
            "prefill",
            "--host-cache-size",
            "64M"};
  }

  base::ScratchDirectory directory_;
  ServiceNodes prefill_;
  Server decode_{small_model(), {"--ranks", "1", "--role", "decode"}};
  int next_ = 0;
};

TEST(CommandRoles, OverNodesTheOneThatServesHasThePagesOfAll) {
  PagesOfNodes servers;
  ASSERT_GT(servers.prefill().port(), 0) << servers.prefill().server().command().err();
  ASSERT_GT(servers.decode().port(), 0) << servers.decode().command().err();
  ASSERT_NO_FATAL_FAILURE(servers.expect_all_pages_come());
  // Whoever takes their places hears of it, too: a process that serves counts anew.
  ::kill(process_named(servers.prefill().server(), "wideep-front"), SIGKILL);
  ASSERT_TRUE(wait_until([&] { return servers.sent() <= 0; }, 20s * kSlowdown));
  ASSERT_NO_FATAL_FAILURE(servers.expect_all_pages_come());
  ::kill(servers.prefill().processes("wideep-rank-1").front(), SIGKILL);
  const auto have_both_again = [&] {
    const Server& server = servers.prefill().server();
    return server.metric("wideep_recoveries_total") > 0 &&
           server.metric("wideep_ep_active_ranks") == 2;
  };
  ASSERT_TRUE(wait_until(have_both_again, 30s * kSlowdown));
  ASSERT_NO_FATAL_FAILURE(servers.expect_all_pages_come());
  servers.prefill().end();
}

}  // namespace
}  // namespace wideep::tests
