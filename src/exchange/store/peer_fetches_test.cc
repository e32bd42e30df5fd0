// SPDX-License-Identifier: Apache-2.0
#include "store/peer_fetches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "store/host_tier.h"
#include "store/records_testing.h"

namespace wideep::store {
namespace {

using ::testing::HasSubstr;
using End = PeerFetches::End;
using std::chrono::milliseconds;
constexpr uint64_t kBytes = 20'000;

class PeerFetchesTest : public testing::Test {
 protected:
  void SetUp() override { start(0); }

  void start(uint16_t port, const char* host = "127.0.0.1") {
    auto server = PageServer::start({.address = transport::resolve(host, port).value(),
                                     .token = "secret",
                                     .record_class = "class",
                                     .state_of =
                                         [this](auto request) {
                                           when_asked_();
                                           return status_of(request);
                                         }},
                                    memory_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }
  void set(const std::string& request, RequestState state, milliseconds ended_before = {}) {
    const std::lock_guard lock(mutex_);
    states_[request] = {state, PeerFetches::Clock::now() - ended_before};
  }
  RequestStatus status_of(std::string_view request) {
    const std::lock_guard lock(mutex_);
    const auto found = states_.find(std::string(request));
    if (found == states_.end()) return {};
    const auto& [state, since] = found->second;
    return {.state = state,
            .ended_before =
                std::chrono::duration_cast<milliseconds>(PeerFetches::Clock::now() - since)};
  }
  void offer(const Head& head) {
    ASSERT_EQ(tier_->offer(head, payload_of(head), 1.0, kIntact), OfferResult::kTaken);
  }

  // A prompt that is fetched, and where to.
  struct Prompt {
    std::vector<Head> heads;
    std::vector<std::vector<std::byte>> bytes;
    std::vector<std::byte> state_bytes = std::vector<std::byte>(kBytes);
    Head state;

    void expect(size_t pages) const {
      for (size_t i = 0; i < pages; ++i) EXPECT_EQ(bytes[i], payload_of(heads[i])) << i;
    }
  };
  static Prompt prompt(int sequence, uint32_t pages) {
    Prompt prompt{.heads = sequence_of(sequence, pages, kBytes), .bytes = {}, .state = {}};
    prompt.bytes.resize(pages, std::vector<std::byte>(kBytes));
    prompt.state = prompt.heads.back();
    prompt.state.kind = Kind::kState;
    return prompt;
  }
  void begin(PeerFetches& fetches, uint64_t ticket, Prompt& prompt, bool with_state = false) const {
    begin_at(fetches, {.host = {"127.0.0.1", server_->address().port}, .token = "secret"}, ticket,
             prompt, with_state);
  }
  static void begin_at(PeerFetches& fetches, PagePeer peer, uint64_t ticket, Prompt& prompt,
                       bool with_state = false) {
    peer.request = "r" + std::to_string(ticket);
    PeerFetches::Order order{.ticket = ticket, .peer = std::move(peer), .pages = {}};
    for (size_t i = 0; i < prompt.heads.size(); ++i) {
      order.pages.push_back({prompt.heads[i], prompt.bytes[i]});
    }
    if (with_state) order.state = FetchOrder{prompt.state, prompt.state_bytes};
    fetches.begin(std::move(order));
  }
  // Polls until so many pages of a fetch have come, and nothing has ended.
  static void wait_for_pages(PeerFetches& fetches, uint64_t ticket, size_t pages) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (fetches.num_pages(ticket) < pages && std::chrono::steady_clock::now() < deadline) {
      EXPECT_TRUE(fetches.poll().empty());
    }
    EXPECT_EQ(fetches.num_pages(ticket), pages);
  }
  // Nothing ends meanwhile.
  static void poll_for(PeerFetches& fetches, milliseconds time) {
    const auto end = PeerFetches::Clock::now() + time;
    while (PeerFetches::Clock::now() < end) {
      EXPECT_TRUE(fetches.poll().empty());
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  // Of the next fetch that ends.
  static PeerFetches::Done end_of(PeerFetches& fetches) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < deadline) {
      std::vector<PeerFetches::Done> done = fetches.poll();
      if (!done.empty()) return done.front();
      std::this_thread::sleep_for(milliseconds(5));
    }
    ADD_FAILURE() << "it has not ended";
    return {};
  }

