// SPDX-License-Identifier: Apache-2.0
// --expert-memory: a model of which only a part of the experts is in memory has the same answers,
// and what the disk has damaged ends the requests that need it, and only those.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kReference = WIDEEP_SOURCE_DIR "/models/reference";

class ExpertMemory : public testing::Test {
 protected:
  std::string cache() const { return scratch_.file("cache"); }
  std::vector<std::string> with(const std::string& memory, std::vector<std::string> more) const {
    more.insert(more.end(), {"--packed-cache", cache(), "--expert-memory", memory});
    return more;
  }
  // Where the packed weights are, once there are some.
  std::string packed() const {
    return std::filesystem::directory_iterator(cache())->path().string();
  }
  // Changes a byte of an expert's record, and changes it back when called again.
  void flip(int layer, int expert) const {
    const json index = json::parse(std::ifstream(packed() + "/index.json"));
    const std::string begin = fmt::format("model.layers.{}.mlp.experts.{} ", layer, expert);
    for (const auto& [name, part] : index["parts"].items()) {
      if (!name.starts_with(begin)) continue;
      const int fd = ::open((packed() + "/records").c_str(), O_RDWR | O_CLOEXEC);
      const auto at = part[0].get<off_t>() + 100;
      char byte = 0;
      ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
      byte = static_cast<char>(byte ^ 0x40);
      ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
      ::close(fd);
      return;
    }
    FAIL() << "no part " << begin;
  }

  const base::ScratchDirectory scratch_;
};

std::vector<json> digests_of(const CommandOptions& options) {
  const CommandEnd end = run_command(options);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  std::vector<json> digests;
  const json report = json::parse(end.out);
  for (const json& result : report["results"]) {
    digests.push_back(result["logits_digest"]);
    EXPECT_TRUE(digests.back().is_string());
  }
  return digests;
}

TEST_F(ExpertMemory, AnswersAreThoseOfAllInMemory) {
  const std::string prompts = scratch_.file("prompts.jsonl");
  {
    std::ofstream file(prompts);
    for (int i = 0; i < 7; ++i) {
      file << json{{"prompt", fmt::format("{} dogs, {}", i, std::string(size_t(i) * 9, 'a'))}}
           << "\n";
    }
  }
  const std::string drafts = scratch_.file("drafts.yaml");
  std::ofstream(drafts) << "enable_attention_dp: true\n"
                           "tensor_parallel_size: 2\n"
                           "moe_expert_parallel_size: 2\n"
                           "max_num_tokens: 64\n"
                           "speculative_config: {decoding_type: MTP, max_draft_len: 2}\n";
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"generate",        "--model",      kReference,
                                    "--prompts",       prompts,        "--json",
                                    "--logits-digest", "--max-tokens", "16"};
    all.insert(all.end(), more.begin(), more.end());
    return digests_of({.arguments = all});
  };
  const std::vector<json> expected = run({});
  ASSERT_EQ(expected.size(), 7u);
  for (const char* memory : {"5%", "30%", "90%", "100%", "1M"}) {
    SCOPED_TRACE(memory);
    EXPECT_EQ(run(with(memory, {})), expected);
    EXPECT_EQ(run(with(memory, {"--ranks", "4", "--prefill-chunk", "5"})), expected);
    EXPECT_EQ(run(with(memory, {"--config", drafts})), expected);
  }
  // What four ranks have found popular is read by one.
  EXPECT_TRUE(std::filesystem::exists(packed() + "/rank2.load"));
  std::ofstream(packed() + "/rank1.load") << "{";
  const CommandEnd end = run_command(generate(kReference, with("50%", {})));
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.err, HasSubstr("rank1.load"));
  EXPECT_THAT(end.err, HasSubstr("96 of 192 experts in memory"));
}

