// SPDX-License-Identifier: Apache-2.0
//
// Priorities are asked of the operating system, while a thread here plays a rank's copying thread.
// Where a process may not raise priorities, tests of loans are skipped. On a processor that
// computes without a pause only the loan is held, not the time, which depends on who else uses the
// machine. A failure means that experts arrive late during long prefills, or that a copying thread
// keeps the priority of the forward path.
#include "online/priority_lender.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/cpu_time.h"
#include "base/named_thread.h"
#include "base/sanitized.h"
#include "online/background_thread.h"
#include "online/weight_updater.h"

namespace wideep::online {
namespace {

using std::chrono::milliseconds;

constexpr int kLayers = 1, kExperts = 4, kSlots = 4;
const std::vector<int32_t> kOrder = {0, 1, 2, 3}, kOther = {2, 1, 0, 3};

std::unique_ptr<UpdateBoard> board_of(int num_ranks) {
  return UpdateBoard::create({num_ranks, kLayers, kSlots}).value();
}

int nice_of(pid_t thread) { return ::getpriority(PRIO_PROCESS, static_cast<id_t>(thread)); }

// Without a privilege, a thread that has lowered its priority cannot raise it again.
bool may_lend() {
  bool may = false;
  std::thread([&] {
    become_background_thread("test", {});
    may = lend_priority(::gettid());
  }).join();
  return may;
}

bool becomes(const std::function<bool()>& is) {
  const int64_t end_ns = base::wall_ns() + 20'000'000'000;
  while (base::wall_ns() < end_ns) {
    if (is()) return true;
    ::usleep(1000);
  }
  return false;
}

// A background thread that has a plan's copies to make, until it is told to have made them.
class Copier {
 public:
  Copier(const UpdateBoard& board, PriorityLender& lender, bool makes = true)
      : makes_(makes), thread_([this, &board, &lender] {
          become_background_thread("test-copy", {});
          lender.begin();
          id_ = ::gettid();
          while (!stop_) {
            if (makes_) lender.done(board.num_posts());
            ::usleep(500);
          }
        }) {
    EXPECT_TRUE(becomes([this] { return id_ != 0; }));
  }
  ~Copier() {
    stop_ = true;
    thread_.join();
  }
  void make(bool makes) { makes_ = makes; }
  pid_t id() const { return id_; }

