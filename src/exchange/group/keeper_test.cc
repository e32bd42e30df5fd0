// SPDX-License-Identifier: Apache-2.0
//
// Ranks and fronts that do next to nothing, and die at every point of their life. What they see is
// checked in the front: it returns an error, which keep_ranks() returns.
#include "group/keeper.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/sanitized.h"
#include "base/try.h"
#include "transport/endpoint.h"

namespace wideep::transport {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSlowdown = base::kSanitized ? 10 : 1;

// ---- ranks ----

// Meets the other members again and again, until all leave because it was asked for. True: the
// ranks are to end.
Result<bool> meet(Endpoint& world, const std::vector<int>& members) {
  Endpoint group(world, Group::kStage, members);
  for (int64_t iteration = 0;; ++iteration) {
    const ControlPage& control = world.memory().control();
    AgreedWords mine = {};
    mine[0] = control.stop_requested.load();
    mine[1] = control.change_requested.load();
    std::vector<AgreedWords> all;
    WIDEEP_TRY(
        group.agree(mine, {.what = "the others", .layer = -1, .iteration = iteration}, &all));
    bool stops = false, leaves = false;
    for (const AgreedWords& each : all) {
      stops = stops || each[0] != 0;
      leaves = leaves || each[1] != 0;
    }
    if (stops || leaves) return stops;
    std::this_thread::sleep_for(1ms);
  }
}

// A rank that sends word of each epoch. before_join: called each time.
Status rank_body(Seat& seat, const std::function<void()>& before_join = [] {}) {
  for (;;) {
    before_join();
    WIDEEP_TRY_ASSIGN(const std::optional<Members> members, seat.join());
    if (!members) return {};
    WIDEEP_TRY(
        seat.messenger().send(fmt::format("{} {} {:d} {}", ::getpid(), members->epoch,
                                          members->has_new_front, fmt::join(members->ranks, " "))));
    const Result<bool> stops = meet(seat.world(), members->ranks);
    if (stops.ok() ? *stops : !seat.has_lost(stops.status())) return stops.status();
  }
}

// What a rank said of its epoch.
struct Word {
  pid_t pid = 0;
  uint32_t epoch = 0;
  bool has_new_front = false;
  std::vector<int> members;
};
Word parse(const std::string& text) {
  std::istringstream words(text);
  Word word;
  words >> word.pid >> word.epoch >> word.has_new_front;
  word.members.assign(std::istream_iterator<int>(words), {});
  return word;
}

// ---- fronts ----

// Reads what the ranks say.
class Listener {
 public:
  explicit Listener(KeptRanks& ranks) : ranks_(ranks) {}

  // Until these are the members of an epoch after the last one that was waited for, and all have
  // said so. Errors: they end before.
  Status wait_for(const std::vector<int>& members) {
    for (;;) {
      for (const auto& [epoch, group] : groups_) {
        const bool all = group.members == members && group.speakers.size() == members.size();
        if (epoch <= seen_epoch_ || !all) continue;
        seen_epoch_ = epoch;
        return {};
      }
      WIDEEP_TRY(take_next(fmt::format("{} computed together", fmt::join(members, ", "))));
    }
  }
  // Until so many have died in all.
  Status wait_for_deaths(size_t count) {
    while (deaths_.size() < count) WIDEEP_TRY(take_next(fmt::format("{} died", count)));
    return {};
  }
  Status wait_for_stop_signal() {
    while (stop_signals_.empty()) WIDEEP_TRY(take_next("a signal came"));
    return {};
  }
  Status wait_for_drain_signal() {
    while (drain_signals_ == 0) WIDEEP_TRY(take_next("the keeper has told of SIGHUP"));
    return {};
  }
  // Ends the ranks. Returns the group's result.
  Status end() {
    ranks_.memory().control().stop_requested = 1;
    ranks_.stop();
    ranks_.end_within(2s * kSlowdown);
    while (const auto event = ranks_.next()) answer(*event);
    return ranks_.result();
  }

  const Word& word_of(int rank) { return words_[rank]; }
  void strike(int rank, int signal) { ::kill(words_[rank].pid, signal); }
  const std::vector<RankDied>& deaths() const { return deaths_; }
  bool was_group(const std::vector<int>& members) const {
    return std::ranges::any_of(groups_,
                               [&](const auto& each) { return each.second.members == members; });
  }

