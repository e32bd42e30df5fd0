// SPDX-License-Identifier: Apache-2.0
//
// Processes that die in the host tier while others use it. WIDEEP_STORE_KILLS says how often each
// test kills, 30 where it is not set.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <optional>
#include <random>
#include <thread>

#include "base/sanitized.h"
#include "store/host_tier.h"
#include "store/records_testing.h"

namespace wideep::store {
namespace {

constexpr uint64_t kBlock = HostIndex::kBlockBytes;

int num_kills() {
  const char* const set = std::getenv("WIDEEP_STORE_KILLS");
  return set == nullptr ? 30 : std::atoi(set);
}

// Of all processes.
struct Seen {
  std::atomic<uint64_t> whole, missing, taken, wrong, failed;
};

class HostTierKills : public ::testing::Test {
 protected:
  void SetUp() override {
    if (base::kSanitized) GTEST_SKIP() << "forks";
    memory_ = HostTier::create_memory(20 * kBlock).value();
    seen_memory_ = base::SharedBytes::create("test", sizeof(Seen)).value();
    seen_ = new (seen_memory_.data()) Seen{};
  }

  static Head random_page(std::mt19937& random) {
    const auto which = static_cast<int32_t>(random() % 6);
    return sequence_of(which, 3, 100 + 40'000 * static_cast<uint64_t>(which))[random() % 3];
  }

  void fetch(HostTier& tier, const Head& head) {
    std::vector<std::byte> into(head.part.bytes());
    const FetchOrder order{.head = head, .into = into};
    const Status status = tier.fetch({&order, 1}, [&](size_t, FetchResult result) {
      if (result == FetchResult::kMissing) ++seen_->missing;
      if (result == FetchResult::kWhole) ++(into == payload_of(head) ? seen_->whole : seen_->wrong);
      return true;
    });
    if (!status.ok()) ++seen_->failed;
  }

  void offer(HostTier& tier, const Head& head) {
    const OfferResult result = tier.offer(head, payload_of(head), 0.0, kIntact);
    if (result == OfferResult::kTaken) ++seen_->taken;
    if (result == OfferResult::kFailed) ++seen_->failed;
  }

  void use_for_ever(uint32_t seed) {
    const auto tier = HostTier::open(memory_).value();
    std::mt19937 random(seed);
    for (;;) {
      fetch(*tier, random_page(random));
      offer(*tier, random_page(random));
      if (random() % 50 == 0) tier->forget(random_page(random).name, Kind::kPage);
    }
  }

  pid_t start(uint32_t seed) {
    const pid_t process = ::fork();
    if (process == 0) {
      use_for_ever(seed);
      ::_exit(0);
    }
    return process;
  }

  static void end(pid_t process) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }

  // Every block is free or has bytes of a record that is there, and the tier still takes what fits.
  void expect_nothing_lost() {
    const auto tier = HostTier::open(memory_).value();
    for (int32_t i = 0; i < 2; ++i) {  // more than is there: what dead writers had is needed
      for (const Head& head : sequence_of(100 + i, 2, 10 * kBlock)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(110));  // between searches for them
        EXPECT_EQ(tier->offer(head, payload_of(head), 0.0, kIntact), OfferResult::kTaken);
      }
    }
    {
      const HostIndex::Lock lock(tier->index());
      ASSERT_TRUE(lock.status().ok());
      EXPECT_EQ(tier->index().disagreement(), "");
    }
    for (int32_t i = 0; i < 2; ++i) {
      for (const Head& head : sequence_of(100 + i, 2, 10 * kBlock))
        tier->forget(head.name, head.kind);
    }
    EXPECT_EQ(tier->size().bytes, 0u);
    EXPECT_EQ(seen_->wrong, 0u);
    EXPECT_EQ(seen_->failed, 0u);
  }

  base::SharedBytes memory_, seen_memory_;
  Seen* seen_ = nullptr;
};

TEST_F(HostTierKills, OthersGoOn) {
  std::mt19937 random(1);
  const pid_t others[] = {start(100), start(101)};
  for (int i = 0; i < num_kills(); ++i) {
    const pid_t process = start(static_cast<uint32_t>(i));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 10'000));
    end(process);
  }
  for (const pid_t each : others) end(each);
  EXPECT_GT(seen_->whole, 0u);
  EXPECT_GT(seen_->taken, 20u);
  expect_nothing_lost();
}

// Instructions until the process ends, nullopt: it was killed after so many, or cannot be traced.
std::optional<uint64_t> step(pid_t process, uint64_t max_steps, bool& can_trace) {
  int status = 0;
  ::waitpid(process, &status, 0);  // it stops itself first
  for (uint64_t steps = 0; steps < max_steps; ++steps) {
    if (!WIFSTOPPED(status) || ::ptrace(PTRACE_SINGLESTEP, process, nullptr, nullptr) != 0) {
      can_trace = false;
      break;
    }
    ::waitpid(process, &status, 0);
    if (WIFEXITED(status)) return steps;
  }
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
  return std::nullopt;
}

// One that dies with the lock, at any instruction: between any two writes.
TEST_F(HostTierKills, AtAnyInstruction) {
  const auto tier = HostTier::open(memory_).value();
  std::mt19937 random(2);
  // A full tier, so that taking a record evicts others; the record is small, so that most of the
  // instructions change the index. Every third one frees.
  const auto start_traced = [&](int32_t round) {
    const Head head = sequence_of(1000 + round, 1, 1000)[0];
    const Head fourth = sequence_of(round % 6, 3, 100)[2];
    const auto bytes = payload_of(head);
    const pid_t process = ::fork();
    if (process != 0) return process;
    const auto mine = HostTier::open(memory_).value();
    offer(*mine, sequence_of(2000 + round, 1, 1000)[0]);  // it knows who it is
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
    ::raise(SIGSTOP);
    if (round % 3 == 2) {
      mine->forget(fourth.name, fourth.kind);
    } else {
      mine->offer(head, bytes, 0.0, kIntact);
    }
    ::_exit(0);
  };
  const auto fill = [&] {
    for (int32_t i = 0; i < 6; ++i) {
      for (const Head& head : sequence_of(i, 3, 100)) offer(*tier, head);
    }
  };
  bool can_trace = true;
  uint64_t lengths[3] = {};
  for (int32_t round = 0; round < 3 && can_trace; ++round) {
    fill();
    lengths[round] = step(start_traced(round), 10'000'000, can_trace).value_or(0);
  }
  if (!can_trace) GTEST_SKIP() << "processes cannot be traced here";
  int dead_with_lock = 0;
  for (int32_t round = 3; round < num_kills() + 3; ++round) {
    fill();
    step(start_traced(round), random() % lengths[round % 3], can_trace);
    const HostIndex::Lock lock(tier->index());
    ASSERT_TRUE(lock.status().ok()) << lock.status().message();
    EXPECT_EQ(tier->index().disagreement(), "") << round;
    if (lock.has_mended()) ++dead_with_lock;
  }
  EXPECT_GT(dead_with_lock, num_kills() / 10);
  for (int32_t i = 0; i < 6; ++i) {
    for (const Head& head : sequence_of(i, 3, 100)) fetch(*tier, head);
  }
  expect_nothing_lost();
}

}  // namespace
}  // namespace wideep::store
