// SPDX-License-Identifier: Apache-2.0
//
// Started ranks, simulated by threads that are connected by a MemorySwitch instead of MPI.
#include "group/started_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "base/try.h"
#include "group/node_watch.h"
#include "transport/bridge.h"
#include "transport/memory_switch.h"

namespace wideep::transport {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

// Forwards to a link that it does not own.
class SwitchLink : public Link {
 public:
  explicit SwitchLink(Link& link) : link_(link) {}
  void send(int to, Bytes message) override { link_.send(to, std::move(message)); }
  std::optional<Received> receive() override { return link_.receive(); }
  bool has_sent_all() override { return link_.has_sent_all(); }
  Status failure() const override { return link_.failure(); }

 private:
  Link& link_;
};

// Runs body on every rank and returns the statuses' messages, by rank; optionally their codes.
std::vector<std::string> messages_of_ranks(const NodeMap& nodes,
                                           const std::function<Status(StartedRanks&)>& body,
                                           std::vector<StatusCode>* codes = nullptr) {
  const auto count = static_cast<size_t>(nodes.num_ranks());
  MemorySwitch control(nodes.num_ranks()), data(nodes.num_ranks());
  std::vector<Status> statuses(count);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const int rank = static_cast<int>(i);
      StartedRanks ranks(std::make_unique<SwitchLink>(control.link(rank)),
                         std::make_unique<SwitchLink>(data.link(rank)), nodes, rank);
      statuses[i] = body(ranks);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> messages;
  for (const Status& status : statuses) {
    messages.push_back(status.message());
    if (codes != nullptr) codes->push_back(status.code());
  }
  return messages;
}

TEST(StartedRanks, EqualSettingsAreAccepted) {
  const auto messages = messages_of_ranks(NodeMap::even(4, 2), [](StartedRanks& ranks) {
    return ranks.agree_on({}, {{"--seed", "5"}, {"the model", "abc"}}, milliseconds(5000));
  });
  EXPECT_THAT(messages, Each(""));
}

TEST(StartedRanks, AllRanksReportTheFirstSettingThatDiffers) {
  std::vector<StatusCode> codes;
  const auto messages = messages_of_ranks(
      NodeMap::even(4, 2),
      [](StartedRanks& ranks) {
        const bool odd = ranks.rank() == 2;
        return ranks.agree_on({}, {{"the program", odd ? "b" : "a"}, {"--seed", odd ? "1" : "0"}},
                              milliseconds(5000));
      },
      &codes);
  EXPECT_THAT(messages, Each(HasSubstr("ranks 0 and 2 differ in the program: a and b")));
  EXPECT_THAT(codes, Each(StatusCode::kInvalidInput));
}

TEST(StartedRanks, AllRanksReportTheErrorOfOne) {
  const auto messages = messages_of_ranks(NodeMap::even(4, 2), [](StartedRanks& ranks) {
    const Status mine = ranks.rank() == 3 ? invalid_input("no such model") : Status();
    return ranks.agree_on(mine, {}, milliseconds(5000));
  });
  EXPECT_THAT(messages, Each(AllOf(HasSubstr("rank 3 (node 1)"), HasSubstr("no such model"))));
}

TEST(StartedRanks, AMissingRankIsADeadlineError) {
  const auto messages = messages_of_ranks(NodeMap::even(2, 2), [](StartedRanks& ranks) -> Status {
    if (ranks.rank() == 1) return {};
    Status status = ranks.agree_on({}, {}, milliseconds(50));
    EXPECT_TRUE(ranks.is_broken());
    return status;
  });
  EXPECT_THAT(messages[0], HasSubstr("rank 0 (node 0) waited 50 ms for its status and settings "
                                     "from rank 1 (node 1)"));
}

TEST(StartedRanks, AllRanksGetTheMinimum) {
  const auto messages = messages_of_ranks(NodeMap::even(4, 2), [](StartedRanks& ranks) -> Status {
    const std::array<uint64_t, 4> values = {7, 9, 3, 8};
    WIDEEP_TRY_ASSIGN(
        const uint64_t minimum,
        ranks.all_reduce_min(values[static_cast<size_t>(ranks.rank())], milliseconds(5000)));
    return failed(std::to_string(minimum));
  });
  EXPECT_THAT(messages, Each("3"));
}

class RunStartedRanks : public testing::Test {
 protected:
  RunStartedRanks() {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &before_);
    block_stop_signals();
  }
  ~RunStartedRanks() override { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  sigset_t before_;
};

TEST_F(RunStartedRanks, RankZeroGetsTheMessagesOfTwoNodes) {
  std::vector<std::string> reports;
  const auto messages = messages_of_ranks(NodeMap::even(4, 2), [&](StartedRanks& ranks) {
    return run_started_ranks(
        ranks, {.num_ranks = 4, .segment_bytes = 64, .timeout = milliseconds(5000)},
        [](Endpoint& endpoint, const Messenger& parent) -> Status {
          WIDEEP_TRY(endpoint.barrier({.what = "the others"}));
          return parent.send("rank " + std::to_string(endpoint.rank()));
        },
        [&](int, std::string_view text) { reports.emplace_back(text); });
  });
  EXPECT_THAT(messages, Each(""));
  EXPECT_THAT(reports, UnorderedElementsAre("rank 0", "rank 1", "rank 2", "rank 3"));
}

TEST_F(RunStartedRanks, AllRanksReportTheFirstFailure) {
  const auto messages = messages_of_ranks(NodeMap::even(4, 2), [&](StartedRanks& ranks) {
    return run_started_ranks(
        ranks, {.num_ranks = 4, .segment_bytes = 64, .timeout = milliseconds(5000)},
        [](Endpoint& endpoint, const Messenger&) -> Status {
          if (endpoint.rank() == 2) return failed("rank 2: disk on fire");
          return endpoint.barrier({.what = "the others"});
        },
        [](int, std::string_view) {});
  });
  EXPECT_THAT(messages, Each(HasSubstr("disk on fire")));
}

}  // namespace
}  // namespace wideep::transport
