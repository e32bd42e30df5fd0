// SPDX-License-Identifier: Apache-2.0
//
// KV events of `wideep serve`, over HTTP: what readers see when processes die.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <set>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "http/http_client_testing.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using server::ask;
using server::Reply;

constexpr const char* kConfig = R"({"enable_kv_cache_events": true, "publisher": "null"})";

uint64_t sequence_of_snapshot(const Server& server) {
  const Reply reply = ask(server.port(), "GET", "/v1/kv_events/snapshot?tokens=0");
  return reply.status == 200 ? reply.body_json()["sequence"].get<uint64_t>() : 0;
}

Reply events_after(const Server& server, uint64_t sequence) {
  return ask(server.port(), "GET", fmt::format("/v1/kv_events?after={}&wait=20", sequence));
}

TEST(CommandKvEvents, WhoDiesKnowsNothing) {
  Server server(small_model(), {"--ranks", "2", "--kv-events-config", kConfig});
  ASSERT_GT(server.port(), 0) << server.command().err();
  const uint64_t begin = sequence_of_snapshot(server);
  ASSERT_GT(begin, 0u);
  ::kill(process_named(server, "wideep-rank-1"), SIGKILL);
  bool is_cleared = false;
  for (uint64_t after = begin; !is_cleared;) {
    const Reply reply = events_after(server, after);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const json body = reply.body_json();
    ASSERT_GT(body["batches"].size(), 0u);
    after = body["sequence"];
    for (const json& each : body["batches"]) {
      is_cleared |=
          each["data_parallel_rank"] == 1 && each["events"][0]["type"] == "AllBlocksCleared";
    }
  }
  ::kill(process_named(server, "wideep-front"), SIGKILL);
  ASSERT_TRUE(
      wait_until([&] { return sequence_of_snapshot(server) > begin + 1000; }, 20s * kSlowdown));
  EXPECT_EQ(events_after(server, begin).status, 410);
}

// The stages of a pipeline cannot go on without one of their ranks: all begin with empty caches.
TEST(CommandKvEvents, WhoBeginsAnewKnowsNothing) {
  const base::ScratchDirectory files;
  std::ofstream(files.file("config.yaml"))
      << "tensor_parallel_size: 2\npipeline_parallel_size: 2\nenable_attention_dp: true\n"
         "moe_expert_parallel_size: 2\n";
  Server server(small_model(),
                {"--config", files.file("config.yaml"), "--kv-events-config", kConfig});
  ASSERT_GT(server.port(), 0) << server.command().err();
  uint64_t after = sequence_of_snapshot(server);
  ASSERT_GT(after, 0u);
  ::kill(process_named(server, "wideep-rank-3"), SIGKILL);
  std::set<int> cleared;
  while (cleared.size() < 2) {
    const Reply reply = events_after(server, after);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const json body = reply.body_json();
    ASSERT_GT(body["batches"].size(), 0u);
    after = body["sequence"];
    for (const json& each : body["batches"]) {
      if (each["events"][0]["type"] == "AllBlocksCleared")
        cleared.insert(each["data_parallel_rank"].get<int>());
    }
  }
}

TEST(CommandKvEvents, AConfigurationIsReadBeforeTheModel) {
  const CommandEnd end = run_command({.arguments = {"serve", "--model", small_model(),
                                                    "--kv-events-config", R"({"enabled": true})"}});
  expect_error(end, 2, {"--kv-events-config", "enabled", "enable_kv_cache_events"});
}

TEST(CommandKvEvents, WhatWouldHaveNoEffectIsRefused) {
  const auto serve = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"serve", "--model", small_model()});
    return run_command({.arguments = more});
  };
  expect_error(serve({"--kv-events-config", kConfig, "--enable-return-routed-experts"}), 2,
               {"--kv-events-config: has no effect", "--enable-return-routed-experts"});
  expect_error(serve({"--prompt-cache-warm", "prompts.jsonl", "--enable-return-routed-experts"}), 2,
               {"--prompt-cache-warm: has no effect"});
  expect_error(serve({"--prompt-cache-export-dir", "/tmp"}), 2,
               {"--prompt-cache-export-dir: has no effect", "--prompt-cache-dir"});
}

}  // namespace
}  // namespace wideep::tests
