// SPDX-License-Identifier: Apache-2.0
//
// A server that is slow, silent, or whose words are cut: a call fails within its deadline, and no
// wrong byte is taken.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/sanitized.h"
#include "store/redis_place_testing.h"
#include "store/redis_record.h"
#include "transport/tcp.h"

namespace wideep::store {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class RedisSlowTest : public RedisPlaceTest {
 protected:
  static std::unique_ptr<RedisPlace> impatient(int port) {
    auto options = parse_redis_url(fmt::format("redis://127.0.0.1:{}", port));
    options->connect_timeout = milliseconds(300);
    options->reply_timeout = milliseconds(300);
    return RedisPlace::make(*options).value();
  }
  template <typename Call>
  static milliseconds time_of(Call call) {
    const auto begun = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun);
  }
  // What a deadline may be exceeded by on a busy machine.
  static constexpr milliseconds kSlack{base::kSanitized ? 5000 : 1500};
};

TEST_F(RedisSlowTest, CallsEndWithinTheirDeadlines) {
  const RedisServerForTest server;
  const Head small = page_at(40, 0, 1000), big = page_at(40, 1, 2000000);
  {
    const auto writer = place_at(server.url());
    EXPECT_EQ(offer(*writer, small), OfferResult::kTaken);
    EXPECT_EQ(offer(*writer, big), OfferResult::kTaken);
  }
  RelayForTest relay(server.port());
  const auto place = impatient(relay.port());
  EXPECT_THAT(fetch(*place, {small, big}).results, Each(FetchResult::kWhole));

  // Each piece in time, all of them not: 2 MB in 123 pieces of 30 ms or more.
  relay.delay_ms = 30;
  Fetched slow;
  EXPECT_LT(time_of([&] { slow = fetch(*place, {small, big}); }), milliseconds(1000) + kSlack);
  EXPECT_EQ(slow.status.code(), StatusCode::kDeadlineExceeded) << slow.status.message();
  EXPECT_THAT(slow.results, ElementsAre(FetchResult::kWhole));
  EXPECT_EQ(place->counts().failures, 1u);

  relay.delay_ms = 0;
  relay.max_bytes = 500000;  // and then silence
  Fetched silent;
  EXPECT_LT(time_of([&] { silent = fetch(*place, {small, big}); }), milliseconds(1000) + kSlack);
  EXPECT_EQ(silent.status.code(), StatusCode::kDeadlineExceeded) << silent.status.message();
  EXPECT_THAT(silent.results, ElementsAre(FetchResult::kWhole));

  relay.max_bytes = 0;
  EXPECT_LT(time_of([&] {
              EXPECT_THAT(place->find({&small, 1}), ElementsAre(false));
              EXPECT_EQ(offer(*place, small), OfferResult::kFailed);
              place->forget(page_at(40, 2, 1).name, Kind::kPage);
            }),
            milliseconds(2000) + kSlack);
  relay.max_bytes = -1;
  EXPECT_THAT(fetch(*place, {small, big}).results, Each(FetchResult::kWhole));
}

// A search is for many pages, and a request waits for it.
TEST_F(RedisSlowTest, ASearchEndsByItsLimit) {
  const RedisServerForTest server;
  const std::vector<Head> heads = sequence_of(45, 300, 50);
  {
    const auto writer = place_at(server.url());
    for (const Head& head : heads) EXPECT_EQ(offer(*writer, head), OfferResult::kTaken);
  }
  RelayForTest relay(server.port());
  auto options = parse_redis_url(fmt::format("redis://127.0.0.1:{}", relay.port()));
  options->reply_timeout = std::chrono::seconds(60);
  {
    const auto place = RedisPlace::make(*options).value();
    EXPECT_THAT(place->find(heads), Each(true));
    EXPECT_EQ(place->counts().slow_finds, 0u);
  }

  relay.max_bytes = 1000;  // and then silence
  const auto limited = RedisPlace::make(*options).value();
  std::vector<bool> found;
  EXPECT_LT(time_of([&] { found = limited->find(heads); }), options->find_timeout + kSlack);
  EXPECT_TRUE(found.front());
  EXPECT_FALSE(found.back());
  EXPECT_EQ(limited->counts().slow_finds, 1u);
  EXPECT_EQ(limited->counts().failures, 0u);
  relay.max_bytes = -1;
  EXPECT_THAT(limited->find(heads), Each(true));
  EXPECT_EQ(limited->counts().slow_finds, 1u);
}

// A reply that may be long is not given the time of a long one.
TEST_F(RedisSlowTest, ManyShortRepliesHaveAShortDeadline) {
  const RedisServerForTest server;
  const std::vector<Head> heads = sequence_of(46, 150, 50);
  for (const Head& head : heads) {
    server.say({"EVAL",
                "for i = 1, 64 do redis.call('HSET', KEYS[1], string.rep('x', 250) .. i, 'y') end",
                "1", redis_key(head.name, head.kind)});
  }
  RelayForTest relay(server.port());
  relay.delay_ms = 40;  // for about one reply: of all, 6 s
  const auto place = impatient(relay.port());
  Fetched fetched;
  EXPECT_LT(time_of([&] { fetched = fetch(*place, heads); }), milliseconds(600) + kSlack);
  EXPECT_EQ(fetched.status.code(), StatusCode::kDeadlineExceeded) << fetched.status.message();
}

