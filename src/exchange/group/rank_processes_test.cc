// SPDX-License-Identifier: Apache-2.0
//
// The same bodies over ranks that are threads and ranks that are processes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <random>
#include <span>

#include "base/cpu_time.h"
#include "base/try.h"
#include "group/rank_processes.h"

namespace wideep::transport {
namespace {

using testing::HasSubstr;

using Body = std::function<Status(Endpoint&)>;

Status run_threads(const GroupOptions& options, const Body& body) {
  WIDEEP_TRY_ASSIGN(const auto statuses, run_rank_threads(options, body));
  for (const Status& status : statuses) WIDEEP_TRY(status);
  return {};
}

Status run_threads_on_nodes(const GroupOptions& options, const Body& body) {
  GroupOptions several = options;
  several.num_nodes = std::min(options.num_ranks, 3);
  return run_threads(several, body);
}

Status run_processes(const GroupOptions& options, const Body& body) {
  return run_rank_processes(
      options, [&](Endpoint& endpoint, const Messenger&) { return body(endpoint); },
      [](int, std::string_view) {});
}

struct BackEnd {
  const char* name;
  Status (*run)(const GroupOptions&, const Body&);
};

class EveryBackEnd : public testing::TestWithParam<BackEnd> {};

INSTANTIATE_TEST_SUITE_P(Transport, EveryBackEnd,
                         testing::Values(BackEnd{"threads", run_threads},
                                         BackEnd{"threads_on_nodes", run_threads_on_nodes},
                                         BackEnd{"processes", run_processes}),
                         [](const auto& test) { return std::string(test.param.name); });

// In each round every rank writes a block of one byte value into its segment and raises a flag. Its
// peers check the block after the flag, and raise another flag that allows the next round's write.
Status exchange_blocks(Endpoint& endpoint, int rounds) {
  constexpr size_t kBlock = 500;
  const int me = endpoint.rank();
  for (uint32_t round = 1; round <= static_cast<uint32_t>(rounds); ++round) {
    const std::vector<std::byte> block(kBlock, static_cast<std::byte>((me * 31 + round) & 0xff));
    std::copy(block.begin(), block.end(), endpoint.segment(me));
    const Written written{.first = endpoint.segment(me), .width = kBlock};
    endpoint.forward_to_all(me, std::span(&written, 1));
    endpoint.raise_all(Channel::kDispatch, round);
    WIDEEP_TRY(endpoint.wait_all(Channel::kDispatch, round, {.what = "blocks"}));
    for (int peer = 0; peer < endpoint.num_ranks(); ++peer) {
      for (size_t i = 0; i < kBlock; ++i) {
        const auto byte = static_cast<unsigned char>(endpoint.segment(peer)[i]);
        if (byte != ((peer * 31 + round) & 0xff)) return failed("a byte arrived after its flag");
      }
    }
    endpoint.raise_all(Channel::kCombine, round);
    WIDEEP_TRY(endpoint.wait_all(Channel::kCombine, round, {.what = "readers"}));
  }
  return {};
}

TEST_P(EveryBackEnd, BytesAreVisibleAfterTheFlag) {
  for (int ranks : {1, 2, 3, 8}) {
    const Status status = GetParam().run({.num_ranks = ranks, .segment_bytes = 500},
                                         [](Endpoint& e) { return exchange_blocks(e, 200); });
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST_P(EveryBackEnd, SixteenRanksShareTheCores) {
  const Status status = GetParam().run({.num_ranks = 16, .segment_bytes = 500},
                                       [](Endpoint& e) { return exchange_blocks(e, 50); });
  EXPECT_TRUE(status.ok()) << status.message();
}

uint32_t word_for(int from, int to, uint32_t value) {
  return value << 16 | static_cast<uint32_t>(from) << 8 | static_cast<uint32_t>(to);
}

// Ranks drift apart by up to a round, so that words of two rounds are in memory at the same time.
TEST_P(EveryBackEnd, EachReaderGetsItsOwnWord) {
  for (const int ranks : {2, 8, 9}) {
    const auto send_words = [](Endpoint& endpoint) -> Status {
      const int me = endpoint.rank();
      std::mt19937 rng(me);
      for (uint32_t value = 1; value <= 200; ++value) {
        if (rng() % 50 == 0) ::usleep(rng() % 2000);
        for (int peer = 0; peer < endpoint.num_ranks(); ++peer) {
          if (peer != me)
            endpoint.set_word(Channel::kDispatch, peer, value, word_for(me, peer, value));
        }
        endpoint.raise_all(Channel::kDispatch, value);
        std::vector<int> seen(endpoint.num_ranks());
        WIDEEP_TRY(endpoint.wait_each(Channel::kDispatch, value, {.what = "words"},
                                      [&](std::span<const int> peers) {
                                        for (const int peer : peers) ++seen[peer];
                                      }));
        if (seen != std::vector<int>(endpoint.num_ranks(), 1))
          return failed("a peer was not passed exactly once");
        for (int peer = 0; peer < endpoint.num_ranks(); ++peer) {
          if (peer == me) continue;
          if (endpoint.word_from(Channel::kDispatch, peer, value) != word_for(peer, me, value)) {
            return failed("a word of another rank or round");
          }
        }
      }
      return {};
    };
    const Status status = GetParam().run({.num_ranks = ranks, .segment_bytes = 64}, send_words);
    EXPECT_TRUE(status.ok()) << ranks << " ranks: " << status.message();
  }
}

// Rank 0 waits far longer than a wait spins or yields, so all readers sleep. A reader that is not
// woken would see the flag only after 20 ms, when it checks for failures.
TEST(Endpoint, OneFlagWakesAllItsReaders) {
  constexpr int kRanks = 5, kRounds = 20;
  std::array<std::array<int64_t, kRanks>, kRounds> late_ns = {};
  const auto statuses = run_rank_threads(
      {.num_ranks = kRanks, .segment_bytes = kRounds * sizeof(int64_t)},
      [&](Endpoint& endpoint) -> Status {
        auto* raised_ns = reinterpret_cast<int64_t*>(endpoint.segment(0));
        for (uint32_t round = 1; round <= kRounds; ++round) {
          WIDEEP_TRY(endpoint.barrier({.what = "the round"}));
          if (endpoint.rank() == 0) {
            ::usleep(5000);
            raised_ns[round - 1] = base::wall_ns();
            endpoint.raise_all(Channel::kDispatch, round);
          }
          WIDEEP_TRY(endpoint.wait(Channel::kDispatch, 0, round, {.what = "rank 0"}));
          late_ns[round - 1][endpoint.rank()] = base::wall_ns() - raised_ns[round - 1];
        }
        return {};
      });
  ASSERT_TRUE(statuses.ok());
  for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.message();
  std::vector<int64_t> slowest;
  for (const auto& round : late_ns)
    slowest.push_back(*std::max_element(round.begin(), round.end()));
  EXPECT_LT(*std::min_element(slowest.begin(), slowest.end()), 8'000'000);
}

TEST_P(EveryBackEnd, AgreeIsAnAllGather) {
  const Status status =
      GetParam().run({.num_ranks = 5, .segment_bytes = 64}, [](Endpoint& endpoint) -> Status {
        std::mt19937 rng(endpoint.rank());
        std::vector<AgreedWords> words;
        for (uint64_t n = 0; n < 300; ++n) {
          if (rng() % 50 == 0) ::usleep(rng() % 2000);  // ranks drift apart by up to one round
          WIDEEP_TRY(endpoint.agree({n, n * 100 + static_cast<uint64_t>(endpoint.rank())},
                                    {.what = "words"}, &words));
          for (int rank = 0; rank < 5; ++rank) {
            if (words[rank][0] != n || words[rank][1] != n * 100 + rank)
              return failed("a word of another round");
          }
        }
        return Status();
      });
  EXPECT_TRUE(status.ok()) << status.message();
}

// 6 ranks as 3 stages of 2. Each rank interleaves exchanges with its stage, its pipeline, whose
// ranks are in another order, and the world.
Status exchange_in_groups(Endpoint& world) {
  const int stage = world.rank() / 2, column = world.rank() % 2;
  Endpoint in_stage(world, Group::kStage, {2 * stage, 2 * stage + 1});
  Endpoint in_pipeline(in_stage, Group::kPipeline, {4 + column, 2 + column, column});
  if (in_stage.rank() != column || in_pipeline.rank() != 2 - stage) return failed("wrong rank");
  if (in_pipeline.world_rank(0) != 4 + column) return failed("wrong rank of the world");
  std::vector<AgreedWords> words;
  for (uint64_t n = 0; n < 50; ++n) {
    const auto me = static_cast<uint64_t>(world.rank());
    for (Endpoint* group : {&in_stage, &in_pipeline, &in_stage, &world}) {
      if (group == &in_stage && stage == static_cast<int>(n % 3))
        continue;  // so that stages make different numbers of calls
      WIDEEP_TRY(group->agree({n, me}, {.what = "words"}, &words));
      for (int rank = 0; rank < group->num_ranks(); ++rank) {
        const auto from = static_cast<uint64_t>(group->world_rank(rank));
        if (words[rank][0] != n || words[rank][1] != from) return failed("words of another group");
      }
    }
  }
  WIDEEP_TRY(exchange_blocks(in_stage, 20 + 10 * stage));
  WIDEEP_TRY(world.barrier({.what = "the end of the stages"}));
  return exchange_blocks(in_pipeline, 20 + 10 * column);
}

TEST_P(EveryBackEnd, GroupsDoNotDisturbEachOther) {
  const Status status =
      GetParam().run({.num_ranks = 6, .segment_bytes = 8 * 500}, exchange_in_groups);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_P(EveryBackEnd, ErrorsOfAGroupNameRanksOfTheWorld) {
  const Status status = GetParam().run(
      {.num_ranks = 4, .segment_bytes = 64, .timeout = std::chrono::milliseconds(200)},
      [](Endpoint& world) -> Status {
        const int other = world.rank() % 2;
        Endpoint group(world, Group::kStage, {other, 2 + other});
        if (world.rank() == 2) return {};  // never raises its flag
        return group.barrier({.what = "the stage", .iteration = 5});
      });
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      status.message(),
      testing::MatchesRegex("rank 0( .node 0.)? waited 200 ms for the stage from rank 2.*"));
}

TEST_P(EveryBackEnd, ALatePeerIsADeadlineErrorThatNamesAllDetails) {
  const Status status = GetParam().run(
      {.num_ranks = 3, .segment_bytes = 64, .timeout = std::chrono::milliseconds(200)},
      [](Endpoint& endpoint) -> Status {
        if (endpoint.rank() == 2) return {};  // never raises its flag
        return endpoint.wait(Channel::kDispatch, 2, 1,
                             {.what = "dispatched rows", .layer = 4, .iteration = 17});
      });
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("waited 200 ms for dispatched rows from rank 2"));
  EXPECT_THAT(status.message(), HasSubstr("layer 4, iteration 17"));
}

TEST_P(EveryBackEnd, AFailureEndsAllWaitsAtOnce) {
  const int64_t start = base::wall_ns();
  const Status status =
      GetParam().run({.num_ranks = 4, .segment_bytes = 64}, [](Endpoint& endpoint) -> Status {
        if (endpoint.rank() == 1) return failed("rank 1: disk on fire");
        return endpoint.wait(Channel::kDispatch, 1, 1, {.what = "rows"});
      });
  EXPECT_THAT(status.message(), HasSubstr("disk on fire"));
  EXPECT_LT(base::wall_ns() - start, 3'000'000'000);
}

// A rank that is killed between the two steps of saying its error: the keeper speaks for it.
TEST(SharedMemory, AnErrorThatIsOnlyClaimedDoesNotSilenceTheKeeper) {
  const auto memory = SharedMemory::create(2, 4096);
  ASSERT_TRUE(memory.ok());
  (*memory)->control().failure.claimed.store(1);
  (*memory)->fail(failed("of another rank"));
  EXPECT_TRUE((*memory)->failure().ok());
  (*memory)->fail_for_all(failed("a rank has ended"));
  EXPECT_EQ((*memory)->failure().message(), "a rank has ended");
  (*memory)->clear();
  (*memory)->fail(failed("no memory"), 1);
  (*memory)->fail_for_all(failed("a rank has ended"));
  EXPECT_EQ((*memory)->failure().message(), "no memory");
  EXPECT_EQ((*memory)->failed_rank(), 1);
}

TEST(Endpoint, FlagsMayWrapAround) {
  auto memory = SharedMemory::create(1, 64);
  ASSERT_TRUE(memory.ok());
  Endpoint endpoint(*memory, 0, std::chrono::milliseconds(50));
  endpoint.raise(Channel::kDispatch, 0, 0xffffffffu);
  EXPECT_TRUE(endpoint.wait(Channel::kDispatch, 0, 0xfffffffeu, {}).ok());
  endpoint.raise(Channel::kDispatch, 0, 3u);  // past the wrap
  EXPECT_TRUE(endpoint.wait(Channel::kDispatch, 0, 0xffffffffu, {}).ok());
  EXPECT_TRUE(endpoint.wait(Channel::kDispatch, 0, 3u, {}).ok());
  EXPECT_FALSE(endpoint.wait(Channel::kDispatch, 0, 4u, {}).ok());
}

// Waits compare it with their own processor.
TEST(Endpoint, AFlagHasTheProcessorThatRaisedIt) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  auto memory = SharedMemory::create(1, 64);
  ASSERT_TRUE(memory.ok());
  Endpoint endpoint(*memory, 0, std::chrono::milliseconds(50));
  uint32_t value = 0;
  for (size_t processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &before)) continue;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(processor, &only);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(only), &only), 0);
    endpoint.raise_all(Channel::kDispatch, ++value);
    EXPECT_EQ((*memory)->flag(Group::kWorld, Channel::kDispatch, 0).processor.load(), processor);
  }
  ::sched_setaffinity(0, sizeof(before), &before);
}

