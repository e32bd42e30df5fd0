// SPDX-License-Identifier: Apache-2.0
//
// The public communicator, with ranks that are threads and ranks that the caller has forked.
#include "wideep/communicator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/try.h"

namespace wideep::ep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr CommunicatorOptions kOptions{.num_ranks = 3,
                                       .slots_per_rank = 2,
                                       .top_k = 2,
                                       .max_tokens = 5,
                                       .row_bytes = 24,
                                       .result_bytes = 8,
                                       .timeout = std::chrono::milliseconds(20'000)};

using Body = std::function<Status(CommunicatorGroup&, int)>;

std::vector<Status> run_threads(CommunicatorGroup& group, int num_ranks, const Body& body) {
  std::vector<Status> statuses(static_cast<size_t>(num_ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = body(group, rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

// Converts the exit codes of processes to statuses.
std::vector<Status> run_processes(CommunicatorGroup& group, int num_ranks, const Body& body) {
  std::vector<pid_t> processes;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(body(group, rank).exit_code());
    processes.push_back(pid);
  }
  std::vector<Status> statuses;
  for (const pid_t pid : processes) {
    int how = 0;
    ::waitpid(pid, &how, 0);
    const bool good = WIFEXITED(how) && WEXITSTATUS(how) == 0;
    statuses.push_back(good ? Status() : failed(fmt::format("a rank ended with {}", how)));
  }
  return statuses;
}

// Overwrites own results. If another rank used that memory, the next round would be wrong.
Status sum_over_own_result(Communicator& communicator, int token, const int32_t* slots) {
  const auto results = communicator.results(token);
  const auto is_mine = [&](int32_t slot) {
    return slot / kOptions.slots_per_rank == communicator.rank();
  };
  const std::byte* expected = nullptr;
  if (is_mine(slots[0])) expected = results[0];
  if (expected == nullptr && is_mine(slots[1])) expected = results[1];
  std::byte* own = communicator.own_result(token);
  if (own != expected) return failed("a wrong own result");
  if (own != nullptr) *reinterpret_cast<int64_t*>(own) = -1;
  return {};
}

// A token is its number, 1000 · rank + token; a slot's result is that number times slot + 1.
Status exchange(Communicator& communicator, int num_tokens, int round) {
  const int rank = communicator.rank(), num_slots = kOptions.num_ranks * kOptions.slots_per_rank;
  struct Row {
    int64_t number, padding[3];  // rows need not be dense
  };
  std::vector<Row> rows(static_cast<size_t>(num_tokens));
  std::vector<int32_t> slots;
  for (int token = 0; token < num_tokens; ++token) {
    rows[static_cast<size_t>(token)].number = 1000 * rank + token;
    slots.push_back((token + round) % num_slots);
    slots.push_back((token + round + 1 + token % 3) % num_slots);
  }
  WIDEEP_TRY(communicator.dispatch(rows.data(), sizeof(Row), num_tokens, slots));
  for (int slot = 0; slot < kOptions.slots_per_rank; ++slot) {
    int64_t before = -1;
    for (const ReceivedRow& row : communicator.rows_of_slot(slot)) {
      const int64_t number = *reinterpret_cast<const int64_t*>(row.row);
      if (number <= before) return failed("rows out of order");
      before = number;
      *reinterpret_cast<int64_t*>(row.result) =
          number * (rank * kOptions.slots_per_rank + slot + 1);
    }
  }
  WIDEEP_TRY(communicator.combine());
  for (int token = 0; token < num_tokens; ++token) {
    for (size_t k = 0; k < 2; ++k) {
      const int64_t expected =
          (1000 * rank + token) * (slots[static_cast<size_t>(token) * 2 + k] + 1);
      const std::byte* found = communicator.results(token)[k];
      if (*reinterpret_cast<const int64_t*>(found) != expected) return failed("a wrong result");
    }
    WIDEEP_TRY(sum_over_own_result(communicator, token, slots.data() + 2 * token));
  }
  return {};
}

Status exchange_often(CommunicatorGroup& group, int rank) {
  WIDEEP_TRY_ASSIGN(Communicator communicator, group.join(rank));
  for (int round = 0; round < 40; ++round) {
    WIDEEP_TRY(exchange(communicator, (rank + round) % (kOptions.max_tokens + 1), round));
  }
  return {};
}

CommunicatorGroup make_group(const CommunicatorOptions& options = kOptions) {
  auto group = CommunicatorGroup::create(options);
  EXPECT_TRUE(group.ok()) << group.status().message();
  return std::move(group).value();
}

TEST(Communicator, ThreadsExchangeRowsAndResults) {
  CommunicatorGroup group = make_group();
  for (const Status& status : run_threads(group, 3, exchange_often)) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Communicator, ProcessesExchangeRowsAndResults) {
  CommunicatorGroup group = make_group();
  for (const Status& status : run_processes(group, 3, exchange_often)) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

// The error of one rank is returned on every rank at once.
void expect_error_everywhere(const Body& body, const std::vector<std::string>& parts) {
  CommunicatorGroup group = make_group();
  const auto start = std::chrono::steady_clock::now();
  for (const Status& status : run_threads(group, 3, body)) {
    for (const std::string& part : parts) EXPECT_THAT(status.message(), HasSubstr(part));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kOptions.timeout / 2);
}

// Rank 1 makes a mistake after a correct round; the other ranks continue.
Body with_mistake(const std::function<Status(Communicator&)>& mistake) {
  return [=](CommunicatorGroup& group, int rank) -> Status {
    WIDEEP_TRY_ASSIGN(Communicator communicator, group.join(rank));
    WIDEEP_TRY(exchange(communicator, 3, 0));
    if (rank == 1) WIDEEP_TRY(mistake(communicator));
    return exchange(communicator, 3, 1);
  };
}

TEST(Communicator, MistakesFailTheGroupAndAreNamed) {
  const std::vector<std::byte> rows(24 * 10);
  const auto dispatch = [&](int num_tokens, std::vector<int32_t> slots) {
    return with_mistake([&rows, num_tokens, slots](Communicator& communicator) {
      return communicator.dispatch(rows.data(), 24, num_tokens, slots);
    });
  };
  expect_error_everywhere(dispatch(6, std::vector<int32_t>(12)), {"rank 1", "5", "6"});
  expect_error_everywhere(dispatch(-1, {}), {"rank 1", "-1"});
  expect_error_everywhere(dispatch(2, {0, 1, 2}), {"rank 1", "3"});
  expect_error_everywhere(dispatch(1, {0, 6}), {"rank 1", "6"});
  expect_error_everywhere(dispatch(1, {4, 4}), {"rank 1", "slot 4 twice"});
  expect_error_everywhere(
      with_mistake([](Communicator& c) { return c.dispatch(nullptr, 24, 1, std::vector{0, 1}); }),
      {"rank 1", "null"});
  expect_error_everywhere(with_mistake([](Communicator& c) { return c.combine(); }),
                          {"rank 1", "combine"});
}

TEST(Communicator, AnyRankCanFailTheGroup) {
  expect_error_everywhere(with_mistake([](Communicator& communicator) {
                            communicator.fail("the disk is on fire");
                            return Status();
                          }),
                          {"the disk is on fire"});
}

TEST(Communicator, AMissingRankIsNamed) {
  CommunicatorOptions options = kOptions;
  options.timeout = std::chrono::milliseconds(100);
  CommunicatorGroup group = make_group(options);
  const Body body = [](CommunicatorGroup& joined, int rank) -> Status {
    WIDEEP_TRY_ASSIGN(Communicator communicator, joined.join(rank));
    if (rank == 2) return {};
    return exchange(communicator, 1, 0);
  };
  const std::vector<Status> statuses = run_threads(group, 3, body);
  EXPECT_EQ(statuses[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(statuses[0].message(), AllOf(HasSubstr("100 ms"), HasSubstr("from rank 2")));
}

TEST(Communicator, CallsBeforeJoinAndAfterCloseAreErrors) {
  CommunicatorOptions options = kOptions;
  options.num_ranks = 1;
  Communicator communicator;
  EXPECT_EQ(communicator.rank(), -1);
  EXPECT_THAT(communicator.dispatch(nullptr, 0, 0, {}).message(), HasSubstr("never joined"));

  CommunicatorGroup group = make_group(options);
  auto joined = group.join(0);
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  communicator = std::move(joined).value();
  EXPECT_TRUE(communicator.dispatch(nullptr, 0, 0, {}).ok());
  EXPECT_THAT(communicator.rows_of_slot(0), IsEmpty());
  EXPECT_THAT(communicator.rows_of_slot(7), IsEmpty());
  EXPECT_TRUE(communicator.combine().ok());
  EXPECT_THAT(communicator.results(0), IsEmpty());
  communicator.close();
  EXPECT_THAT(communicator.combine().message(), HasSubstr("closed"));
  EXPECT_THAT(group.join(0).status().message(), HasSubstr("rank 0 has joined already"));
  EXPECT_THAT(group.join(1).status().message(), HasSubstr("expected a rank from 0 to 0, found 1"));
}

TEST(Communicator, RefusesInvalidOptions) {
  const auto message = [](const std::function<void(CommunicatorOptions&)>& change) {
    CommunicatorOptions options = kOptions;
    change(options);
    return CommunicatorGroup::create(options).status().message();
  };
  EXPECT_THAT(message([](auto& o) { o.num_ranks = 0; }), HasSubstr("num_ranks"));
  EXPECT_THAT(message([](auto& o) { o.top_k = 7; }), HasSubstr("top_k: expected 1 to 6, found 7"));
  EXPECT_THAT(message([](auto& o) { o.max_tokens = -3; }), HasSubstr("found -3"));
  EXPECT_THAT(message([](auto& o) { o.row_bytes = 0; }), HasSubstr("row_bytes"));
  EXPECT_THAT(message([](auto& o) {
                o.row_bytes = size_t{1} << 30;
                o.max_tokens = 1 << 20;
              }),
              HasSubstr("GB of buffers"));
}

}  // namespace
}  // namespace wideep::ep