 private:
  struct Group {
    std::vector<int> members;
    std::set<int> speakers;
  };

  // awaited: for the error, what has not happened before the ranks ended.
  Status take_next(const std::string& awaited) {
    const auto event = ranks_.next();
    if (!event) {
      return failed(
          fmt::format("the ranks have ended before {}: {}", awaited, ranks_.result().message()));
    }
    answer(*event);
    if (const auto* died = std::get_if<RankDied>(&*event)) deaths_.push_back(*died);
    if (const auto* stop = std::get_if<StopSignal>(&*event)) stop_signals_.push_back(stop->signal);
    if (std::holds_alternative<DrainSignal>(*event)) ++drain_signals_;
    if (const auto* message = std::get_if<RankMessage>(&*event)) {
      const Word word = words_[message->rank] = parse(message->bytes);
      groups_[word.epoch].members = word.members;
      groups_[word.epoch].speakers.insert(message->rank);
    }
    return {};
  }

  void answer(const RankEvent& event) {
    if (const auto* ping = std::get_if<Ping>(&event)) ranks_.answer(*ping);
  }

  KeptRanks& ranks_;
  std::vector<int> stop_signals_;
  int drain_signals_ = 0;
  std::map<int, Word> words_;         // the last one of each rank
  std::map<uint32_t, Group> groups_;  // of each epoch
  uint32_t seen_epoch_ = 0;
  std::vector<RankDied> deaths_;
};

// Counts what happens in any of the processes.
class SharedCount {
 public:
  SharedCount()
      : value_(new(::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0)) {}
  ~SharedCount() { ::munmap(value_, sizeof(*value_)); }
  int next() const { return value_->fetch_add(1); }

 private:
  std::atomic<int>* value_;
};

KeeperOptions options(int num_ranks) {
  return {.group = {.num_ranks = num_ranks, .segment_bytes = 4096, .timeout = 20s},
          .wanted = num_ranks,
          .leave_timeout = 1s * kSlowdown};
}

Status keep(
    const KeeperOptions& options, const std::function<Status(Listener&, KeptRanks&)>& use,
    const std::function<Status(Seat&)>& rank = [](Seat& seat) { return rank_body(seat); }) {
  return keep_ranks(options, rank, [&](std::unique_ptr<KeptRanks> ranks) {
    Listener listener(*ranks);
    return use(listener, *ranks);
  });
}

#define EXPECT_OK(expression)                   \
  do {                                          \
    const Status ended = expression;            \
    EXPECT_TRUE(ended.ok()) << ended.message(); \
  } while (false)

// Nothing may stay: no process, no descriptor.
class Keeping : public ::testing::Test {
 protected:
  void SetUp() override {
    ::alarm(60 * kSlowdown);  // instead of waiting for ever
    descriptors_ = num_descriptors();
  }
  void TearDown() override {
    ::alarm(0);
    EXPECT_EQ(num_descriptors(), descriptors_);
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
  }

 private:
  static long num_descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  }
  long descriptors_ = 0;
};

TEST_F(Keeping, RanksComputeTogetherAndEndWhenAsked) {
  EXPECT_OK(keep(options(3), [](Listener& ranks, KeptRanks& kept) -> Status {
    EXPECT_EQ(kept.past().num_fronts, 0);
    WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
    if (ranks.word_of(0).epoch != 1) return failed("not the first epoch");
    return ranks.end();
  }));
}

// Its successor is there so soon that the others may not have computed without it.
TEST_F(Keeping, ARankThatIsKilledReturns) {
  EXPECT_OK(keep(options(3), [](Listener& ranks, KeptRanks&) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
    const Word before = ranks.word_of(1), other = ranks.word_of(0);
    ranks.strike(1, SIGKILL);
    WIDEEP_TRY(ranks.wait_for_deaths(1));
    const RankDied& death = ranks.deaths().front();
    if (death.rank != 1 || death.was_expected || death.is_own_fault) return failed("which death?");
    if (death.how.find("was ended by signal 9") == death.how.npos) return failed(death.how);
    WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
    if (ranks.word_of(1).pid == before.pid) return failed("the dead one speaks");
    if (ranks.word_of(0).pid != other.pid) return failed("rank 0 was not to be started again");
    if (ranks.word_of(0).epoch <= other.epoch) return failed("the epoch of before");
    return ranks.end();
  }));
}