TEST(SharedMemory, LeavesNothingInTheFileSystem) {
  auto memory = SharedMemory::create(4, 1 << 20);
  ASSERT_TRUE(memory.ok());
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    found += line.find("/memfd:wideep (deleted)") != std::string::npos;
  }
  EXPECT_GE(found, 1);
}

TEST(SharedMemory, TooManyBytesAreAnErrorWithTheNumber) {
  for (const int ranks : {2, 16}) {  // 16 × 2^60 is 0 in 64 bits
    const auto memory = SharedMemory::create(ranks, size_t{1} << 60);
    ASSERT_FALSE(memory.ok());
    EXPECT_THAT(memory.status().message(), HasSubstr("bytes"));
  }
}

// Some messages are sent with send_with_next; the end of the rank delivers the last of them.
TEST(RankProcesses, MessagesArriveWholeAndInOrder) {
  std::vector<std::vector<std::string>> received(3);
  const Status status = run_rank_processes(
      {.num_ranks = 3, .segment_bytes = 64},
      [](Endpoint& endpoint, const Messenger& pipe) -> Status {
        for (int i = 0; i < 100; ++i) {
          const std::string message(i * 1000, char('a' + endpoint.rank()));
          WIDEEP_TRY(i % 3 == 1 ? pipe.send(message) : pipe.send_with_next(message));
        }
        return {};
      },
      [&](int rank, std::string_view message) { received[rank].emplace_back(message); });
  EXPECT_TRUE(status.ok()) << status.message();
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(received[rank].size(), 100u);
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(received[rank][i], std::string(i * 1000, char('a' + rank)));
    }
  }
}

