// SPDX-License-Identifier: Apache-2.0
//
// Servers with a role (docs/serve.md): what a router is told of them, while their role changes and
// their processes die.
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>

#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "http/http_client_testing.h"
#include "store/page_peer.h"
#include "store/peer_place.h"

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
  return place.ok() && (*place)->states(std::vector<std::string>{"1"}).ok();
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

}  // namespace
}  // namespace wideep::tests