TEST_F(Keeping, TheOthersGoOnWhileARankStaysAway) {
  const SharedCount starts;
  EXPECT_OK(keep(
      options(3),
      [](Listener& ranks, KeptRanks&) -> Status {
        WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
        ranks.strike(1, SIGKILL);
        WIDEEP_TRY(ranks.wait_for({0, 2}));
        WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
        if (ranks.deaths().size() != 4) return failed("expected four deaths");
        return ranks.end();
      },
      [&](Seat& seat) {
        const int before = seat.rank() == 1 ? starts.next() : 0;
        if (before >= 1 && before <= 3) ::raise(SIGKILL);
        return rank_body(seat);
      }));
}

TEST_F(Keeping, AllRanksMayDieAtOnce) {
  EXPECT_OK(keep(options(2), [](Listener& ranks, KeptRanks&) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    for (const int rank : {0, 1}) ranks.strike(rank, SIGKILL);
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    return ranks.end();
  }));
}

TEST_F(Keeping, AStoppedRankIsReplaced) {
  EXPECT_OK(keep(options(2), [](Listener& ranks, KeptRanks&) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    ranks.strike(1, SIGSTOP);
    WIDEEP_TRY(ranks.wait_for_deaths(1));
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    return ranks.end();
  }));
}

// It is there, and does nothing: the others' deadline tells, and then it does not leave.
TEST_F(Keeping, ARankThatHangsIsReplaced) {
  KeeperOptions soon = options(3);
  soon.group.timeout = 500ms * kSlowdown;
  soon.leave_timeout = 500ms * kSlowdown;
  const SharedCount starts;
  EXPECT_OK(keep(
      soon,
      [](Listener& ranks, KeptRanks&) -> Status {
        WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
        const pid_t innocent = ranks.word_of(0).pid;
        WIDEEP_TRY(ranks.wait_for_deaths(1));
        const RankDied& death = ranks.deaths().front();
        if (death.rank != 2) return failed("the wrong one was killed");
        if (!death.is_own_fault) return failed("what it computes may be the cause");
        // On a machine so slow that not all had met by the deadline, its successor was there first.
        if (ranks.word_of(2).epoch == 1) WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
        if (ranks.word_of(0).pid != innocent) return failed("others were replaced");
        return ranks.end();
      },
      [&](Seat& seat) -> Status {
        if (seat.rank() != 2 || starts.next() > 0) return rank_body(seat);
        WIDEEP_TRY_ASSIGN(const auto members, seat.join());
        WIDEEP_TRY(seat.messenger().send(fmt::format("{} 1 0 0 1 2", ::getpid())));
        for (;;) ::pause();
      }));
}

TEST_F(Keeping, WithFewerThanTheLeastAllWait) {
  KeeperOptions all = options(3);
  all.min = 3;
  const SharedCount starts;
  EXPECT_OK(keep(
      all,
      [](Listener& ranks, KeptRanks&) -> Status {
        WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
        ranks.strike(1, SIGKILL);
        WIDEEP_TRY(ranks.wait_for_deaths(1));
        WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
        if (ranks.was_group({0, 2})) return failed("two have computed without the third");
        return ranks.end();
      },
      [&](Seat& seat) {
        const int before = seat.rank() == 1 ? starts.next() : 0;
        if (before >= 1 && before <= 2) ::raise(SIGKILL);
        return rank_body(seat);
      }));
}

TEST_F(Keeping, TheNumberOfRanksChanges) {
  KeeperOptions one = options(3);
  one.wanted = 1;
  EXPECT_OK(keep(one, [](Listener& ranks, KeptRanks& kept) -> Status {
    WIDEEP_TRY(ranks.wait_for({0}));
    WIDEEP_TRY(kept.want(3));
    WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
    WIDEEP_TRY(kept.want(2));
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    WIDEEP_TRY(ranks.wait_for_deaths(1));
    const RankDied& death = ranks.deaths().front();
    if (death.rank != 2 || !death.was_expected) return failed(death.how);
    return ranks.end();
  }));
}