  base::SharedBytes memory_ = HostTier::create_memory(uint64_t{32} << 20).value();
  std::unique_ptr<HostTier> tier_ = HostTier::open(memory_).value();
  std::function<void()> when_asked_ = [] {};  // for a state: on the server's thread
  std::mutex mutex_;
  std::map<std::string, std::pair<RequestState, PeerFetches::Clock::time_point>> states_;
  std::unique_ptr<PageServer> server_;
};

// Two prompts whose pages come in turn, while they are computed.
TEST_F(PeerFetchesTest, PagesAreTakenAsTheyCome) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 70), two = prompt(2, 3);
  begin(fetches, 1, one);
  begin(fetches, 2, two);
  set("r1", RequestState::kComputes);
  set("r2", RequestState::kComputes);
  EXPECT_TRUE(fetches.poll().empty());
  for (size_t i = 0; i < 50; ++i) offer(one.heads[i]);
  wait_for_pages(fetches, 1, 50);
  EXPECT_EQ(fetches.num_pages(2), 0u);
  for (const Head& head : two.heads) offer(head);
  offer(one.heads[51]);  // behind a gap
  PeerFetches::Done done = end_of(fetches);
  EXPECT_EQ(done.ticket, 2u);
  EXPECT_EQ(done.end, End::kWhole);
  two.expect(3);
  EXPECT_EQ(fetches.num_pages(1), 50u);
  for (size_t i = 50; i < 70; ++i) {
    if (i != 51) offer(one.heads[i]);
  }
  done = end_of(fetches);
  EXPECT_EQ(done.end, End::kWhole);
  EXPECT_EQ(done.pages, 70u);
  EXPECT_EQ(done.bytes, 70 * kBytes);
  one.expect(70);
  EXPECT_EQ(fetches.size(), 0u);
}

// Seconds in which the peer still computes are nobody's loss.
TEST_F(PeerFetchesTest, WhatIsSentWhileThePeerComputesIsNotExposed) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 4), two = prompt(2, 4), three = prompt(3, 1);
  set("r1", RequestState::kComputes);
  begin(fetches, 1, one);
  poll_for(fetches, milliseconds(300));
  for (const Head& head : one.heads) offer(head);
  PeerFetches::Done done = end_of(fetches);
  EXPECT_EQ(done.end, End::kWhole);
  EXPECT_GE(done.seconds, 0.3);
  EXPECT_GT(done.transfer_seconds, 0.0);
  EXPECT_LE(done.transfer_seconds, done.seconds);
  EXPECT_LT(done.exposed_seconds, 0.1);
  // It ended in the middle, and its pages came late.
  set("r2", RequestState::kComputes);
  begin(fetches, 2, two);
  poll_for(fetches, milliseconds(200));
  set("r2", RequestState::kEnded);
  const auto ended = PeerFetches::Clock::now();
  poll_for(fetches, milliseconds(300));
  for (const Head& head : two.heads) offer(head);
  done = end_of(fetches);
  const std::chrono::duration<double> since = PeerFetches::Clock::now() - ended;
  EXPECT_EQ(done.end, End::kWhole);
  EXPECT_GE(done.exposed_seconds, 0.28);
  EXPECT_LE(done.exposed_seconds, since.count() + 0.002);
  EXPECT_GT(done.seconds, done.exposed_seconds + 0.15);
  // And before it was asked.
  set("r3", RequestState::kEnded, milliseconds(60'000));
  offer(three.heads[0]);
  begin(fetches, 3, three);
  done = end_of(fetches);
  EXPECT_EQ(done.exposed_seconds, done.seconds);
}

TEST_F(PeerFetchesTest, AStateComesWithThem) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 2);
  begin(fetches, 1, one, true);
  set("r1", RequestState::kComputes);
  for (const Head& head : one.heads) offer(head);
  wait_for_pages(fetches, 1, 2);
  offer(one.state);
  EXPECT_TRUE(end_of(fetches).has_state);
  EXPECT_EQ(one.state_bytes, payload_of(one.state));
}

