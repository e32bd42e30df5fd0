// SPDX-License-Identifier: Apache-2.0
//
// Prompts that outlive the service: kept in a directory, found after all processes were killed; in
// the memory of the node, found after the rank's own cache has given them up; for a tenant's salt
// alone. What is damaged or cannot be written is computed, and the service goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "command_server.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kReference = WIDEEP_SOURCE_DIR "/models/reference";

// Some hundred tokens, different for each number from the first on.
std::string prompt(int number) {
  std::string text = std::to_string(number);
  for (int i = 0; i < 90; ++i) text += " word" + std::to_string(number * 131 + i * 17);
  return text;
}

struct Answer {
  std::string text;
  int prompt = 0, cached = 0;  // tokens
};

Answer ask(const Server& server, const std::string& prompt, const std::string& salt = "") {
  json body = {{"prompt", prompt}, {"max_tokens", 8}};
  if (!salt.empty()) body["cache_salt"] = salt;
  const server::Reply reply = server.complete(body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  const json object = json::parse(reply.body);
  const json& usage = object["usage"];
  return {.text = object["choices"][0]["text"],
          .prompt = usage["prompt_tokens"],
          .cached = usage["prompt_tokens_details"]["cached_tokens"]};
}

// Full pages of a prompt, but for the page of its last token.
int kept_tokens(const Answer& answer) { return (answer.prompt - 1) / 64 * 64; }

class CommandPromptCache : public ::testing::Test {
 protected:
  std::vector<std::string> with_directory(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--prompt-cache-dir", files_.file("prompts"), "--prompt-cache-bytes",
                             "64MiB", "--threads-per-rank", "1"});
    return more;
  }
  // Until so many records are in the directory.
  static bool has_written(const Server& server, double records) {
    return wait_until(
        [&] { return server.metric("wideep_prompt_cache_taken_total{tier=\"disk\"}") >= records; },
        20s * kSlowdown);
  }

  const base::ScratchDirectory files_;
};

void kill_everything(Server& server) {
  ::kill(-server.command().pid(), SIGKILL);
  EXPECT_TRUE(wait_until([&] { return server.command().ranks().empty(); }, 10s));
}

TEST_F(CommandPromptCache, PromptsSurviveTheDeathOfAllProcesses) {
  Answer before;
  {
    Server server(kReference, with_directory({"--ranks", "2"}));
    ASSERT_GT(server.port(), 0) << server.command().err();
    before = ask(server, prompt(1));
    EXPECT_EQ(before.cached, 0);
    ASSERT_GT(kept_tokens(before), 128);
    ASSERT_TRUE(has_written(server, kept_tokens(before) / 64)) << server.command().err();
    kill_everything(server);
  }
  Server server(kReference, with_directory());  // another layout, too
  ASSERT_GT(server.port(), 0) << server.command().err();
  const Answer after = ask(server, prompt(1));
  EXPECT_EQ(after.text, before.text);
  EXPECT_EQ(after.cached, kept_tokens(before));
  EXPECT_EQ(ask(server, prompt(2)).cached, 0);
}

TEST_F(CommandPromptCache, GenerateReadsWhatItHasWritten) {
  const auto generate = [&] {
    CommandOptions options{.arguments = {"generate", "--model", kReference, "--prompt", prompt(3),
                                         "--max-tokens", "4", "--json"}};
    const std::vector<std::string> more = with_directory();
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    return run_command(options);
  };
  const CommandEnd first = generate();
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_FALSE(std::filesystem::is_empty(files_.file("prompts")));
  const CommandEnd second = generate();
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const json a = json::parse(first.out), b = json::parse(second.out);
  EXPECT_EQ(a["results"][0]["text"], b["results"][0]["text"]);
}

// The cache of the rank has room for one prompt, the memory of the node for all.
TEST_F(CommandPromptCache, TheNodesMemoryHasWhatTheRankHasGivenUp) {
  std::ofstream(files_.file("config.yaml")) << "kv_cache_config: {max_tokens: 640}\n";
  Server server(kReference, {"--config", files_.file("config.yaml"), "--host-cache-size", "64MiB",
                             "--context", "640"});
  ASSERT_GT(server.port(), 0) << server.command().err();
  const Answer first = ask(server, prompt(1));
  ASSERT_TRUE(wait_until(
      [&] {
        return server.metric("wideep_prompt_cache_taken_total{tier=\"host\"}") >=
               kept_tokens(first) / 64;
      },
      20s * kSlowdown));
  for (int other = 2; other < 5; ++other) ask(server, prompt(other));
  const Answer again = ask(server, prompt(1));
  EXPECT_EQ(again.text, first.text);
  EXPECT_EQ(again.cached, kept_tokens(first));
}

TEST_F(CommandPromptCache, TenantsAreKeptApart) {
  Server server(kReference, with_directory());
  ASSERT_GT(server.port(), 0) << server.command().err();
  const Answer own = ask(server, prompt(1), "a tenant");
  EXPECT_EQ(own.cached, 0);
  EXPECT_EQ(ask(server, prompt(1), "a tenant").cached, kept_tokens(own));
  EXPECT_EQ(ask(server, prompt(1), "another").cached, 0);
  EXPECT_EQ(ask(server, prompt(1)).cached, 0);
}

// Every segment is damaged somewhere: what is read is computed instead.
TEST_F(CommandPromptCache, DamagedRecordsAreComputed) {
  Answer before;
  {
    Server server(kReference, with_directory());
    ASSERT_GT(server.port(), 0) << server.command().err();
    before = ask(server, prompt(1));
    ASSERT_TRUE(has_written(server, kept_tokens(before) / 64));
    kill_everything(server);
  }
  for (const auto& entry : std::filesystem::directory_iterator(files_.file("prompts"))) {
    if (!entry.is_regular_file()) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    for (std::uintmax_t at = 10'000; at + 64 < entry.file_size(); at += 50'000) {
      file.seekp(static_cast<std::streamoff>(at));
      file.write(std::string(64, 'x').data(), 64);
    }
  }
  Server server(kReference, with_directory());
  ASSERT_GT(server.port(), 0) << server.command().err();
  const Answer after = ask(server, prompt(1));
  EXPECT_EQ(after.text, before.text);
  EXPECT_LT(after.cached, kept_tokens(before));
}

TEST_F(CommandPromptCache, WhatCannotBeIsSaidBeforeWeightsAreLoaded) {
  const auto serve = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"serve", "--port", "0", "--model", kReference});
    return run_command({.arguments = more});
  };
  std::ofstream(files_.file("file")) << "no directory\n";
  expect_refused(serve({"--prompt-cache-dir", files_.file("file")}), {files_.file("file")});
  expect_refused(serve({"--prompt-cache-bytes", "64MiB"}), {"--prompt-cache-dir"});
  std::ofstream(files_.file("off.yaml")) << "kv_cache_config: {enable_block_reuse: false}\n";
  expect_refused(
      serve({"--prompt-cache-dir", files_.file("prompts"), "--config", files_.file("off.yaml")}),
      {"enable_block_reuse"});
}

}  // namespace
}  // namespace wideep::tests