// ---- draining ----

// Whether SIGHUP would mean that a terminal has gone.
bool has_terminal() {
  const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal >= 0) ::close(terminal);
  return terminal >= 0;
}

TEST_F(Keeping, FrontsThatFollowDrainUntilItIsTakenBack) {
  EXPECT_OK(keep(options(2), [](Listener& ranks, KeptRanks& kept) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    // The third one is the first that may take requests again.
    constexpr bool kDrains[] = {false, true, false};
    const int number = kept.past().num_fronts;
    if (kept.past().drains != kDrains[number]) return failed(fmt::format("front {}", number));
    if (number == 2) return ranks.end();
    WIDEEP_TRY(kept.drains(number == 0));
    ::raise(SIGKILL);
    return {};
  }));
}

TEST_F(Keeping, SighupReachesTheFrontAndThoseThatFollow) {
  if (has_terminal()) GTEST_SKIP() << "with a terminal SIGHUP says that it has gone";
  EXPECT_OK(keep(options(2), [](Listener& ranks, KeptRanks& kept) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    if (kept.past().num_fronts == 0) {
      ::kill(::getppid(), SIGHUP);
      WIDEEP_TRY(ranks.wait_for_drain_signal());
      ::raise(SIGHUP);  // service managers send it to all processes: nobody else heeds it
      ranks.strike(1, SIGHUP);
      ::raise(SIGKILL);
    }
    return kept.past().drains ? ranks.end() : failed("it has not heard of the drain");
  }));
}

// ---- what the service manager hears ----

// A socket as the service manager has it, and the notifier that is told of it.
class Manager {
 public:
  Manager() : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const std::string name = fmt::format("@wideep-keeper-test-{}", ::getpid());
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path + 1, name.data() + 1, name.size() - 1);
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address_), size_), 0);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    notifier_.emplace(base::ServiceNotifier::take_from_environment());
  }
  ~Manager() { ::close(fd_); }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  const base::ServiceNotifier* notifier() const { return &*notifier_; }
  // All that has come.
  std::vector<std::string> messages() const {
    std::vector<std::string> all;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0;) {
      all.emplace_back(bytes, static_cast<size_t>(got));
    }
    return all;
  }
  // For a front, whose notes the keeper reads when it comes to it: until `last` is the last that has
  // come. All stay to be read.
  void wait_for(const std::string& last) const {
    std::vector<std::string> all;
    while (all.empty() || all.back() != last) {
      for (std::string& each : messages()) all.push_back(std::move(each));
      ::usleep(1000);
    }
    for (const std::string& each : all) {
      ::sendto(fd_, each.data(), each.size(), 0, reinterpret_cast<const sockaddr*>(&address_),
               size_);
    }
  }

 private:
  int fd_;
  sockaddr_un address_{};
  socklen_t size_ = 0;
  std::optional<base::ServiceNotifier> notifier_;
};

// What ranks read when they return, and another front, do not begin the service anew.
TEST_F(Keeping, TheManagerHearsOnceThatTheServiceIsReady) {
  const Manager manager;
  KeeperOptions watched = options(2);
  watched.manager = manager.notifier();
  EXPECT_OK(keep(watched, [&](Listener& ranks, KeptRanks& kept) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    kept.report("loading 7 %", false);
    kept.report("serving m", true);
    kept.report("loading 8 %", false);
    WIDEEP_TRY(kept.drains(kept.past().num_fronts == 0));
    if (kept.past().num_fronts == 0) ::raise(SIGKILL);
    manager.wait_for("STATUS=serving m");
    ::kill(::getppid(), SIGTERM);
    WIDEEP_TRY(ranks.wait_for_stop_signal());
    kept.report("loading 9 %", false);
    return ranks.end();
  }));
  EXPECT_THAT(
      manager.messages(),
      testing::ElementsAre("STATUS=loading 7 %\nEXTEND_TIMEOUT_USEC=120000000",
                           "READY=1\nSTATUS=serving m", "STATUS=draining: no requests are taken",
                           "STATUS=draining: no requests are taken", "STATUS=serving m",
                           HasSubstr("STOPPING=1")));
}