// As many as are asked for may have come otherwise: which ones counts, and what they are.
TEST_F(PeerFetchesTest, WhatLiesBehindAPageThatNeverComesDoesNotCount) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 4);
  begin(fetches, 1, one);
  set("r1", RequestState::kComputes);
  for (const size_t page : {0, 1, 3}) offer(one.heads[page]);
  Head foreign = one.heads[2];
  foreign.tokens[7] += 1;  // the name of the missing one, and other tokens
  offer(foreign);
  wait_for_pages(fetches, 1, 2);
  set("r1", RequestState::kEnded);
  const PeerFetches::Done done = end_of(fetches);
  EXPECT_EQ(done.end, End::kPeerEnded);
  EXPECT_EQ(done.pages, 2u);
  one.expect(2);
  EXPECT_EQ(one.bytes[2], std::vector<std::byte>(kBytes));
}

// It was aborted there, or its pages were evicted. What is written behind may come for a while.
TEST_F(PeerFetchesTest, WhatThePeerHasEndedIsNotWaitedFor) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 4);
  begin(fetches, 1, one);
  set("r1", RequestState::kEnded);
  offer(one.heads[0]);
  wait_for_pages(fetches, 1, 1);
  offer(one.heads[1]);
  const PeerFetches::Done done = end_of(fetches);
  EXPECT_EQ(done.end, End::kPeerEnded);
  EXPECT_EQ(done.pages, 2u);
  EXPECT_LT(done.seconds, 10.0);
  one.expect(2);
}

TEST_F(PeerFetchesTest, WhatThePeerDoesNotKnowIsNotWaitedFor) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 4), two = prompt(2, 1);
  begin(fetches, 1, one);
  const PeerFetches::Done done = end_of(fetches);
  EXPECT_EQ(done.end, End::kNotKnown);
  EXPECT_EQ(done.pages, 0u);
  // But it may arrive there later than it is asked for.
  begin(fetches, 2, two);
  EXPECT_TRUE(fetches.poll().empty());
  set("r2", RequestState::kComputes);
  EXPECT_TRUE(fetches.poll().empty());
  offer(two.heads[0]);
  EXPECT_EQ(end_of(fetches).end, End::kWhole);
}

// It has computed another prompt with the same beginning before.
TEST_F(PeerFetchesTest, APeerThatComputesNothingIsNotWaitedFor) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 70);
  for (size_t i = 0; i < 70; ++i) {
    if (i != 40) offer(one.heads[i]);
  }
  const PagePeer peer = {.host = {"127.0.0.1", server_->address().port}, .token = "secret"};
  const auto found = fetches.find(peer, one.heads);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(std::ranges::count(*found, true), 69);
  EXPECT_FALSE((*found)[40]);
  const auto begin_unnamed = [&](uint64_t ticket) {
    PeerFetches::Order order{.ticket = ticket, .peer = peer, .pages = {}};
    for (size_t i = 0; i < one.heads.size(); ++i) {
      order.pages.push_back({one.heads[i], one.bytes[i]});
    }
    fetches.begin(std::move(order));
  };
  begin_unnamed(1);
  PeerFetches::Done done = end_of(fetches);
  EXPECT_EQ(done.end, End::kNoMore);
  EXPECT_EQ(done.pages, 40u);
  EXPECT_LT(done.seconds, 0.4);  // less than any grace
  EXPECT_EQ(done.exposed_seconds, done.seconds);
  one.expect(40);
  offer(one.heads[40]);
  begin_unnamed(2);
  EXPECT_EQ(end_of(fetches).end, End::kWhole);
  one.expect(70);
  // Nor is one that has died. It is asked once, and then left alone for a while.
  server_.reset();
  EXPECT_FALSE(fetches.find(peer, one.heads).ok());
  const auto begun = PeerFetches::Clock::now();
  const auto left = fetches.find(peer, one.heads);
  EXPECT_LT(PeerFetches::Clock::now() - begun, milliseconds(100));
  EXPECT_THAT(std::string(left.status().message()), HasSubstr("127.0.0.1"));
  begin_unnamed(3);
  const std::vector<PeerFetches::Done> ended = fetches.poll();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].end, End::kPeerGone);
}

