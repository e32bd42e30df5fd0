// SPDX-License-Identifier: Apache-2.0
//
// Pages that wait for a peer make way: a failure is a server that stands still, as the peer waits
// for it in turn.
#include "engine/kept_prompts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "schedule/layout_testing.h"

namespace wideep::engine {
namespace {

class NotedStore final : public PageStore {
 public:
  void look(PageLook) override {}
  void fetch(PageFetch fetch) override { fetched.push_back(fetch.ticket); }
  void refuse(uint64_t ticket) override { refused.push_back(ticket); }
  void abandon(uint64_t ticket) override { abandoned.push_back(ticket); }
  void offer(std::vector<KeptBytes>, double) override {}
  void offer_to(std::string) override {}
  void prefer(Role) override {}
  Status end_fetches(std::chrono::milliseconds) override { return {}; }

  std::vector<uint64_t> fetched, refused, abandoned;
};

class KeptPromptsTest : public testing::Test {
 protected:
  static SharedTokens prompt_from(int first, int count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }
  void fetch(uint64_t ticket, int num_pages, const std::string& peer) {
    const Request request{.index = static_cast<int>(ticket),
                          .prompt = prompt_from(static_cast<int>(1000 * ticket), 600),
                          .peer = peer};
    kept_.apply({.kind = Command::Kind::kLook, .request = request, .ticket = ticket}, &store_);
    kept_.apply({.kind = Command::Kind::kFetch, .ticket = ticket, .num_pages = num_pages}, &store_);
  }
  void submit(int index, int tokens) {
    const Request request{.index = index, .prompt = prompt_from(0, tokens), .max_tokens = 1};
    ASSERT_TRUE(scheduler_.submit(request).ok());
  }
  // As between iterations.
  void go_on_for(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      scheduler_.schedule();
      kept_.make_way(&store_);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  using Tickets = std::vector<uint64_t>;
  Scheduler scheduler_{small_layout(),
                       {.max_batch_size = 4,
                        .max_num_tokens = 1000,
                        .max_pages = 10,
                        .reuse_pages = true,
                        .record_class = "class"}};
  KeptPrompts kept_{scheduler_};
  NotedStore store_;
};

TEST_F(KeptPromptsTest, WhatWaitsForAPeerMakesWayForWhatStandsStill) {
  fetch(1, 3, "peer");
  fetch(2, 2, "peer");
  fetch(3, 1, "peer");
  EXPECT_EQ(store_.fetched, (Tickets{1, 2}));
  EXPECT_EQ(store_.refused, Tickets{3});
  submit(9, 500);  // 8 pages
  go_on_for(KeptPrompts::kStandstill / 2);
  EXPECT_TRUE(store_.abandoned.empty());
  go_on_for(KeptPrompts::kStandstill * 3 / 4);
  EXPECT_EQ(store_.abandoned, Tickets{2});
  kept_.apply({.kind = Command::Kind::kImport, .ticket = 2, .num_pages = 1}, &store_);
  go_on_for(KeptPrompts::kStandstill);
  EXPECT_EQ(store_.abandoned, (Tickets{2, 1}));
  kept_.apply({.kind = Command::Kind::kImport, .ticket = 1}, &store_);
  scheduler_.schedule();
  EXPECT_EQ(scheduler_.record().running, 1);
}

TEST_F(KeptPromptsTest, WhatIsInNobodysWayStays) {
  fetch(1, 5, "peer");
  submit(9, 300);
  go_on_for(KeptPrompts::kStandstill * 5 / 4);
  EXPECT_EQ(scheduler_.record().running, 1);
  EXPECT_TRUE(store_.abandoned.empty());
}

}  // namespace
}  // namespace wideep::engine