// The parent does not read for longer than the ranks' deadline, as if its output were paused. The
// messages are larger than the pipe's buffer.
TEST(RankProcesses, ASlowParentDoesNotDelayRanks) {
  int64_t received = 0;
  const Status status = run_rank_processes(
      {.num_ranks = 2, .segment_bytes = 64, .timeout = std::chrono::milliseconds(300)},
      [](Endpoint& endpoint, const Messenger& pipe) -> Status {
        for (int i = 0; i < 20; ++i) {
          if (endpoint.rank() == 0) WIDEEP_TRY(pipe.send(std::string(20'000, 'x')));
          WIDEEP_TRY(endpoint.barrier({.what = "next"}));
        }
        return {};
      },
      [&](int, std::string_view message) {
        if (received == 0) ::usleep(700'000);
        received += static_cast<int64_t>(message.size());
      });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(received, 20 * 20'000);
}

TEST(RankProcesses, AKilledRankEndsTheGroupAndIsNamed) {
  const Status status = run_rank_processes(
      {.num_ranks = 4, .segment_bytes = 64},
      [](Endpoint& endpoint, const Messenger&) -> Status {
        if (endpoint.rank() == 3) ::raise(SIGKILL);
        return endpoint.wait(Channel::kDispatch, 3, 1, {.what = "rows"});
      },
      [](int, std::string_view) {});
  EXPECT_EQ(status.code(), StatusCode::kFailed);
  EXPECT_THAT(status.message(), HasSubstr("rank 3"));
  EXPECT_THAT(status.message(), HasSubstr("signal 9"));
}

// Runs a group in a child process, which gets the signal. ranks_stop: whether the ranks obey
// stop_requested. Returns the child's exit code.
int interrupted_group(int signal, bool ranks_stop) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const pid_t self = ::getpid();
    const Status status = run_rank_processes(
        {.num_ranks = 3, .segment_bytes = 64},
        [=](Endpoint& endpoint, const Messenger&) -> Status {
          if (endpoint.rank() == 0) ::kill(self, signal);
          while (!ranks_stop || endpoint.memory().control().stop_requested.load() == 0) {
            ::usleep(1000);
          }
          return {};
        },
        [](int, std::string_view) {});
    ::_exit(status.exit_code());
  }
  int how = 0;
  ::waitpid(pid, &how, 0);
  return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

TEST(RankProcesses, InterruptStopsRanksThatObeyIt) {
  EXPECT_EQ(interrupted_group(SIGINT, true), 130);
  EXPECT_EQ(interrupted_group(SIGTERM, true), 130);
}

TEST(RankProcesses, InterruptKillsRanksThatIgnoreItAfterTheGrace) {
  const int64_t start = base::wall_ns();
  EXPECT_EQ(interrupted_group(SIGINT, false), 130);
  EXPECT_LT(base::wall_ns() - start, 1'500'000'000);
}

// Each further Ctrl-C comes before the grace period of the one before is over.
TEST(RankProcesses, FurtherInterruptsDoNotExtendTheGrace) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const pid_t self = ::getpid();
    const Status status = run_rank_processes(
        {.num_ranks = 2, .segment_bytes = 64},
        [=](Endpoint& endpoint, const Messenger&) -> Status {
          for (;; ::usleep(100'000)) {
            if (endpoint.rank() == 0) ::kill(self, SIGINT);
          }
        },
        [](int, std::string_view) {});
    ::_exit(status.exit_code());
  }
  const int64_t start = base::wall_ns();
  int how = 0;
  bool ended = false;
  while (!ended && base::wall_ns() - start < 5'000'000'000) {
    ended = ::waitpid(pid, &how, WNOHANG) == pid;
    ::usleep(1000);
  }
  if (!ended) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &how, 0);
  }
  EXPECT_LT(base::wall_ns() - start, 1'500'000'000);
  EXPECT_EQ(WIFEXITED(how) ? WEXITSTATUS(how) : -1, 130);
}

// A process inherits an ignored SIGCHLD from the process that starts it.
TEST(RankProcesses, WorkIfSigchldIsIgnored) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGCHLD, SIG_IGN);
    ::alarm(20);  // instead of a test that hangs
    const Status status = run_rank_processes(
        {.num_ranks = 2, .segment_bytes = 64}, [](Endpoint&, const Messenger&) { return Status(); },
        [](int, std::string_view) {});
    ::_exit(status.exit_code());
  }
  int how = 0;
  ::waitpid(pid, &how, 0);
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
}

// kill −9 of the parent ends the ranks too.
TEST(RankProcesses, RanksDieWithTheirParent) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::close(ends[0]);
    const Status status = run_rank_processes(
        {.num_ranks = 2, .segment_bytes = 64},
        [&](Endpoint&, const Messenger&) -> Status {
          [[maybe_unused]] const ssize_t n = ::write(ends[1], "x", 1);
          for (;;) ::pause();
        },
        [](int, std::string_view) {});
    ::_exit(status.exit_code());
  }
  ::close(ends[1]);
  char byte;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  // The ranks hold the only write ends left: end of file means that they are gone.
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
}

}  // namespace
}  // namespace wideep::transport