TEST_F(PeerFetchesTest, APeerThatDiesLeavesWhatCame) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 4);
  begin(fetches, 1, one);
  set("r1", RequestState::kComputes);
  offer(one.heads[0]);
  wait_for_pages(fetches, 1, 1);
  const uint16_t port = server_->address().port;
  server_.reset();
  const PeerFetches::Done done = end_of(fetches);
  EXPECT_EQ(done.end, End::kPeerGone);
  EXPECT_GE(done.seconds, 2.0);  // kGoneGrace
  EXPECT_THAT(done.trouble, HasSubstr("127.0.0.1"));
  EXPECT_EQ(done.pages, 1u);
  one.expect(1);
  // All that are asked of it soon after end at once, and unasked; who comes after it is asked.
  start(port);
  Prompt two = prompt(2, 4);
  begin(fetches, 1, one);
  begin(fetches, 2, two);
  const std::vector<PeerFetches::Done> both = fetches.poll();
  ASSERT_EQ(both.size(), 2u);
  for (const PeerFetches::Done& each : both) {
    EXPECT_EQ(each.end, End::kPeerGone);
    EXPECT_EQ(each.trouble, done.trouble);
  }
  std::this_thread::sleep_for(milliseconds(1600));  // of an Outage since kGoneGrace began: 3 s
  begin(fetches, 1, one);
  for (size_t i = 1; i < 4; ++i) offer(one.heads[i]);
  EXPECT_EQ(end_of(fetches).end, End::kWhole);
  one.expect(4);
}

// It has given all pages, and no answer to the last question: the fetch is whole, and who comes
// next knows.
TEST_F(PeerFetchesTest, APeerThatDiesAfterTheLastPageIsLeftAlone) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 2), two = prompt(2, 1);
  set("r1", RequestState::kComputes);
  when_asked_ = [] { throw std::runtime_error("the connection ends"); };
  for (const Head& head : one.heads) offer(head);
  begin(fetches, 1, one);
  EXPECT_EQ(end_of(fetches).end, End::kWhole);
  one.expect(2);
  offer(two.heads[0]);
  begin(fetches, 2, two);
  EXPECT_EQ(end_of(fetches).end, End::kPeerGone);
}

TEST_F(PeerFetchesTest, NobodyWaitsLongForTheLastAnswer) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 2), two = prompt(2, 1);
  set("r1", RequestState::kComputes);
  when_asked_ = [] { std::this_thread::sleep_for(milliseconds(500)); };
  for (const Head& head : one.heads) offer(head);
  begin(fetches, 1, one);
  const PeerFetches::Done done = end_of(fetches);
  EXPECT_EQ(done.end, End::kWhole);
  EXPECT_LT(done.seconds, 0.4);
  // It was slow, and is there.
  offer(two.heads[0]);
  begin(fetches, 2, two);
  EXPECT_EQ(end_of(fetches).end, End::kWhole);
}

// Its front is started again, say.
TEST_F(PeerFetchesTest, APeerThatIsBackSoonGoesOn) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 4);
  begin(fetches, 1, one);
  set("r1", RequestState::kComputes);
  offer(one.heads[0]);
  wait_for_pages(fetches, 1, 1);
  const uint16_t port = server_->address().port;
  server_.reset();
  const auto begun = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begun < milliseconds(700)) {
    EXPECT_TRUE(fetches.poll().empty());
    std::this_thread::sleep_for(milliseconds(5));
  }
  start(port);
  for (size_t i = 1; i < 4; ++i) offer(one.heads[i]);
  EXPECT_EQ(end_of(fetches).end, End::kWhole);
  one.expect(4);
}

