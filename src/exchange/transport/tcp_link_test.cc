// SPDX-License-Identifier: Apache-2.0
//
// Links of one process talk over real sockets. Messages of all lengths must arrive whole and in
// order. Most tests are of who is not heard: ranks of an earlier epoch or of another service,
// strangers without the key, a greeting that is sent again, connections that stay idle. A message
// of one of these would be taken for a member's. A peer that ends within a message is a failure,
// and one that ends between two is none: that is the keeper's to say.
#include "transport/tcp_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

namespace wideep::transport {
namespace {

using namespace std::chrono_literals;

Bytes bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}
std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Ranks of one service, each with a listener for all epochs.
struct Ranks {
  explicit Ranks(int count) {
    for (int rank = 0; rank < count; ++rank) {
      listeners.push_back(*listen_on(*resolve("127.0.0.1", 0)));
      addresses.push_back(local_address(listeners.back()));
    }
  }
  ~Ranks() {
    for (const int each : listeners) ::close(each);
  }
  std::unique_ptr<TcpLink> link(int rank, uint32_t epoch, uint64_t service = 7) const {
    return std::make_unique<TcpLink>(
        listeners[static_cast<size_t>(rank)],
        TcpLink::Place{.service = service, .epoch = epoch, .rank = rank, .key = key}, addresses);
  }
  std::vector<int> listeners;
  std::vector<PeerAddress> addresses;
  ClusterKey key{"of the links"};
};

// Waits; other links are driven meanwhile, as ranks drive their own.
std::optional<Link::Received> wait_for(TcpLink& link, const std::vector<TcpLink*>& others,
                                       std::chrono::milliseconds limit = 5s) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end) {
    for (TcpLink* each : others) each->has_sent_all();
    if (auto received = link.receive()) return received;
    if (!link.failure().ok()) return std::nullopt;
    std::this_thread::yield();
  }
  return std::nullopt;
}

TEST(TcpLink, HoldsAMessageUntilTheNext) {
  const Ranks ranks(3);
  const auto a = ranks.link(0, 1), b = ranks.link(1, 1), c = ranks.link(2, 1);
  a->send(1, bytes_of("greeting"));
  ASSERT_TRUE(wait_for(*b, {a.get()}));
  ASSERT_TRUE(a->has_sent_all());
  a->send_with_next(1, bytes_of("counts"));
  a->send(2, bytes_of("to another"));
  EXPECT_FALSE(wait_for(*b, {c.get()}, 20ms));
  a->send(1, bytes_of("flag"));
  for (const char* text : {"counts", "flag"}) {
    const auto received = wait_for(*b, {});
    ASSERT_TRUE(received);
    EXPECT_EQ(text_of(received->message), text);
  }
  a->send_with_next(1, bytes_of("alone"));
  EXPECT_FALSE(a->receive());
  const auto received = wait_for(*b, {});
  ASSERT_TRUE(received);
  EXPECT_EQ(text_of(received->message), "alone");
}

TEST(TcpLink, WaitsUntilAMessageComes) {
  using Clock = std::chrono::steady_clock;
  const Ranks ranks(2);
  const auto a = ranks.link(0, 1), b = ranks.link(1, 1);
  a->send(1, bytes_of("greeting"));
  ASSERT_TRUE(wait_for(*b, {a.get()}));
  const auto begin = Clock::now();
  b->wait(20ms);
  EXPECT_GE(Clock::now() - begin, 20ms);
  std::thread sender([&] {
    std::this_thread::sleep_for(20ms);
    a->send(1, bytes_of("late"));
  });
  b->wait(60s);
  EXPECT_LT(Clock::now() - begin, 30s);
  sender.join();
  EXPECT_TRUE(wait_for(*b, {}));
}

