// SPDX-License-Identifier: Apache-2.0
//
// A run has computed a prompt, and its memory is served to others; another run, in another layout,
// takes the pages from there. A failure is a prompt that is computed twice, an answer with other
// tokens, or a client that hears of the transfer behind its first token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/rank_group.h"
#include "store/page_peer.h"
#include "store/page_server.h"

namespace wideep::run {
namespace {

using store::RequestState;

constexpr int kPages = 4;

RunOptions options_of(int ranks, bool attention_dp) {
  RunOptions options;
  options.model_dir = WIDEEP_SOURCE_DIR "/models/reference";
  options.parallel = parallel::parallel_config_for_ranks(ranks).value();
  options.parallel.enable_attention_dp = attention_dp;
  options.cache_pages = 64;
  return options;
}

engine::Request request_of(int index) {
  std::vector<int32_t> prompt(kPages * store::kPageTokens + 9);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i % 50) + 3;
  return {.index = index, .prompt = prompt, .max_tokens = 6, .ignore_eos = true};
}

struct Heard {
  std::vector<int32_t> tokens;
  int cached_tokens = 0;                   // of the first token
  std::optional<PromptTransfer> transfer;  // that came before it
};

Heard hear(RankGroup& group) {
  Heard heard;
  while (const auto event = group.next()) {
    if (const auto* token = std::get_if<Token>(&*event)) {
      if (heard.tokens.empty()) heard.cached_tokens = token->cached_tokens;
      heard.tokens.push_back(token->sampled.token);
    }
    if (const auto* transfer = std::get_if<PromptTransfer>(&*event)) {
      EXPECT_TRUE(heard.tokens.empty());
      EXPECT_FALSE(heard.transfer);
      heard.transfer = *transfer;
    }
  }
  EXPECT_TRUE(group.result().ok()) << group.result().message();
  return heard;
}

std::unique_ptr<Run> load(const RunOptions& options) {
  auto run = Run::prepare(options);
  EXPECT_TRUE(run.ok()) << run.status().message();
  if (!run.ok()) return nullptr;
  const Status loaded = (*run)->load([](uint64_t) {});
  EXPECT_TRUE(loaded.ok()) << loaded.message();
  return std::move(*run);
}

class PromptsOfPeers : public testing::Test {
 protected:
  void SetUp() override {
    writing_.host_cache_bytes = uint64_t{64} << 20;
    peer_ = load(writing_);
    ASSERT_NE(peer_, nullptr);
    const auto group = RankGroup::start(*peer_);
    ASSERT_TRUE(group.ok()) << group.status().message();
    (*group)->requests().submit(request_of(0));
    (*group)->requests().finish();
    expected_ = hear(**group).tokens;
    EXPECT_EQ(expected_.size(), 6u);
  }
  // What a run of these options hears of the same prompt. state: at the peer, under this name.
  Heard hear_from(const RunOptions& reading, RequestState state, const std::string& name = "3") {
    const auto run = load(reading);
    if (run == nullptr) return {};
    const auto group = RankGroup::start(*run);
    EXPECT_TRUE(group.ok()) << group.status().message();
    if (!group.ok()) return {};
    const auto server = store::PageServer::start(
        {.address = transport::resolve("127.0.0.1", 0).value(),
         .token = "secret",
         .record_class = peer_->record_class(),
         .state_of = [=](std::string_view) { return store::RequestStatus{.state = state}; }},
        *peer_->host_tier_memory());
    EXPECT_TRUE(server.ok()) << server.status().message();
    if (!server.ok()) return {};
    engine::Request request = request_of(3);
    request.peer = store::text_of({.host = {"127.0.0.1", (*server)->address().port},
                                   .token = "secret",
                                   .record_class = peer_->record_class(),
                                   .request = name});
    (*group)->requests().submit(request);
    (*group)->requests().finish();
    return hear(**group);
  }

  RunOptions writing_ = options_of(1, false);
  std::unique_ptr<run::Run> peer_;
  std::vector<int32_t> expected_;
};

TEST_F(PromptsOfPeers, AreTakenInAnyLayout) {
  for (const int ranks : {1, 2}) {
    for (const bool attention_dp : {false, true}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, attention dp " << attention_dp);
      RunOptions reading = options_of(ranks, attention_dp);
      reading.takes_from_peers = true;
      const Heard heard = hear_from(reading, RequestState::kComputes);
      EXPECT_EQ(heard.tokens, expected_);
      EXPECT_EQ(heard.cached_tokens, kPages * static_cast<int>(store::kPageTokens));
      ASSERT_TRUE(heard.transfer);
      EXPECT_EQ(heard.transfer->request_index, 3);
      EXPECT_EQ(heard.transfer->known_pages, 0);
      EXPECT_EQ(heard.transfer->fetched_pages, kPages);
      EXPECT_EQ(heard.transfer->from_peer.pages, kPages);
      EXPECT_GT(heard.transfer->from_peer.bytes, 0u);
      EXPECT_EQ(heard.transfer->from_peer.trouble, "");
    }
  }
}

// Of one that has computed the prompt before, for somebody else, and does nothing for this request.
TEST_F(PromptsOfPeers, AreTakenWhereTheyAreAlready) {
  for (const bool attention_dp : {false, true}) {
    RunOptions reading = options_of(2, attention_dp);
    reading.takes_from_peers = true;
    const Heard heard = hear_from(reading, RequestState::kUnknown, "");
    EXPECT_EQ(heard.tokens, expected_);
    EXPECT_EQ(heard.cached_tokens, kPages * static_cast<int>(store::kPageTokens));
    ASSERT_TRUE(heard.transfer);
    EXPECT_EQ(heard.transfer->fetched_pages, kPages);
    EXPECT_EQ(heard.transfer->from_peer.trouble, "");
    EXPECT_EQ(heard.transfer->from_peer.exposed_seconds, heard.transfer->from_peer.seconds);
  }
}

TEST_F(PromptsOfPeers, AreComputedWherePagesAreNotShared) {
  RunOptions reading = options_of(1, false);
  reading.takes_from_peers = true;
  reading.parallel.kv_cache_config.enable_block_reuse = false;
  const Heard heard = hear_from(reading, RequestState::kComputes);
  EXPECT_EQ(heard.tokens, expected_);
  EXPECT_EQ(heard.cached_tokens, 0);
  EXPECT_FALSE(heard.transfer);
}

}  // namespace
}  // namespace wideep::run