// Whatever is new at the peer is of other requests.
TEST_F(PeerFetchesTest, AFetchForWhichNothingComesIsAskedForLessOften) {
  std::atomic<int> num_asked = 0;
  when_asked_ = [&num_asked] { ++num_asked; };
  PeerFetches fetches("class");
  EXPECT_EQ(fetches.next_poll(), PeerFetches::Clock::time_point::max());
  Prompt one = prompt(1, 2);
  const Prompt other = prompt(2, 100);
  begin(fetches, 1, one);
  set("r1", RequestState::kComputes);
  EXPECT_LE(fetches.next_poll(), PeerFetches::Clock::now());
  const auto begun = PeerFetches::Clock::now();
  for (const Head& head : other.heads) {
    offer(head);
    EXPECT_TRUE(fetches.poll().empty());
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_GE(num_asked, 2);
  EXPECT_LE(num_asked, 4 + (PeerFetches::Clock::now() - begun) / PeerFetches::kLongestPause);
  offer(one.heads[0]);
  wait_for_pages(fetches, 1, 1);
  EXPECT_LE(fetches.next_poll(), PeerFetches::Clock::now() + PeerFetches::kFirstPause);
}

// Its memory says whether there is something to ask for.
TEST_F(PeerFetchesTest, APeerOnThisMachineIsAskedWhereSomethingIsNew) {
  std::atomic<int> num_asked = 0;
  when_asked_ = [&num_asked] { ++num_asked; };
  PeerFetches fetches("class");
  Prompt one = prompt(1, 3);
  begin(fetches, 1, one);
  set("r1", RequestState::kComputes);
  offer(one.heads[0]);
  wait_for_pages(fetches, 1, 1);
  poll_for(fetches, milliseconds(100));  // it knows that more is computed
  const int before = num_asked;
  poll_for(fetches, milliseconds(600));
  EXPECT_LE(num_asked - before, 4);
  EXPECT_LE(fetches.next_poll(), PeerFetches::Clock::now() + PeerFetches::kGlancePause);
  offer(one.heads[1]);
  const auto offered = std::chrono::steady_clock::now();
  wait_for_pages(fetches, 1, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - offered, PeerFetches::kLongestSilence / 2);
  offer(one.heads[2]);
  EXPECT_EQ(end_of(fetches).end, End::kWhole);
  one.expect(3);
}

TEST_F(PeerFetchesTest, WhatIsStillComputedComesInPartsAndTheRestAtOnce) {
  constexpr size_t kPages = 2 * PeerFetches::kHurryPages;
  PeerFetches fetches("class");
  Prompt one = prompt(1, kPages + 2);
  begin(fetches, 1, one);
  set("r1", RequestState::kComputes);
  offer(one.heads[0]);
  wait_for_pages(fetches, 1, 1);
  EXPECT_TRUE(fetches.poll().empty());  // it knows that more is computed
  for (size_t i = 1; i < PeerFetches::kHurryPages; ++i) offer(one.heads[i]);
  const auto begun = PeerFetches::Clock::now();
  wait_for_pages(fetches, 1, 3);
  EXPECT_EQ(fetches.num_pages(1), 3u);
  EXPECT_GE(PeerFetches::Clock::now() - begun, PeerFetches::kCalmPause);
  // Who is far behind hurries.
  for (size_t i = PeerFetches::kHurryPages; i < kPages; ++i) offer(one.heads[i]);
  while (fetches.num_pages(1) < 5) EXPECT_TRUE(fetches.poll().empty());
  EXPECT_GT(fetches.num_pages(1), PeerFetches::kHurryPages);
  // So does what has ended.
  for (size_t i = kPages; i < kPages + 2; ++i) offer(one.heads[i]);
  set("r1", RequestState::kEnded);
  const auto ended = PeerFetches::Clock::now();
  const PeerFetches::Done done = end_of(fetches);
  EXPECT_EQ(done.end, End::kWhole);
  EXPECT_LT(PeerFetches::Clock::now() - ended, 4 * PeerFetches::kCalmPause);
  one.expect(kPages + 2);
}

// Its memory is mapped until then, though it may be gone.
TEST_F(PeerFetchesTest, APeerIsLeftWithoutAnotherFetch) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 1);
  const auto begun = PeerFetches::Clock::now();
  begin(fetches, 1, one);
  offer(one.heads[0]);
  EXPECT_EQ(end_of(fetches).end, End::kWhole);
  EXPECT_GE(fetches.next_poll(), begun + PeerFetches::kIdleTime);
  EXPECT_LE(fetches.next_poll(), PeerFetches::Clock::now() + PeerFetches::kIdleTime);
}

