// SPDX-License-Identifier: Apache-2.0
//
// A server and the place that asks it (peer_place.h), over a socket.
#include "store/page_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "base/sanitized.h"
#include "store/host_tier.h"
#include "store/page_memory.h"
#include "store/peer_place.h"
#include "store/records_testing.h"
#include "store/redis_record.h"
#include "transport/local_socket.h"

namespace wideep::store {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
constexpr uint64_t kBlock = HostIndex::kBlockBytes;

class PageServerTest : public testing::Test {
 protected:
  void SetUp() override { start(0); }

  void start(uint16_t port) {
    server_.reset();
    PageServerOptions options{.address = transport::resolve("127.0.0.1", port).value(),
                              .token = "secret",
                              .record_class = "class A",
                              .offering_token = "offers"};
    auto server = PageServer::start(std::move(options), memory_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }
  std::unique_ptr<PeerPlace> peer(const std::string& token = "secret",
                                  const std::string& record_class = "class A") const {
    return PeerPlace::make({.host = {"127.0.0.1", server_->address().port},
                            .token = token,
                            .record_class = record_class,
                            .maps_memory = false,
                            .lease = lease_})
        .value();
  }
  std::unique_ptr<PeerPlace> offering_peer(const std::string& token = "offers") const {
    return PeerPlace::make({.host = {"127.0.0.1", server_->address().port},
                            .token = token,
                            .record_class = "class A",
                            .offers = true})
        .value();
  }
  void offer(const std::vector<Head>& heads) {
    for (const Head& head : heads) {
      ASSERT_EQ(tier_->offer(head, payload_of(head), 1.0, kIntact), OfferResult::kTaken);
    }
  }
  // A search that took too long, on a busy machine, has said nothing.
  static std::vector<bool> found(PeerPlace& place, const std::vector<Head>& heads) {
    for (int attempt = 0;; ++attempt) {
      const uint64_t slow = place.counts().slow_finds;
      std::vector<bool> found = place.find(heads);
      if (place.counts().slow_finds == slow || attempt == 20) return found;
    }
  }
  // [heads] what each was; bytes of what is whole are compared. may_fail: on a busy machine an answer
  // may come too late.
  static std::vector<FetchResult> fetched(Place& place, const std::vector<Head>& heads,
                                          bool may_fail = false) {
    std::vector<std::vector<std::byte>> into;
    for (const Head& head : heads) into.emplace_back(head.part.bytes());
    std::vector<FetchOrder> orders;
    for (size_t i = 0; i < heads.size(); ++i) orders.push_back({heads[i], into[i]});
    std::vector<FetchResult> results;
    const Status status = place.fetch(orders, [&](size_t index, FetchResult result) {
      EXPECT_EQ(index, results.size());
      if (result == FetchResult::kWhole) {
        EXPECT_EQ(into[index], payload_of(heads[index]));
      }
      results.push_back(result);
      return true;
    });
    EXPECT_TRUE(status.ok() || may_fail) << status.message();
    return results;
  }
  // What is answered to these bytes, until the server ends the connection or `until` has come.
  std::string raw(const std::string& bytes, const std::string& until = {}) const {
    const int fd = transport::connect_to(server_->address(), std::chrono::seconds(5)).value();
    const timeval limit = {.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    [[maybe_unused]] const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    std::string answer;
    char some[4096];
    for (ssize_t count = 0; until.empty() || answer.find(until) == answer.npos;
         answer.append(some, static_cast<size_t>(count))) {
      count = ::recv(fd, some, sizeof(some), 0);
      if (count <= 0) break;
    }
    ::close(fd);
    return answer;
  }
  static std::string words(std::initializer_list<std::string_view> all) {
    std::string bytes;
    append_command(bytes, all);
    return bytes;
  }

  std::chrono::milliseconds lease_{30'000};
  base::SharedBytes memory_ = HostTier::create_memory(64 * kBlock).value();
  std::unique_ptr<HostTier> tier_ = HostTier::open(memory_).value();
  std::unique_ptr<PageServer> server_;
};

TEST_F(PageServerTest, APeerGetsWhatIsThere) {
  const std::vector<Head> pages = sequence_of(1, 5, 100'000);
  offer({pages.begin(), pages.begin() + 3});
  const auto place = peer();
  EXPECT_EQ(found(*place, pages), (std::vector<bool>{true, true, true, false, false}));
  using enum FetchResult;
  EXPECT_EQ(fetched(*place, pages),
            (std::vector<FetchResult>{kWhole, kWhole, kWhole, kMissing, kMissing}));
  EXPECT_EQ(place->counts().fetched, 3u);
  EXPECT_EQ(place->counts().fetched_bytes, 300'000u);
  EXPECT_EQ(place->counts().failures, 0u);
  EXPECT_EQ(place->offer(pages[4], payload_of(pages[4]), 1.0, kIntact), OfferResult::kRefused);
}

// More heads than one question has, and more bytes than lie unsent at once.
TEST_F(PageServerTest, ManyAreAskedForAtOnce) {
  server_.reset();
  memory_ = HostTier::create_memory(1024 * kBlock).value();
  tier_ = HostTier::open(memory_).value();
  start(0);
  const std::vector<Head> pages = sequence_of(1, 200, 200'000);
  offer(pages);
  const auto place = peer();
  EXPECT_EQ(found(*place, pages), std::vector<bool>(200, true));
  EXPECT_EQ(fetched(*place, pages), std::vector<FetchResult>(200, FetchResult::kWhole));
}

// As ranks with some of the heads do: of what two have written, what a third wants.
TEST_F(PageServerTest, PartsAreCutAndPutTogether) {
  Head whole = sequence_of(1, 1, 120'000).front();
  Head low = whole, high = whole, middle = whole;
  low.part = {.first = 0, .length = 1000, .stride = 3000, .count = 40};
  high.part = {.first = 1000, .length = 2000, .stride = 3000, .count = 40};
  middle.part = {.first = 500, .length = 1000, .stride = 3000, .count = 40};
  offer({low});
  const auto place = peer();
  EXPECT_EQ(found(*place, std::vector{low, high, middle, whole}),
            (std::vector<bool>{true, false, false, false}));
  offer({high});
  EXPECT_EQ(fetched(*place, {low, high, middle, whole}),
            std::vector<FetchResult>(4, FetchResult::kWhole));
}

TEST_F(PageServerTest, OthersTokensAreNothing) {
  const Head page = sequence_of(1, 1, 5000).front();
  offer({page});
  Head other = page;
  other.tokens[63] += 1;  // the same name
  const auto place = peer();
  EXPECT_EQ(found(*place, {other}), std::vector<bool>{false});
  EXPECT_EQ(fetched(*place, {other}), std::vector<FetchResult>{FetchResult::kMissing});
}

// Up to half of the memory; what comes then takes the other half, and when leases end all of it.
TEST_F(PageServerTest, WhatAPeerHasFoundIsNotEvicted) {
  lease_ = std::chrono::milliseconds(2000);
  const std::vector<Head> kept = sequence_of(1, 16, 2 * kBlock);
  const std::vector<Head> beyond = sequence_of(3, 16, 2 * kBlock);
  offer(kept);
  offer(beyond);
  const auto place = peer();
  EXPECT_EQ(found(*place, kept), std::vector<bool>(16, true));
  EXPECT_EQ(found(*place, beyond), std::vector<bool>(16, true));
  const std::vector<Head> more = sequence_of(2, 17, 2 * kBlock);
  offer({more.begin(), more.begin() + 16});
  EXPECT_EQ(tier_->offer(more[16], payload_of(more[16]), 100.0, kIntact), OfferResult::kRefused);
  EXPECT_EQ(fetched(*place, kept), std::vector<FetchResult>(16, FetchResult::kWhole));
  EXPECT_EQ(found(*place, beyond), std::vector<bool>(16, false));
  std::this_thread::sleep_for(lease_ + std::chrono::milliseconds(1050));
  EXPECT_EQ(tier_->offer(more[16], payload_of(more[16]), 100.0, kIntact), OfferResult::kTaken);
  const HostIndex::Lock lock(tier_->index());
  EXPECT_EQ(tier_->index().disagreement(), "");
}

// A whole sequence is kept by its last page: that counts as all of it.
TEST_F(PageServerTest, LeasesOfLastPagesCountWholeSequences) {
  const std::vector<Head> small = sequence_of(1, 20, kBlock), large = sequence_of(2, 40, kBlock);
  offer(small);
  offer(large);
  const auto place = peer();
  EXPECT_EQ(found(*place, {small.back(), large.back()}), (std::vector<bool>{true, true}));
  const std::vector<Head> more = sequence_of(3, 50, kBlock);
  for (size_t i = 0; i < 44; ++i) {
    ASSERT_EQ(tier_->offer(more[i], payload_of(more[i]), 100.0, kIntact), OfferResult::kTaken) << i;
  }
  EXPECT_EQ(tier_->offer(more[44], payload_of(more[44]), 100.0, kIntact), OfferResult::kRefused);
  EXPECT_EQ(fetched(*place, small), std::vector<FetchResult>(20, FetchResult::kWhole));
  const HostIndex::Lock lock(tier_->index());
  EXPECT_EQ(tier_->index().disagreement(), "");
}

TEST_F(PageServerTest, RanksOnOtherNodesOfferTheirs) {
  const std::vector<Head> pages = sequence_of(1, 3, 3'000'000);
  const auto place = offering_peer();
  EXPECT_EQ(place->offer(pages[0], payload_of(pages[0]), 1.0, kIntact), OfferResult::kTaken);
  EXPECT_EQ(place->offer(pages[0], payload_of(pages[0]), 1.0, kIntact), OfferResult::kKnown);
  EXPECT_EQ(place->offer(pages[1], payload_of(pages[1]), 1.0, [] { return false; }),
            OfferResult::kRefused);
  EXPECT_EQ(place->counts().taken, 1u);
  EXPECT_EQ(place->counts().taken_bytes, 3'000'000u);
  EXPECT_EQ(fetched(*place, pages),
            (std::vector<FetchResult>{FetchResult::kWhole, FetchResult::kMissing,
                                      FetchResult::kMissing}));
  // What does not fit, here or on the way.
  const Head large = sequence_of(2, 1, 10'000'000).front();
  EXPECT_EQ(place->offer(large, payload_of(large), 1.0, kIntact), OfferResult::kRefused);
  const Head huge = sequence_of(3, 1, 17'000'000).front();
  EXPECT_EQ(place->offer(huge, payload_of(huge), 1.0, kIntact), OfferResult::kRefused);
  EXPECT_EQ(place->counts().failures, 0u);
}

// Whole, or in pieces as a rank with some of the heads has them; also where others have some of it.
TEST_F(PageServerTest, WhatIsLargeIsOfferedInParts) {
  server_.reset();
  memory_ = HostTier::create_memory(1024 * kBlock).value();
  tier_ = HostTier::open(memory_).value();
  start(0);
  std::vector<Head> pages = sequence_of(1, 3, 12'000'001);
  pages[1].part = {.first = 1'000, .length = 70'000, .stride = 100'000, .count = 110};
  pages[2].part = {.first = 7, .length = 5'000'000, .stride = 6'000'000, .count = 2};
  const auto place = offering_peer();
  for (const Head& page : pages) {
    EXPECT_EQ(place->offer(page, payload_of(page), 1.0, kIntact), OfferResult::kTaken);
    EXPECT_EQ(place->offer(page, payload_of(page), 1.0, kIntact), OfferResult::kKnown);
  }
  EXPECT_EQ(fetched(*place, pages), std::vector<FetchResult>(3, FetchResult::kWhole));
  EXPECT_EQ(place->counts().taken, 3u);
  EXPECT_EQ(place->counts().taken_bytes, 12'000'001u + 7'700'000u + 10'000'000u);
}

// By what is more urgent, say.
TEST_F(PageServerTest, AnOfferThatIsInterruptedGoesOn) {
  server_.reset();
  memory_ = HostTier::create_memory(1024 * kBlock).value();
  tier_ = HostTier::open(memory_).value();
  start(0);
  const std::vector<Head> pages = sequence_of(1, 2, 12'000'000);  // 3 parts
  const auto place = offering_peer();
  int asked = 0;
  const auto refuse_second = [&] { return ++asked != 2; };
  const auto count = [&] { return ++asked > 0; };
  EXPECT_EQ(place->offer(pages[0], payload_of(pages[0]), 1.0, refuse_second),
            OfferResult::kRefused);
  EXPECT_EQ(found(*place, pages), (std::vector<bool>{false, false}));
  asked = 0;
  EXPECT_EQ(place->offer(pages[0], payload_of(pages[0]), 1.0, count), OfferResult::kTaken);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(fetched(*place, {pages[0]}), std::vector<FetchResult>{FetchResult::kWhole});
  // Another one that comes next is offered from its beginning, and so is the first after it.
  asked = 0;
  EXPECT_EQ(place->offer(pages[1], payload_of(pages[1]), 1.0, refuse_second),
            OfferResult::kRefused);
  EXPECT_EQ(place->offer(pages[0], payload_of(pages[0]), 1.0, kIntact), OfferResult::kKnown);
  asked = 0;
  EXPECT_EQ(place->offer(pages[1], payload_of(pages[1]), 1.0, count), OfferResult::kTaken);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(found(*place, pages), (std::vector<bool>{true, true}));
}

// A number that it cannot mean is not counted with.
TEST_F(PageServerTest, WhatHasEndedHasEndedAnHourAgoAtMost) {
  server_ = PageServer::start(
                {.address = transport::resolve("127.0.0.1", 0).value(),
                 .token = "secret",
                 .record_class = "class A",
                 .state_of =
                     [](std::string_view request) {
                       const std::chrono::milliseconds before(request == "a" ? 70 : INT64_MAX - 2);
                       return RequestStatus{.state = RequestState::kEnded, .ended_before = before};
                     }},
                memory_)
                .value();
  for (const char* request : {"a", "b"}) {
    const auto said = peer()->state(request);
    ASSERT_TRUE(said.ok()) << said.status().message();
    EXPECT_EQ(said->state, RequestState::kEnded);
    EXPECT_EQ(said->ended_before,
              request[0] == 'a' ? std::chrono::milliseconds(70) : std::chrono::hours(1));
  }
}

TEST_F(PageServerTest, OthersOfferNothing) {
  const Head page = sequence_of(1, 1, 5000).front();
  const auto reader = offering_peer("secret");
  EXPECT_EQ(reader->offer(page, payload_of(page), 1.0, kIntact), OfferResult::kFailed);
  EXPECT_THAT(std::string(reader->trouble()), HasSubstr("this token is one for reading"));
  EXPECT_EQ(peer()->offer(page, payload_of(page), 1.0, kIntact), OfferResult::kRefused);
  const auto place = offering_peer();
  EXPECT_EQ(found(*place, {page}), std::vector<bool>{false});
  // Bytes that are not those of its head.
  std::string value(redis_value_head(page, 1).data(), kRedisHeadBytes);
  value += std::string(5000, 'x');
  const std::string enter = words({"AUTH", "class A", "offers"});
  EXPECT_THAT(raw(enter + words({"PAGES.PUT", "1", value}), "whole"), HasSubstr("-ERR PAGES.PUT"));
  EXPECT_THAT(raw(enter + words({"PAGES.PUT", value}), "whole"), HasSubstr("-ERR PAGES.PUT"));
}

// Each has a command of its own under way, more of it than others may send: they come one after
// the other, and one that ends in the middle holds up nobody.
TEST_F(PageServerTest, LargeOffersComeOneByOne) {
  std::vector<int> stuck;
  const std::string enter = words({"AUTH", "class A", "offers"});
  const std::string half =
      "*3\r\n$9\r\nPAGES.PUT\r\n$1\r\n1\r\n$9000000\r\n" + std::string(2'000'000, 'x');
  for (int i = 0; i < 2; ++i) {
    stuck.push_back(transport::connect_to(server_->address(), std::chrono::seconds(5)).value());
    const std::string bytes = enter + half;
    [[maybe_unused]] const ssize_t sent =
        ::send(stuck.back(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  const auto reader = peer();
  const Head page = sequence_of(1, 1, 3'000'000).front();
  EXPECT_EQ(found(*reader, {page}), std::vector<bool>{false});  // others are answered
  for (const int each : stuck) ::close(each);
  const auto place = offering_peer();
  EXPECT_EQ(place->offer(page, payload_of(page), 1.0, kIntact), OfferResult::kTaken);
  EXPECT_EQ(found(*reader, {page}), std::vector<bool>{true});
}

TEST_F(PageServerTest, NobodyElseIsLetIn) {
  const Head page = sequence_of(1, 1, 5000).front();
  offer({page});
  const auto wrong = peer("secrem");
  EXPECT_EQ(found(*wrong, {page}), std::vector<bool>{false});
  EXPECT_THAT(std::string(wrong->trouble()), HasSubstr("the token is not this server's"));
  const auto other = peer("secret", "class B");
  EXPECT_EQ(found(*other, {page}), std::vector<bool>{false});
  EXPECT_THAT(std::string(other->trouble()), HasSubstr("expected class A, found class B"));

  const std::string head(redis_value_head(page, 0).data(), kRedisHeadBytes);
  EXPECT_THAT(raw(words({"PAGES.GET", head})), StartsWith("-NOAUTH "));
  EXPECT_THAT(raw(words({"AUTH", "secret"})), StartsWith("-WRONGPASS "));
}

// The other socket lets in as this one, and those who say nothing there are no hindrance.
TEST_F(PageServerTest, NobodyElseGetsTheMemory) {
  const std::string answer =
      raw(words({"AUTH", "class A", "secret"}) + words({"PAGES.MEMORY"}), this_machine());
  const size_t at = answer.find("wideep-pages-");
  ASSERT_NE(at, answer.npos) << answer;
  const std::string name = answer.substr(at, answer.find('\r', at) - at);
  std::vector<int> idle;
  const transport::LocalAddress address = transport::abstract_address(name);
  for (int i = 0; i < 50; ++i) {
    idle.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    [[maybe_unused]] const int ignored = ::connect(idle.back(), address.get(), address.length);
  }
  const std::chrono::seconds limit(10);
  const auto refusal = [&](const std::string& record_class, const std::string& token) {
    return take_memory(name, record_class, token, limit).status().message();
  };
  EXPECT_THAT(refusal("class A", "secrem"), HasSubstr("the token is not this server's"));
  EXPECT_THAT(refusal("class B", "secret"), HasSubstr("expected class A, found class B"));
  const auto memory = take_memory(name, "class A", "secret", limit);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_EQ(memory->size(), memory_.size());
  for (const int each : idle) ::close(each);
}

// Connections that say nothing are no hindrance, nor are those that take nothing.
TEST_F(PageServerTest, OthersAreServedBesideTheIdle) {
  const std::vector<Head> pages = sequence_of(1, 8, 100'000);
  offer(pages);
  std::vector<int> idle;
  const auto connect = [&] {
    idle.push_back(transport::connect_to(server_->address(), std::chrono::seconds(5)).value());
  };
  std::string commands = words({"AUTH", "class A", "secret"});
  const std::string head(redis_value_head(pages[0], 0).data(), kRedisHeadBytes);
  for (int i = 0; i < 2000; ++i) commands += words({"PAGES.GET", head});
  connect();
  timeval limit = {.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(idle[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  [[maybe_unused]] const ssize_t sent =
      ::send(idle[0], commands.data(), commands.size(), MSG_NOSIGNAL);
  for (int i = 0; i < 300; ++i) connect();
  const auto place = peer();
  EXPECT_EQ(found(*place, pages), std::vector<bool>(8, true));
  EXPECT_EQ(fetched(*place, pages), std::vector<FetchResult>(8, FetchResult::kWhole));
  for (const int each : idle) ::close(each);
}

TEST_F(PageServerTest, WithoutATokenThereIsNone) {
  EXPECT_FALSE(PageServer::start({.address = server_->address()}, memory_).ok());
}

TEST_F(PageServerTest, WhatIsNoCommandIsToldInALine) {
  EXPECT_THAT(raw("no protocol\r\n"), StartsWith("-ERR "));
  EXPECT_THAT(raw("*1\r\n:1\r\n"), StartsWith("-ERR expected a command"));
  EXPECT_THAT(raw(":5\r\n"), StartsWith("-ERR expected a command"));
  // They are not read to their ends, so the kernel may drop the answer.
  const std::string enter = words({"AUTH", "class A", "secret"});
  const auto too_long = AnyOf(IsEmpty(), HasSubstr("-ERR a command of more than"));
  EXPECT_THAT(raw("*1\r\n$2000000\r\n" + std::string(1'500'000, 'x')), too_long);
  EXPECT_THAT(raw(words({"AUTH", "class A", std::string(20'000, 'x')})), too_long);
  // Texts that are whole count, too.
  std::string many = "*2000\r\n";
  for (int i = 0; i < 20; ++i) many += "$100000\r\n" + std::string(100'000, 'x') + "\r\n";
  EXPECT_THAT(raw(enter + many), AnyOf(IsEmpty(), HasSubstr("+OK\r\n-ERR a command of more")));
  EXPECT_THAT(raw(enter + words({"PING"}), "here"), HasSubstr("'PING' is no command here"));
  EXPECT_THAT(raw(enter + words({"PAGES.HAS"}), "milli"), HasSubstr("expected a number"));
  EXPECT_THAT(raw(enter + words({"PAGES.HAS", "-1"}), "milli"), HasSubstr("expected a number"));
  EXPECT_THAT(raw(enter + words({"PAGES.HAS", "5", "x"}), "none"), HasSubstr("head 0: it is none"));
  EXPECT_THAT(raw(enter + words({"PAGES.GET"}), "one head"), HasSubstr("expected one head"));
  // Every bit of a head is looked at.
  std::string head(redis_value_head(sequence_of(1, 1, 5000).front(), 0).data(), kRedisHeadBytes);
  for (size_t i = 0; i < head.size(); i += 7) {
    std::string changed = head;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(parse_redis_value_head(changed)) << i;
  }
  EXPECT_TRUE(parse_redis_value_head(head));
}

// The server that comes after it has other memory, which may have other things.
TEST_F(PageServerTest, APeerThatIsGoneIsAFailureAndMayComeBack) {
  const std::vector<Head> pages = sequence_of(1, 3, 5000);
  offer(pages);
  const auto place = peer();
  EXPECT_EQ(found(*place, pages), std::vector<bool>(3, true));
  const uint16_t port = server_->address().port;
  server_.reset();
  EXPECT_EQ(found(*place, pages), std::vector<bool>(3, false));
  EXPECT_EQ(place->counts().failures, 1u);
  std::vector<std::byte> into(5000);
  const FetchOrder order = {.head = pages[0], .into = into};
  EXPECT_FALSE(place->fetch({&order, 1}, [](size_t, FetchResult) { return true; }).ok());
  memory_ = HostTier::create_memory(64 * kBlock).value();
  tier_ = HostTier::open(memory_).value();
  start(port);
  EXPECT_EQ(found(*place, pages), std::vector<bool>(3, false));
  offer({pages[0]});
  EXPECT_EQ(fetched(*place, {pages[0], pages[1]}),
            (std::vector<FetchResult>{FetchResult::kWhole, FetchResult::kMissing}));
}

// While others write and evict, several peers read: nothing that is whole is wrong.
TEST_F(PageServerTest, ThreadsReadWhileOthersEvict) {
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    const auto own = HostTier::open(memory_).value();
    for (int sequence = 0; !ends; ++sequence) {
      for (const Head& head : sequence_of(sequence % 20, 8, 50'000)) {
        own->offer(head, payload_of(head), 1.0 + sequence, kIntact);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  lease_ = std::chrono::milliseconds(1);
  std::atomic<uint64_t> whole = 0;
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      std::mt19937 random(static_cast<unsigned>(reader));
      const auto place = peer();
      const int rounds = base::kSanitized ? 60 : 400;
      for (int round = 0; round < rounds; ++round) {
        const std::vector<Head> pages = sequence_of(static_cast<int32_t>(random() % 20), 8, 50'000);
        place->find(pages);
        for (const FetchResult result : fetched(*place, pages, /*may_fail=*/true)) {
          EXPECT_NE(result, FetchResult::kDamaged);
          whole += result == FetchResult::kWhole ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  ends = true;
  writer.join();
  EXPECT_GT(whole, 0u);
}

}  // namespace
}  // namespace wideep::store
