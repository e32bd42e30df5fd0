// SPDX-License-Identifier: Apache-2.0
#include "server/warm_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;
using testing::MatchesRegex;

// As many tokens as "prompt" says.
Parsed<CachePrompt> prompt_of(const ordered_json& body) {
  if (!body.is_object() || !body.contains("prompt")) return HttpError{.message = "no prompt"};
  const size_t count = body["prompt"].get<size_t>();
  return CachePrompt{.tokens = std::vector<int32_t>(count, 3),
                     .salt = body.value("cache_salt", "")};
}

class WarmTestBackend : public Backend {
 public:
  int64_t submit(engine::Request request, OnToken on_token, OnExperts, OnProgress) override {
    requests.push_back(std::move(request));
    running[next_] = std::move(on_token);
    return next_++;
  }
  void cancel(int64_t id) override {
    running.erase(id);
    ++cancelled;
  }
  void cut(int64_t) override {}
  std::optional<double> computes_since() const override { return {}; }

  void end(int64_t id, engine::FinishReason reason, int cached_tokens = 0) {
    const OnToken on_token = running.extract(id).mapped();
    on_token({.finish_reason = reason, .cached_tokens = cached_tokens});
  }

  std::vector<engine::Request> requests;
  std::map<int64_t, OnToken> running;
  int cancelled = 0;

 private:
  int64_t next_ = 100;
};

std::vector<CachePrompt> prompts(size_t count) {
  std::vector<CachePrompt> all(count);
  for (size_t i = 0; i < count; ++i) {
    all[i] = {.tokens = std::vector<int32_t>(10 * (i + 1), 3), .salt = i == 1 ? "tenant" : ""};
  }
  return all;
}

TEST(ReadWarmPromptsTest, ALineIsAPrompt) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.path() + "/warm.jsonl";
  ASSERT_TRUE(
      formats::write_file(path, "{\"prompt\": 3}\n\n{\"prompt\": 4, \"cache_salt\": \"a\"}").ok());
  const auto read = read_warm_prompts(path, prompt_of);
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].tokens.size(), 3u);
  EXPECT_EQ((*read)[0].salt, "");
  EXPECT_EQ((*read)[1].tokens.size(), 4u);
  EXPECT_EQ((*read)[1].salt, "a");
}

TEST(ReadWarmPromptsTest, ErrorsNameTheLine) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.path() + "/warm.jsonl";
  const std::pair<const char*, const char*> wrong[] = {
      {"", "warm.jsonl: expected a prompt on each line, found no line"},
      {"\n \n", "found no line"},
      {"{\"prompt\": 3}\n{\"prompt\"", "warm.jsonl:2:1:"},
      {"{\"prompt\": 3}\n\n{\"other\": 3}", "warm.jsonl:3: no prompt"},
      {"[1]", "warm.jsonl:1: no prompt"},
      {"{\"response_id\": \"resp_1\"}", "warm.jsonl:1: response_id: a server has no stored"},
  };
  for (const auto& [content, expected] : wrong) {
    ASSERT_TRUE(formats::write_file(path, content).ok());
    const auto read = read_warm_prompts(path, prompt_of);
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidInput);
    EXPECT_THAT(read.status().message(), HasSubstr(expected));
  }
  EXPECT_THAT(read_warm_prompts(scratch.path() + "/none", prompt_of).status().message(),
              HasSubstr("/none"));
}

TEST(WarmUpTest, FewRunAtATime) {
  WarmTestBackend backend;
  std::vector<std::string> lines;
  WarmUp warm_up(backend, prompts(6), [&](const std::string& line) { lines.push_back(line); });
  warm_up.go_on(0);
  ASSERT_EQ(backend.requests.size(), 4u);
  EXPECT_EQ(backend.requests[0].max_tokens, 1);
  EXPECT_EQ(backend.requests[0].salt, "");
  EXPECT_EQ(backend.requests[1].salt, "tenant");
  EXPECT_EQ(backend.requests[1].prompt.size(), 20u);
  warm_up.go_on(0);
  EXPECT_EQ(backend.requests.size(), 4u);
  backend.end(101, engine::FinishReason::kLength, 16);
  EXPECT_EQ(backend.requests.size(), 5u);
  backend.end(100, engine::FinishReason::kStop);
  EXPECT_EQ(backend.requests.size(), 6u);
  backend.end(104, engine::FinishReason::kFailed);
  backend.end(102, engine::FinishReason::kLength);
  backend.end(103, engine::FinishReason::kLength);
  EXPECT_TRUE(lines.empty());
  backend.end(105, engine::FinishReason::kLength, 48);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], MatchesRegex("warmed 5 prompts, 160 tokens \\(64 cached\\) in [0-9.]+ s; 1 "
                                     "failed"));
  warm_up.go_on(0);
  EXPECT_EQ(backend.requests.size(), 6u);
}

TEST(WarmUpTest, ItIsBehindClients) {
  WarmTestBackend backend;
  std::vector<std::string> lines;
  WarmUp warm_up(backend, prompts(3), [&](const std::string& line) { lines.push_back(line); });
  warm_up.go_on(/*clients_running=*/2);
  EXPECT_EQ(backend.requests.size(), 1u);
  backend.end(100, engine::FinishReason::kLength);
  EXPECT_EQ(backend.requests.size(), 2u);
  EXPECT_EQ(backend.running.size(), 1u);
  warm_up.go_on(0);
  EXPECT_EQ(backend.running.size(), 2u);
  backend.end(101, engine::FinishReason::kLength);
  backend.end(102, engine::FinishReason::kLength);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], MatchesRegex("warmed 3 prompts, 60 tokens \\(0 cached\\) in [0-9.]+ s"));
}

// As a server that drains does: what runs may end, and no more begins.
TEST(WarmUpTest, ItMayPause) {
  WarmTestBackend backend;
  std::vector<std::string> lines;
  WarmUp warm_up(backend, prompts(6), [&](const std::string& line) { lines.push_back(line); });
  warm_up.go_on(0);
  warm_up.pause();
  for (int64_t id = 100; id < 104; ++id) backend.end(id, engine::FinishReason::kLength);
  EXPECT_EQ(backend.requests.size(), 4u);
  EXPECT_TRUE(lines.empty());
  warm_up.go_on(0);
  EXPECT_EQ(backend.running.size(), 2u);
  backend.end(104, engine::FinishReason::kLength);
  backend.end(105, engine::FinishReason::kLength);
  EXPECT_EQ(lines.size(), 1u);
}

TEST(WarmUpTest, ItStopsWithTheServer) {
  WarmTestBackend backend;
  WarmUp warm_up(backend, prompts(9), [](const std::string& line) { ADD_FAILURE() << line; });
  warm_up.go_on(0);
  warm_up.stop();
  EXPECT_EQ(backend.cancelled, 4);
  EXPECT_TRUE(backend.running.empty());
  warm_up.go_on(0);
  EXPECT_EQ(backend.requests.size(), 4u);
}

}  // namespace
}  // namespace wideep::server