 private:
  std::atomic<bool> makes_, stop_{false};
  std::atomic<pid_t> id_{0};
  std::thread thread_;
};

TEST(PriorityLender, ALateCopierGetsNormalPriorityUntilItsCopiesAreMade) {
  if (!may_lend()) GTEST_SKIP() << "this system does not let a thread raise its priority";
  const auto board = board_of(1);
  PriorityLender lender(*board, board->updater(0), milliseconds(5), {});
  Copier copier(*board, lender);
  for (int plan = 0; plan < 3; ++plan) {
    EXPECT_EQ(nice_of(copier.id()), 19);
    copier.make(false);
    board->post(0, kOther, {});
    EXPECT_TRUE(becomes([&] { return lender.has_lent() && nice_of(copier.id()) == 0; }));
    copier.make(true);
    EXPECT_TRUE(becomes([&] { return !lender.has_lent() && nice_of(copier.id()) == 19; }));
  }
  EXPECT_EQ(board->updater(0).refused_loans, 0);
  // A loan that runs when all ends does not outlive it.
  copier.make(false);
  board->post(0, kOther, {});
  EXPECT_TRUE(becomes([&] { return lender.has_lent(); }));
  lender.stop();
  EXPECT_EQ(nice_of(copier.id()), 19);
}

// This thread says in the copier's place that copies are made: before the plan is posted, or while
// the lender waits. Where it was kept from saying so in time, nothing can be said of the lender.
TEST(PriorityLender, WhoIsInTimeNeedsNone) {
  constexpr milliseconds kLimit(50);
  const auto board = board_of(1);
  PriorityLender lender(*board, board->updater(0), kLimit, {});
  Copier copier(*board, lender, false);
  // A loan, or where there can be none, that it was refused.
  const auto lends = [&] { return lender.has_lent() || board->updater(0).refused_loans > 0; };
  for (int plan = 0; plan < 6; ++plan) {
    const bool waits = plan % 2 == 1;
    const int64_t begin_ns = base::wall_ns();
    if (!waits) lender.done(board->num_posts() + 1);
    board->post(0, kOther, {});
    if (waits) {
      ::usleep(5000);
      lender.done(board->num_posts());
      if (base::wall_ns() - begin_ns > std::chrono::nanoseconds(kLimit).count() / 2) break;
    }
    bool has_lent = false;
    while (base::wall_ns() - begin_ns < 4 * std::chrono::nanoseconds(kLimit).count()) {
      has_lent = has_lent || lends();
      ::usleep(1000);
    }
    EXPECT_FALSE(has_lent) << "plan " << plan;
    EXPECT_EQ(nice_of(copier.id()), 19);
  }
}

// Where a processor computes without a pause, a copier of the lowest priority gets a sixtieth of
// it.
class StarvedCopies {
 public:
  StarvedCopies(milliseconds lend_after, int processor)
      : updater_(*board_, *pool_, {kOrder},
                 {.rank = 0,
                  .num_spares = 2,
                  .processors = {processor},
                  .lend_after = lend_after,
                  .on_copy =
                      [](int, int, std::byte*) {
                        const int64_t end_ns = base::thread_cpu_ns() + 2'000'000;
                        while (base::thread_cpu_ns() < end_ns) {
                        }
                      }}),
        computing_([this, processor] {
          base::name_and_bind_thread("test-compute", {processor});
          while (!stop_) {
          }
        }) {}
  ~StarvedCopies() {
    stop_ = true;
    computing_.join();
  }

  // Nanoseconds of two copies of 2 ms each, until the engine can switch.
  int64_t make_copies(bool back) {
    const int64_t start_ns = base::wall_ns();
    board_->post(0, back ? kOrder : kOther, {});
    const bool done = becomes([&] {
      transport::AgreedWords words = {};
      updater_.write_states(words);
      const Decision decision = decide(std::vector{words});
      updater_.apply(decision, 1, [](const PublishedLayer&) {});
      return any(decision.publish);
    });
    EXPECT_TRUE(done);
    return base::wall_ns() - start_ns;
  }
  int64_t lent_copies() const { return board_->updater(0).lent_copies; }

 private:
  static std::unique_ptr<weights::HostPool> sealed_pool() {
    auto pool = weights::HostPool::create({kernels::WeightFormat::kBf16, 32, 32}, kLayers, kExperts)
                    .value();
    for (int expert = 0; expert < kExperts; ++expert) pool->seal({0, expert});
    return pool;
  }

  std::unique_ptr<UpdateBoard> board_ = board_of(1);
  std::unique_ptr<weights::HostPool> pool_ = sealed_pool();
  std::atomic<bool> stop_{false};
  WeightUpdater updater_;
  std::thread computing_;
};

TEST(PriorityLender, CopiesAreNotLateForLongOnABusyProcessor) {
  if (base::kSanitized) GTEST_SKIP() << "too slow for times";
  if (!may_lend()) GTEST_SKIP() << "this system does not let a thread raise its priority";
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int processor = 0;
  while (!CPU_ISSET(processor, &allowed)) ++processor;
  StarvedCopies copies(milliseconds(10), processor);
  int64_t longest_ns = 0;
  for (int i = 0; i < 3; ++i) longest_ns = std::max(longest_ns, copies.make_copies(i % 2 == 1));
  // How long it takes depends on who else uses the processor; that it was lent does not.
  RecordProperty("longest_ms", static_cast<int>(longest_ns / 1'000'000));
  EXPECT_GE(copies.lent_copies(), 3);
}

}  // namespace
}  // namespace wideep::online