// It listens, and nobody takes the connection.
TEST_F(RedisSlowTest, ASilentHostIsLeftInTime) {
  const int listener = transport::listen_on(transport::resolve("127.0.0.1", 0).value()).value();
  auto options = parse_redis_url(
      fmt::format("redis://:pw@127.0.0.1:{}", transport::local_address(listener).port));
  options->connect_timeout = milliseconds(200);
  const auto place = RedisPlace::make(*options).value();
  Fetched fetched;
  EXPECT_LT(time_of([&] { fetched = fetch(*place, {page_at(41, 0, 10)}); }),
            milliseconds(200) + kSlack);
  EXPECT_EQ(fetched.status.code(), StatusCode::kDeadlineExceeded) << fetched.status.message();
  ::close(listener);
}

TEST_F(RedisSlowTest, AnUnknownNameIsSaid) {
  const auto place = place_at("redis://no-such-host.invalid");
  Fetched fetched;
  EXPECT_LT(time_of([&] { fetched = fetch(*place, {page_at(41, 0, 10)}); }),
            milliseconds(2000) + kSlack);
  EXPECT_THAT(fetched.status.message(), HasSubstr("no-such-host.invalid"));
}

// A server that says something without an end: this side's memory is not its to fill.
TEST_F(RedisSlowTest, AReplyWithoutEndIsLeft) {
  for (const std::string_view begin : {"$2000000000\r\n", "*2000000000\r\n", "+"}) {
    const int listener = transport::listen_on(transport::resolve("127.0.0.1", 0).value()).value();
    const int port = transport::local_address(listener).port;
    std::atomic<uint64_t> num_sent = 0;
    std::thread server([&] {
      pollfd ready{listener, POLLIN, 0};
      ::poll(&ready, 1, 10000);
      const int client = ::accept(listener, nullptr, nullptr);
      ::close(listener);
      std::string more;
      while (more.size() < 60000) more += begin == "*2000000000\r\n" ? ":1\r\n" : "1234";
      std::string_view next = begin;
      for (ssize_t count = 1; count > 0 && num_sent < (uint64_t{1} << 30); next = more) {
        count = ::send(client, next.data(), next.size(), MSG_NOSIGNAL);
        num_sent += static_cast<uint64_t>(std::max<ssize_t>(0, count));
      }
      ::close(client);
    });
    auto options = parse_redis_url(fmt::format("redis://127.0.0.1:{}", port));
    options->reply_timeout = std::chrono::seconds(60);
    {
      const auto place = RedisPlace::make(*options).value();
      const Head head = page_at(44, 0, 1000);
      EXPECT_THAT(fetch(*place, {head}).status.message(), HasSubstr("a reply of more than"));
    }
    server.join();
    EXPECT_LT(num_sent, uint64_t{100} << 20) << begin;
  }
}

// Cut after every byte: whatever was whole before is right, and the next call works.
TEST_F(RedisSlowTest, CutAnywhereNothingWrongIsTaken) {
  const RedisServerForTest server;
  const std::vector<Head> heads = {page_at(42, 0, 60), page_at(42, 1, 90)};
  {
    const auto writer = place_at(server.url());
    for (const Head& head : heads) EXPECT_EQ(offer(*writer, head), OfferResult::kTaken);
  }
  RelayForTest relay(server.port());
  relay.cuts = true;
  int64_t length = 1;
  size_t num_whole = 0, num_calls = 0;
  for (; num_whole < heads.size(); length += 3) {
    ASSERT_LT(length, 100000);
    relay.max_bytes = length;
    const auto place = impatient(relay.port());
    const Fetched fetched = fetch(*place, heads);
    EXPECT_THAT(fetched.results, Each(FetchResult::kWhole));
    EXPECT_EQ(fetched.status.ok(), fetched.results.size() == heads.size());
    EXPECT_GE(fetched.results.size(), num_whole);  // more bytes, no fewer records
    num_whole = fetched.results.size();
    ++num_calls;
  }
  EXPECT_GT(num_calls, 100u);
}

TEST_F(RedisSlowTest, NothingMoreIsReadWhenNoMoreIsWanted) {
  const RedisServerForTest server;
  std::vector<Head> heads;
  for (uint32_t i = 0; i < 12; ++i) heads.push_back(page_at(43, i, 1500000));
  const auto place = place_at(server.url());
  for (const Head& head : heads) EXPECT_EQ(offer(*place, head), OfferResult::kTaken);
  EXPECT_EQ(fetch(*place, heads, 2).results.size(), 2u);
  EXPECT_EQ(place->counts().fetched, 2u);
  EXPECT_EQ(fetch(*place, heads).results.size(), 12u);
  EXPECT_EQ(place->counts().failures, 0u);
}

}  // namespace
}  // namespace wideep::store