TEST(TcpLink, DeliversMessagesOfAnyLengthInOrder) {
  const Ranks ranks(3);
  const auto a = ranks.link(0, 1), b = ranks.link(1, 1), c = ranks.link(2, 1);
  std::mt19937 random(5);
  std::vector<std::string> sent;
  for (int i = 0; i < 60; ++i) {
    const size_t length = i % 10 == 0 ? 0 : random() % (i % 7 == 0 ? 3'000'000 : 2'000);
    std::string text(length, '\0');
    for (char& each : text) each = static_cast<char>(random());
    sent.push_back(text);
    a->send(1, bytes_of(text));
    if (i == 20) c->send(1, bytes_of("from c"));
  }
  size_t next = 0;
  int from_c = 0;
  while (next < sent.size() || from_c == 0) {
    const auto received = wait_for(*b, {a.get(), c.get()});
    ASSERT_TRUE(received) << b->failure().message();
    if (received->from == 2) {
      EXPECT_EQ(text_of(received->message), "from c");
      ++from_c;
      continue;
    }
    ASSERT_EQ(received->from, 0);
    ASSERT_TRUE(text_of(received->message) == sent[next]) << next;
    ++next;
  }
  EXPECT_TRUE(a->has_sent_all());
  EXPECT_EQ(from_c, 1);
}

TEST(TcpLink, AnEpochNeverMeetsAnother) {
  const Ranks ranks(2);
  auto late = ranks.link(0, 1);
  late->send(1, bytes_of("of epoch 1"));
  EXPECT_TRUE(late->has_sent_all());
  auto b = ranks.link(1, 2);  // had not taken it when epoch 1 ended
  auto other = ranks.link(0, 2, 8);
  other->send(1, bytes_of("of another service"));
  auto a = ranks.link(0, 2);
  a->send(1, bytes_of("of epoch 2"));
  const auto received = wait_for(*b, {late.get(), other.get(), a.get()});
  ASSERT_TRUE(received);
  EXPECT_EQ(text_of(received->message), "of epoch 2");
  EXPECT_FALSE(wait_for(*b, {late.get(), other.get()}, 50ms));
  EXPECT_TRUE(b->failure().ok());
}

TEST(TcpLink, StrangersAreIgnored) {
  const Ranks ranks(2);
  const auto b = ranks.link(1, 1);
  const auto stranger = connect_to(ranks.addresses[1], 1s);
  ASSERT_TRUE(stranger.ok());
  const std::string text = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n and so on";
  ASSERT_EQ(::send(*stranger, text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
  EXPECT_FALSE(wait_for(*b, {}, 50ms));
  EXPECT_TRUE(b->failure().ok());
  ::close(*stranger);
  const auto a = ranks.link(0, 1);
  a->send(1, bytes_of("hello"));
  EXPECT_TRUE(wait_for(*b, {a.get()}));
}

// Who knows ports, service and epoch, but not the key.
TEST(TcpLink, WithoutTheKeyNothingIsTaken) {
  Ranks ranks(2);
  const auto b = ranks.link(1, 1);
  ranks.key = ClusterKey("another one");
  const auto stranger = ranks.link(0, 1);
  stranger->send(1, bytes_of("written by a stranger"));
  EXPECT_FALSE(wait_for(*b, {stranger.get()}, 50ms));
  EXPECT_TRUE(b->failure().ok());
}

// Who has seen the bytes of a connection on their way.
TEST(TcpLink, AGreetingCountsOnce) {
  Ranks ranks(3);
  const auto a = ranks.link(0, 1), b = ranks.link(1, 1), c = ranks.link(2, 1);
  std::vector<PeerAddress> wrong = ranks.addresses;
  const int seen = *listen_on(*resolve("127.0.0.1", 0));
  wrong[1] = local_address(seen);
  TcpLink sender(ranks.listeners[0], {.service = 7, .epoch = 1, .rank = 0, .key = ranks.key},
                 wrong);
  sender.send(1, bytes_of("once"));
  const int connection = ::accept(seen, nullptr, nullptr);
  while (!sender.has_sent_all()) std::this_thread::yield();
  std::array<char, 4096> bytes;
  const ssize_t count = ::recv(connection, bytes.data(), bytes.size(), 0);
  ASSERT_EQ(count, 32 + 32 + 8 + 4);
  std::vector<int> copies;
  for (int i = 0; i < 3; ++i) {
    // The last one goes to another rank.
    copies.push_back(*connect_to(ranks.addresses[i < 2 ? 1 : 2], 1s));
    ASSERT_EQ(::send(copies.back(), bytes.data(), static_cast<size_t>(count), MSG_NOSIGNAL), count);
    if (i > 0) continue;
    const auto received = wait_for(*b, {});
    ASSERT_TRUE(received);
    EXPECT_EQ(text_of(received->message), "once");
  }
  EXPECT_FALSE(wait_for(*b, {}, 50ms));
  EXPECT_FALSE(wait_for(*c, {}, 50ms));
  for (const int each : {copies[0], copies[1], copies[2], connection, seen}) ::close(each);
}

TEST(TcpLink, IdleConnectionsMakeRoom) {
  const Ranks ranks(2);
  const auto b = ranks.link(1, 1);
  std::vector<int> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(*connect_to(ranks.addresses[1], 1s));
    EXPECT_FALSE(b->receive());
  }
  size_t closed = 0;
  for (const int each : idle) {
    char byte = 0;
    closed += ::recv(each, &byte, 1, MSG_DONTWAIT) == 0 ? 1 : 0;
  }
  EXPECT_EQ(closed, idle.size() - TcpLink::kMaxStrangers - 2);
  const auto a = ranks.link(0, 1);
  a->send(1, bytes_of("hello"));
  EXPECT_TRUE(wait_for(*b, {a.get()}));
  for (const int each : idle) ::close(each);
}

TEST(TcpLink, APeerThatEndsWithinAMessageIsAFailure) {
  const Ranks ranks(2);
  const auto b = ranks.link(1, 1);
  auto a = ranks.link(0, 1);
  a->send(1, Bytes(size_t{20} << 20));
  const auto end = std::chrono::steady_clock::now() + 200ms;
  while (std::chrono::steady_clock::now() < end) b->receive();
  a.reset();
  EXPECT_FALSE(wait_for(*b, {}));
  EXPECT_FALSE(b->failure().ok());
}

TEST(TcpLink, APeerThatEndsBetweenMessagesIsNone) {
  const Ranks ranks(2);
  const auto b = ranks.link(1, 1);
  auto a = ranks.link(0, 1);
  a->send(1, bytes_of("last words"));
  ASSERT_TRUE(wait_for(*b, {a.get()}));
  a.reset();
  EXPECT_FALSE(wait_for(*b, {}, 50ms));
  EXPECT_TRUE(b->failure().ok());
}

TEST(TcpLink, NobodyThereIsAFailure) {
  Ranks ranks(2);
  ::close(ranks.listeners[1]);
  const auto a = ranks.link(0, 1);
  a->send(1, bytes_of("hello"));
  EXPECT_FALSE(wait_for(*a, {}, 1s));
  EXPECT_FALSE(a->failure().ok());
  ranks.listeners[1] = ::dup(ranks.listeners[0]);
}

}  // namespace
}  // namespace wideep::transport