// ---- after a stop signal ----

TEST_F(Keeping, AfterAStopSignalRanksReturnUntilNothingIsLeftToDo) {
  EXPECT_OK(keep(options(3), [](Listener& ranks, KeptRanks& kept) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
    ::kill(::getppid(), SIGTERM);
    WIDEEP_TRY(ranks.wait_for_stop_signal());
    kept.end_within(20s);
    ranks.strike(1, SIGKILL);
    WIDEEP_TRY(ranks.wait_for_deaths(1));
    WIDEEP_TRY(ranks.wait_for({0, 1, 2}));
    return ranks.end();
  }));
}

TEST_F(Keeping, TheStopSignalReachesTheFrontThatFollows) {
  EXPECT_OK(keep(options(2), [](Listener& ranks, KeptRanks& kept) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    if (kept.past().num_fronts == 0) {
      ::kill(::getppid(), SIGTERM);
      ::raise(SIGSTOP);  // before it can have read of it
    }
    WIDEEP_TRY(ranks.wait_for_stop_signal());
    return ranks.end();
  }));
}

TEST_F(Keeping, TheGraceAfterAStopSignalHasAnEnd) {
  const Status ended = keep(options(2), [](Listener& ranks, KeptRanks& kept) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    ::kill(::getppid(), SIGTERM);
    WIDEEP_TRY(ranks.wait_for_stop_signal());
    kept.end_within(300ms);
    return ranks.wait_for({});
  });
  EXPECT_THAT(ended.message(), HasSubstr("interrupted before the current iteration ended"));
}

// ---- what is not what it was ----

TEST_F(Keeping, NoRankIsStartedAgainFromWhatHasChanged) {
  const SharedCount looks;
  KeeperOptions changing = options(2);
  changing.can_go_on = [&] { return looks.next() == 0 ? Status() : failed("another file"); };
  const Status ended = keep(changing, [](Listener& ranks, KeptRanks&) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    ranks.strike(1, SIGKILL);
    return ranks.wait_for({});
  });
  EXPECT_THAT(ended.message(), HasSubstr("another file"));
}

// ---- before all compute ----

TEST_F(Keeping, ADeathBeforeTheFirstEpochIsAnError) {
  const Status ended = keep(
      options(2), [](Listener& ranks, KeptRanks&) { return ranks.wait_for({0, 1}); },
      [](Seat& seat) -> Status {
        if (seat.rank() == 1) ::_exit(9);
        return rank_body(seat);
      });
  EXPECT_THAT(ended.message(), AllOf(HasSubstr("rank 1 "), HasSubstr("exit code 9")));
}

TEST_F(Keeping, TheErrorOfARankIsPassedOn) {
  const Status ended = keep(
      options(2), [](Listener& ranks, KeptRanks&) { return ranks.wait_for({0, 1}); },
      [](Seat& seat) -> Status {
        return seat.rank() == 1 ? invalid_input("no weights today") : rank_body(seat);
      });
  EXPECT_THAT(ended.message(), AllOf(HasSubstr("rank 1 "), HasSubstr("no weights today")));
}

// Later it is a death like others: of itself, with the error as the reason.
TEST_F(Keeping, ARankThatThrowsDiesOfItself) {
  const SharedCount joins;
  EXPECT_OK(keep(
      options(2),
      [](Listener& ranks, KeptRanks&) -> Status {
        WIDEEP_TRY(ranks.wait_for({0, 1}));
        ranks.strike(1, SIGKILL);  // then rank 0 leaves, and throws
        WIDEEP_TRY(ranks.wait_for_deaths(2));
        const RankDied& death = ranks.deaths().back();
        if (death.rank != 0 || !death.is_own_fault) return failed(death.how);
        if (death.how.find("bad_alloc") == death.how.npos) return failed(death.how);
        WIDEEP_TRY(ranks.wait_for({0, 1}));
        return ranks.end();
      },
      [&](Seat& seat) {
        return rank_body(seat, [&] {
          if (seat.rank() == 0 && joins.next() == 1) throw std::bad_alloc();
        });
      }));
}

