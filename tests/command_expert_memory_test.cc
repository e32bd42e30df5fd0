// SPDX-License-Identifier: Apache-2.0
// --expert-memory: a model of which only a part of the experts is in memory has the same answers,
// and what the disk has damaged or lost ends the requests that need it, and only those. Nodes of
// which none could hold all experts hold them together.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "faulty_file.h"
#include "formats/files.h"
#include "service_nodes.h"

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
  // Of all experts of the model, as they are packed.
  uint64_t expert_bytes() const {
    const json index = json::parse(std::ifstream(packed() + "/index.json"));
    uint64_t bytes = 0;
    for (const auto& [name, part] : index["parts"].items()) {
      if (name.find(".mlp.experts.") != name.npos) bytes += part[1].get<uint64_t>();
    }
    return bytes;
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
std::vector<std::string> many_prompts() {
  std::vector<std::string> prompts;
  for (char letter = 'a'; letter <= 'z'; ++letter) prompts.emplace_back(1, letter);
  for (char letter = 'a'; letter <= 'f'; ++letter) {
    prompts.push_back(std::string(150, 'q') + std::string(60, letter));
  }
  return prompts;
}

// All of them, four at a time.
std::vector<server::Reply> ask_all(const Server& server) {
  const std::vector<std::string> prompts = many_prompts();
  std::vector<server::Reply> replies(prompts.size());
  std::vector<std::thread> threads;
  for (size_t first = 0; first < 4; ++first) {
    threads.emplace_back([&, first] {
      for (size_t i = first; i < prompts.size(); i += 4) {
        replies[i] = server.complete({{"prompt", prompts[i]}, {"max_tokens", 3}, {"logprobs", 2}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return replies;
}

// Text and probabilities of its tokens.
json choice_of(const server::Reply& reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  const json body = reply.body_json();
  return body.is_object() && body.contains("choices") ? body["choices"][0] : json();
}

std::vector<json> choices_of(const Server& server) {
  std::vector<json> choices;
  for (const server::Reply& reply : ask_all(server)) choices.push_back(choice_of(reply));
  return choices;
}

// Those that have failed are about an expert that was not read, and the others are right.
int count_failed(const std::vector<server::Reply>& replies, const std::vector<json>& expected) {
  int failed = 0;
  for (size_t i = 0; i < replies.size(); ++i) {
    if (replies[i].status == 200) {
      EXPECT_EQ(choice_of(replies[i]), expected[i]) << i;
      continue;
    }
    ++failed;
    EXPECT_EQ(replies[i].status, 500);
    EXPECT_EQ(replies[i].body_json()["error"]["code"], "expert_not_read");
    EXPECT_THAT(replies[i].body, HasSubstr("an expert that this request needs could not be"));
  }
  return failed;
}

double sum_over_two_ranks(const Server& server, const std::string& name) {
  return server.metric(name + "{ep_rank=\"0\"}") + server.metric(name + "{ep_rank=\"1\"}");
}

TEST_F(ExpertMemory, ADamagedRecordEndsTheRequestsThatNeedItAndOnlyThose) {
  std::vector<json> expected;
  {
    const Server whole(small_model(), with("100%", {"--ranks", "2"}));
    expected = choices_of(whole);
  }
  for (const int layer : {1, 2}) {
    const Server server(small_model(), with("40%", {"--ranks", "2"}));
    ASSERT_GT(server.port(), 0);
    // All of them are damaged until a request fails and another one does not.
    int failed = 0;
    for (int expert = 0; expert < 16 && failed == 0; ++expert) {
      flip(layer, expert);
      failed = count_failed(ask_all(server), expected);
      EXPECT_LT(failed, static_cast<int>(expected.size()));
      flip(layer, expert);
    }
    EXPECT_GT(failed, 0);
    // Ranks tell once a second.
    EXPECT_TRUE(wait_until(
        [&] {
          ask_all(server);
          return sum_over_two_ranks(server, "wideep_experts_lost_total") >= 1.0;
        },
        std::chrono::seconds(20)));
    EXPECT_GT(server.metric("wideep_experts_chosen_resident_total{ep_rank=\"0\"}"), 0.0);
    EXPECT_GT(server.metric("wideep_expert_read_bytes_total{ep_rank=\"1\"}"), 0.0);
    EXPECT_GT(server.metric("wideep_expert_layer_chosen_total{layer=\"2\"}"), 0.0);
    // Nothing of what was wrong is kept.
    EXPECT_EQ(choices_of(server), expected);
  }
}

// Whatever the disk does, what is answered is right, and the server lives.
TEST_F(ExpertMemory, ASlowOrBrokenDiskNeverMakesAWrongAnswer) {
  std::vector<json> expected;
  {
    const Server whole(small_model(), with("100%", {"--ranks", "2"}));
    expected = choices_of(whole);
  }
  FaultyFile disk(packed() + "/records");
  if (!disk.is_mounted()) GTEST_SKIP() << "needs permission to mount a file system of its own";
  const Server server(small_model(), with("30%", {"--ranks", "2"}));
  ASSERT_GT(server.port(), 0);
  EXPECT_EQ(choices_of(server), expected);
  // Only later.
  disk.delay(std::chrono::milliseconds(5));
  const int64_t reads = disk.num_reads();
  EXPECT_EQ(choices_of(server), expected);
  EXPECT_GT(disk.num_reads(), reads + 100);
  disk.delay(std::chrono::milliseconds(0));
  disk.fail_one_in(50);
  int failed = 0;
  for (int i = 0; i < 3; ++i) failed += count_failed(ask_all(server), expected);
  EXPECT_GT(failed, 0);
  EXPECT_GT(disk.num_failed(), 0);
  disk.fail_one_in(0);
  EXPECT_EQ(choices_of(server), expected);
  disk.flip_a_bit_of_one_in(10);
  while (disk.num_flipped() < 1000) count_failed(ask_all(server), expected);
  disk.flip_a_bit_of_one_in(0);
  EXPECT_EQ(choices_of(server), expected);
}

// What is cut off cannot be read until it is there again.
TEST_F(ExpertMemory, AFileThatIsCutShortEndsTheRequestsThatNeedWhatIsGone) {
  std::vector<json> expected;
  {
    const Server whole(small_model(), with("100%", {"--ranks", "2"}));
    expected = choices_of(whole);
  }
  Server server(small_model(), with("40%", {"--ranks", "2"}));
  ASSERT_GT(server.port(), 0);
  const std::string records = packed() + "/records";
  const auto whole = formats::read_file(records);
  ASSERT_TRUE(whole.ok());
  int failed = 0;
  for (size_t eighths = 7; eighths > 0 && failed == 0; --eighths) {
    std::filesystem::resize_file(records, whole->size() * eighths / 8);
    failed = count_failed(ask_all(server), expected);
  }
  EXPECT_GT(failed, 0);
  EXPECT_THAT(server.command().err(), HasSubstr("the file ends before the record does"));
  EXPECT_EQ(server.metric("wideep_ep_active_ranks"), 2);
  std::ofstream(records, std::ios::in | std::ios::out | std::ios::binary) << *whole;
  EXPECT_EQ(choices_of(server), expected);
  EXPECT_THAT(server.command().err(), testing::Not(HasSubstr("has died")));
}

// Also by ranks that begin after it was removed.
TEST_F(ExpertMemory, AFileThatIsRemovedIsReadAsBefore) {
  Server server(small_model(), with("40%", {"--ranks", "2"}));
  ASSERT_GT(server.port(), 0);
  const std::vector<json> expected = choices_of(server);
  const std::string records = packed() + "/records";
  std::filesystem::remove(records);
  EXPECT_EQ(choices_of(server), expected);
  expect_error(run_command(generate(small_model(), with("40%", {}))), 2,
               {"'records' beside it cannot be read", "the weights are packed again"});
  std::filesystem::remove_all(packed());
  EXPECT_EQ(choices_of(server), expected);
  ::kill(process_named(server, "wideep-rank-1"), SIGKILL);
  EXPECT_EQ(choices_of(server), expected);
  EXPECT_TRUE(wait_until([&] { return server.metric("wideep_recoveries_total") == 1; },
                         std::chrono::seconds(20) * kSlowdown));
  EXPECT_EQ(choices_of(server), expected);
  EXPECT_LE(sum_over_two_ranks(server, "wideep_experts_lost_total"), 0.0);
  // Whoever starts now packs again.
  const CommandEnd end = run_command(generate(small_model(), with("40%", {})));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("packing the weights"));
}

// Eight ranks, of which each has memory for its own experts: an eighth of all.
TEST_F(ExpertMemory, NodesOfWhichNoneCouldHoldAllHoldThemTogether) {
  std::vector<json> expected;
  {
    const Server whole(small_model(), with("100%", {}));
    expected = choices_of(whole);
  }
  const uint64_t all = expert_bytes();
  const std::string share = std::to_string(all / 8);
  {
    const Server alone(small_model(), with(share, {}));
    EXPECT_EQ(choices_of(alone), expected);
    const std::string read = "wideep_expert_read_bytes_total{ep_rank=\"0\"}";
    EXPECT_TRUE(wait_until(
        [&] {
          choices_of(alone);
          return alone.metric(read) > static_cast<double>(all);
        },
        std::chrono::seconds(20) * kSlowdown));
  }
  const std::string config = scratch_.file("config.yaml");
  std::ofstream(config) << "tensor_parallel_size: 8\n"
                           "moe_expert_parallel_size: 8\n"
                           "enable_attention_dp: true\n";
  const std::string records = packed() + "/records";
  const auto bytes = formats::read_file(records);
  ASSERT_TRUE(bytes.ok());
  for (const int num_nodes : {2, 3}) {
    SCOPED_TRACE(num_nodes);
    ServiceNodes nodes(num_nodes, small_model(),
                       with(share, {"--config", config, "--threads-per-rank", "1"}));
    ASSERT_GT(nodes.port(), 0) << nodes.server().command().err();
    EXPECT_EQ(choices_of(nodes.server()), expected);
    // No expert is absent, so there is nothing that counts reads, and nothing to read.
    std::filesystem::resize_file(records, 0);
    EXPECT_EQ(choices_of(nodes.server()), expected);
    EXPECT_EQ(nodes.server().metric("wideep_expert_read_bytes_total{ep_rank=\"0\"}"), -1.0);
    nodes.end();
    std::ofstream(records, std::ios::binary) << *bytes;
  }
}

}  // namespace
}  // namespace wideep::tests