TEST_F(ExpertMemory, WhatDoesNotGoTogetherIsRefused) {
  const auto refused = [&](const std::vector<std::string>& more) {
    return run_command(generate(small_model(), more));
  };
  expect_refused(refused({"--expert-memory", "half"}), {"--expert-memory", "12G", "'half'"});
  expect_refused(refused({"--expert-memory", "50%"}), {"--expert-memory", "--packed-cache"});
  const std::string config = scratch_.file("config.yaml");
  for (const char* text :
       {"tensor_parallel_size: 2\nenable_attention_dp: false\n", "pipeline_parallel_size: 2\n",
        "tensor_parallel_size: 2\nmoe_tensor_parallel_size: 2\n"}) {
    SCOPED_TRACE(text);
    std::ofstream(config) << text;
    expect_refused(refused(with("50%", {"--config", config})),
                   {"--expert-memory", "expected one rank, or enable_attention_dp: true"});
  }
  expect_error(refused(with("100", {})), 2, {"expected at least", "for 2 of the 32 experts"});
}

// A page is 16 tokens or more; the prompts have several, with the same beginning.
TEST_F(ExpertMemory, ADamagedRecordEndsTheRequestsThatNeedItAndOnlyThose) {
  std::vector<std::string> prompts;
  for (char letter = 'a'; letter <= 'z'; ++letter) prompts.emplace_back(1, letter);
  for (char letter = 'a'; letter <= 'f'; ++letter) {
    prompts.push_back(std::string(150, 'q') + std::string(60, letter));
  }
  const auto ask = [&](const Server& server) {
    std::vector<server::Reply> replies(prompts.size());
    std::vector<std::thread> threads;
    for (size_t first = 0; first < 4; ++first) {
      threads.emplace_back([&, first] {
        for (size_t i = first; i < prompts.size(); i += 4) {
          replies[i] = server.complete({{"prompt", prompts[i]}, {"max_tokens", 3}});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return replies;
  };
  const auto text_of = [](const server::Reply& reply) {
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.body_json()["choices"][0]["text"].get<std::string>();
  };
  std::vector<std::string> expected;
  {
    const Server whole(small_model(), with("100%", {"--ranks", "2"}));
    for (const server::Reply& reply : ask(whole)) expected.push_back(text_of(reply));
  }
  for (const int layer : {1, 2}) {
    const Server server(small_model(), with("40%", {"--ranks", "2"}));
    ASSERT_GT(server.port(), 0);
    // All of them are damaged until a request fails and another one does not.
    int failed = 0;
    for (int expert = 0; expert < 16 && failed == 0; ++expert) {
      flip(layer, expert);
      const std::vector<server::Reply> replies = ask(server);
      for (size_t i = 0; i < replies.size(); ++i) {
        if (replies[i].status == 200) {
          EXPECT_EQ(text_of(replies[i]), expected[i]) << prompts[i];
          continue;
        }
        ++failed;
        EXPECT_EQ(replies[i].status, 500);
        EXPECT_EQ(replies[i].body_json()["error"]["code"], "expert_not_read");
        EXPECT_THAT(replies[i].body, HasSubstr("an expert that this request needs could not be"));
      }
      EXPECT_LT(failed, static_cast<int>(replies.size()));
      flip(layer, expert);
    }
    EXPECT_GT(failed, 0);
    // Ranks tell once a second.
    EXPECT_TRUE(wait_until(
        [&] {
          ask(server);
          return server.metric("wideep_experts_lost_total{ep_rank=\"0\"}") +
                     server.metric("wideep_experts_lost_total{ep_rank=\"1\"}") >=
                 1.0;
        },
        std::chrono::seconds(20)));
    EXPECT_GT(server.metric("wideep_experts_chosen_resident_total{ep_rank=\"0\"}"), 0.0);
    EXPECT_GT(server.metric("wideep_expert_read_bytes_total{ep_rank=\"1\"}"), 0.0);
    // Nothing of what was wrong is kept.
    const std::vector<server::Reply> replies = ask(server);
    for (size_t i = 0; i < replies.size(); ++i) EXPECT_EQ(text_of(replies[i]), expected[i]);
  }
}

}  // namespace
}  // namespace wideep::tests