TEST_F(PeerFetchesTest, WhatIsAbandonedEnds) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 4);
  begin(fetches, 1, one);
  set("r1", RequestState::kComputes);
  offer(one.heads[0]);
  wait_for_pages(fetches, 1, 1);
  fetches.abandon(7);
  EXPECT_TRUE(fetches.poll().empty());
  fetches.abandon(1);
  for (size_t i = 1; i < 4; ++i) offer(one.heads[i]);
  EXPECT_EQ(fetches.num_pages(1), 0u);
  const PeerFetches::Done done = end_of(fetches);
  EXPECT_EQ(done.end, End::kAbandoned);
  EXPECT_EQ(done.pages, 1u);
  EXPECT_EQ(one.bytes[1], std::vector<std::byte>(kBytes));
  EXPECT_EQ(fetches.size(), 0u);
}

// Each of its tokens would take as long as the first.
TEST_F(PeerFetchesTest, AHostThatDoesNotAnswerIsAskedForOneToken) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in own = {};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(own);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&own), length), 0);
  ASSERT_EQ(::listen(listener, 16), 0);  // and takes nobody
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&own), &length), 0);
  const RedisHost silent = {"127.0.0.1", ntohs(own.sin_port)};
  PeerFetches fetches("class");
  Prompt one = prompt(1, 1), other = prompt(2, 1);
  begin_at(fetches, {.host = silent, .token = "first"}, 1, one);
  const PeerFetches::Done first = end_of(fetches);
  EXPECT_EQ(first.end, End::kPeerGone);
  for (uint64_t ticket = 2; ticket < 102; ++ticket) {
    begin_at(fetches, {.host = silent, .token = std::to_string(ticket)}, ticket, one);
  }
  set("r200", RequestState::kComputes);
  offer(other.heads[0]);
  begin(fetches, 200, other);
  const auto begun = std::chrono::steady_clock::now();
  const std::vector<PeerFetches::Done> done = fetches.poll();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(500));
  ASSERT_EQ(done.size(), 101u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(done[i].end, End::kPeerGone);
    EXPECT_EQ(done[i].trouble, first.trouble);
  }
  EXPECT_EQ(done[100].end, End::kWhole);
  ::close(listener);
}

// Whoever has none must not keep others away.
TEST_F(PeerFetchesTest, AWrongTokenIsNoFailureOfItsHost) {
  PeerFetches fetches("class");
  Prompt one = prompt(1, 1), two = prompt(2, 1);
  begin_at(fetches, {.host = {"127.0.0.1", server_->address().port}, .token = "guessed"}, 1, one);
  EXPECT_EQ(end_of(fetches).end, End::kPeerGone);
  offer(two.heads[0]);
  begin(fetches, 2, two);
  EXPECT_EQ(end_of(fetches).end, End::kWhole);
}

TEST_F(PeerFetchesTest, ConnectionsToManyPeersDoNotStay) {
  server_.reset();
  start(0, "0.0.0.0");
  const auto num_sockets = [] {
    size_t count = 0;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const auto to = std::filesystem::read_symlink(each.path(), gone);
      count += to.string().starts_with("socket:") ? 1 : 0;
    }
    return count;
  };
  const size_t before = num_sockets();
  PeerFetches fetches("class");
  Prompt one = prompt(1, 1);
  offer(one.heads[0]);
  for (uint64_t i = 1; i <= 100; ++i) {
    const std::string host = "127.0.0." + std::to_string(i);  // all are this machine
    begin_at(fetches, {.host = {host, server_->address().port}, .token = "secret"}, i, one);
    EXPECT_EQ(end_of(fetches).end, End::kWhole);
  }
  // Both ends are in this process; that of the server follows.
  const size_t most = before + 2 * PeerFetches::kMaxPeers;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (num_sockets() > most && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_LE(num_sockets(), most);
}

}  // namespace
}  // namespace wideep::store