// It fails its group with an error of its own, which the next group would have, too.
TEST_F(Keeping, ARankThatCannotGoOnItselfDoesNotHoldUpTheOthers) {
  const SharedCount starts, joins;
  EXPECT_OK(keep(
      options(2),
      [&](Listener& ranks, KeptRanks&) -> Status {
        WIDEEP_TRY(ranks.wait_for({0, 1}));
        WIDEEP_TRY(ranks.wait_for_deaths(2));
        for (const RankDied& death : ranks.deaths()) {
          const bool says_why = death.how.find("no 1 MiB is left") != death.how.npos;
          if (death.rank != 1 || !death.is_own_fault || !says_why) return failed(death.how);
        }
        WIDEEP_TRY(ranks.wait_for({0}));  // while the other one waits for its next try
        WIDEEP_TRY(ranks.wait_for({0, 1}));
        if (joins.next() > 10) return failed("the others have joined again and again");
        return ranks.end();
      },
      [&](Seat& seat) -> Status {
        if (seat.rank() == 0) return rank_body(seat, [&] { joins.next(); });
        if (starts.next() > 2) return rank_body(seat);
        WIDEEP_TRY_ASSIGN(const auto members, seat.join());
        WIDEEP_TRY(seat.messenger().send(fmt::format("{} {} 0 0 1", ::getpid(), members->epoch)));
        const Status own = failed("no 1 MiB is left");
        seat.world().fail_group(own);
        return seat.has_lost(own) ? failed("it would join again") : own;
      }));
}

// Its members find it broken though all are there.
TEST_F(Keeping, GroupsThatAreGivenUpFollowEachOtherEverMoreSlowly) {
  const SharedCount joins;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_OK(keep(
      options(2),
      [](Listener& ranks, KeptRanks&) -> Status {
        WIDEEP_TRY(ranks.wait_for({0, 1}));
        return ranks.end();
      },
      [&](Seat& seat) -> Status {
        for (int i = 0; seat.rank() == 1 && i < 4; ++i) {
          WIDEEP_TRY(seat.join().status());
          seat.world().memory().fail(failed("the network is tired"));
        }
        return rank_body(seat);
      }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 200ms + 400ms + 800ms);
}

// ---- fronts that die ----

// dies: how the first one does.
void expect_another_front(const std::function<void()>& dies) {
  EXPECT_OK(keep(options(2), [&](Listener& ranks, KeptRanks& kept) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    if (kept.past().num_fronts == 0) {
      WIDEEP_TRY(kept.want(1));
      WIDEEP_TRY(ranks.wait_for({0}));
      WIDEEP_TRY(kept.want(2));
      WIDEEP_TRY(ranks.wait_for({0, 1}));
      dies();
    }
    if (kept.past().num_fronts != 1 || kept.past().wanted != 2) return failed("another past");
    if (!ranks.word_of(0).has_new_front) return failed("the ranks do not know of it");
    return ranks.end();
  }));
}

TEST_F(Keeping, AnotherFrontFollowsOneThatIsKilled) {
  expect_another_front([] { ::raise(SIGKILL); });
}
TEST_F(Keeping, AnotherFrontFollowsOneThatIsStopped) {
  expect_another_front([] { ::raise(SIGSTOP); });
}
TEST_F(Keeping, AnotherFrontFollowsOneThatExits) {
  expect_another_front([] { ::_exit(3); });
}
TEST_F(Keeping, AnotherFrontFollowsOneThatThrows) {
  expect_another_front([] { throw std::bad_alloc(); });
}

TEST_F(Keeping, AnErrorThatAFrontReturnsEndsAll) {
  const Status ended = keep(options(2), [](Listener& ranks, KeptRanks&) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    return invalid_input("nothing to serve");
  });
  EXPECT_EQ(ended.message(), "nothing to serve");
}

TEST_F(Keeping, FrontsThatDieOfThemselvesAtOnceEndAll) {
  const SharedCount fronts;
  const Status ended = keep(options(2), [&](Listener& ranks, KeptRanks&) -> Status {
    WIDEEP_TRY(ranks.wait_for({0, 1}));
    fronts.next();
    ::_exit(3);
  });
  EXPECT_THAT(ended.message(), HasSubstr("the serving process ended with exit code 3"));
  EXPECT_EQ(fronts.next(), 5);
}

// ---- clients ----

// A socket that listens on a free port of this machine.
class ListeningSocket {
 public:
  ListeningSocket() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address_);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address_), length), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &length), 0);
  }
  ~ListeningSocket() { ::close(fd_); }
  int fd() const { return fd_; }
  int connect() const {
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return ::connect(client, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)) == 0
               ? client
               : -1;
  }

 private:
  int fd_;
  sockaddr_in address_ = {};
};

HeldConnections::Held next_client(KeptRanks& kept) {
  for (;;) {
    if (const auto held = kept.connections().next()) return *held;
    pollfd readable = {kept.connections().fd(), POLLIN, 0};
    ::poll(&readable, 1, -1);
  }
}

// Rank 0 is the client: its socket outlives the first front.
void expect_kept_connection(const std::function<void()>& dies, bool is_suspect) {
  const ListeningSocket listener;
  const SharedCount companions;
  KeeperOptions with_clients = options(2);
  with_clients.group.timeout = with_clients.front_patience = 3s * kSlowdown;
  with_clients.listener = listener.fd();
  with_clients.companion = [&](int) -> Result<int> {
    companions.next();
    return ::memfd_create("companion", MFD_CLOEXEC);
  };
  EXPECT_OK(keep(
      with_clients,
      [&](Listener& ranks, KeptRanks& kept) -> Status {
        kept.connections().accept();
        const HeldConnections::Held held = next_client(kept);
        if (held.id != 1 || held.companion < 0) return failed("which connection?");
        if (kept.past().num_fronts == 0) {
          WIDEEP_TRY(ranks.wait_for({0, 1}));
          if (::write(held.companion, "note", 4) != 4) return failed("the companion is no file");
          dies();
        }
        if (held.is_suspect != is_suspect) return failed("whose fault was it?");
        std::array<char, 8> bytes = {};
        if (::pread(held.companion, bytes.data(), 4, 0) != 4) return failed("the note is lost");
        pollfd readable = {held.socket, POLLIN, 0};
        ::poll(&readable, 1, 10'000);
        if (::read(held.socket, bytes.data(), bytes.size()) != 5) return failed("no hello");
        WIDEEP_TRY(ranks.wait_for({0, 1}));
        return ranks.end();
      },
      [&](Seat& seat) {
        if (seat.rank() != 0) return rank_body(seat);
        const int client = listener.connect();
        if (client < 0 || ::write(client, "hello", 5) != 5) return failed("cannot connect");
        const Status result = rank_body(seat);
        ::close(client);
        return result;
      }));
  EXPECT_EQ(companions.next(), 1);
}

// A client for whom no descriptor is left in the front would be lost.
TEST_F(Keeping, MoreClientsThanFilesWait) {
  const ListeningSocket listener;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {.rlim_cur = 64 + 8 + 2 * 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  KeeperOptions with_clients = options(1);
  with_clients.listener = listener.fd();
  EXPECT_OK(keep(with_clients, [&](Listener& ranks, KeptRanks& kept) -> Status {
    std::vector<int> clients;
    for (int i = 0; i < 4; ++i) clients.push_back(listener.connect());
    kept.connections().accept();
    for (const int64_t id : {1, 2, 3}) {
      if (next_client(kept).id != id) return failed("clients come in another order");
    }
    pollfd readable = {kept.connections().fd(), POLLIN, 0};
    if (::poll(&readable, 1, 300) != 0) return failed("a fourth client");
    kept.connections().drop(2);
    if (next_client(kept).id != 4) return failed("no fourth client");
    WIDEEP_TRY(ranks.wait_for({0}));
    return ranks.end();
  }));
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(Keeping, ConnectionsOutliveAFrontThatIsKilled) {
  expect_kept_connection([] { ::raise(SIGKILL); }, false);
}
TEST_F(Keeping, ConnectionsOfAFrontThatDiesOfItselfAreSuspect) {
  expect_kept_connection([] { ::_exit(3); }, true);
}
// It is killed by the keeper, but not for nothing: a request that hangs a front hangs the next one.
TEST_F(Keeping, ConnectionsOfAFrontThatHangsAreSuspect) {
  expect_kept_connection(
      [] {
        for (;;) ::pause();
      },
      true);
}

}  // namespace
}  // namespace wideep::transport
