// SPDX-License-Identifier: Apache-2.0
//
// The publisher against sockets of the real library, where it is installed.
#include "kv_events/zmq_publisher.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/scratch_directory.h"
#include "kv_events/event_log_testing.h"

namespace wideep::kv_events {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kMaxBytes = 1 << 20;

class ZmqPublisherTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto library = ZmqLibrary::load();
    if (!library.ok()) GTEST_SKIP() << library.status().message();
    zmq = *library;
    log.begin(1'800'000'000'000'000);
  }
  std::string endpoint(const char* name) const { return "ipc://" + directory.file(name); }
  EventsConfig config() const {
    return {.endpoint = endpoint("events"), .replay_endpoint = endpoint("replay"), .topic = "kv"};
  }
  std::unique_ptr<ZmqSocket> subscriber() const {
    auto socket = std::make_unique<ZmqSocket>(*zmq, ZmqLibrary::kSub, kMaxBytes);
    socket->set(ZmqLibrary::kSubscribe, std::string("kv"));
    socket->set(ZmqLibrary::kReceiveTimeout, 10'000);
    EXPECT_TRUE(socket->connect(endpoint("events"))) << socket->text();
    return socket;
  }
  static std::vector<std::string> message(ZmqSocket& socket) {
    std::vector<std::string> parts;
    std::string part;
    do {
      if (!socket.receive(&part, true)) return parts;
      parts.push_back(part);
    } while (socket.has_more());
    return parts;
  }
  // Until the subscriber is known to the publisher: what it publishes before is lost to it.
  uint64_t first_seen(ZmqSocket& socket) {
    socket.set(ZmqLibrary::kReceiveTimeout, 50);
    for (int i = 0; i < 200; ++i) {
      log.clear(0);
      const auto parts = message(socket);
      if (parts.size() != 3) continue;
      socket.set(ZmqLibrary::kReceiveTimeout, 10'000);
      while (number_of(parts[1]) < log.last() && number_of(message(socket).at(1)) < log.last()) {
      }
      return log.last();
    }
    return 0;
  }
  static uint64_t number_of(const std::string& bytes) {
    uint64_t number = 0;
    for (const char each : bytes) number = number << 8 | static_cast<unsigned char>(each);
    return number;
  }

  base::ScratchDirectory directory;
  const ZmqLibrary* zmq = nullptr;
  EventLog log{1, {.batches = 50}};
};

TEST_F(ZmqPublisherTest, EachBatchIsAMessageOfThreeParts) {
  ZmqPublisher publisher(*zmq, log, config());
  const auto socket = subscriber();
  const uint64_t before = first_seen(*socket);
  ASSERT_GT(before, log.origin());
  for (int i = 0; i < 20; ++i) {
    const engine::PageChange change = known(1, i);
    log.take(0, false, std::span(&change, 1));
    const auto parts = message(*socket);
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_EQ(parts[0], "kv");
    EXPECT_EQ(parts[1], sequence_bytes(before + 1 + static_cast<uint64_t>(i)));
    EXPECT_EQ(parts[2], payload_of(*log.since(log.last()).at(0), EventForm::kMap));
  }
}

TEST_F(ZmqPublisherTest, ReplaysWhatIsKept) {
  ZmqPublisher publisher(*zmq, log, config());
  for (int i = 0; i < 20; ++i) log.clear(0);
  ZmqSocket socket(*zmq, ZmqLibrary::kReq, kMaxBytes);
  socket.set(ZmqLibrary::kReceiveTimeout, 10'000);
  ASSERT_TRUE(socket.connect(endpoint("replay")));
  ASSERT_TRUE(socket.send(sequence_bytes(log.last() - 2), false));
  // A socket of type REQ has the first reply; readers that want all use DEALER.
  const auto parts = message(socket);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0], "kv");
  EXPECT_EQ(parts[1], sequence_bytes(log.last() - 2));
  EXPECT_EQ(parts[2], payload_of(*log.since(log.last() - 2).at(0), EventForm::kMap));
}

// The socket counts what a peer has not taken yet: the second replay must have room, too.
TEST_F(ZmqPublisherTest, ReplaysAllThatIsKeptTwice) {
  EventsConfig small = config();
  small.buffer_steps = 41;
  ZmqPublisher publisher(*zmq, log, small);
  for (int i = 0; i < 40; ++i) log.clear(0);
  ZmqSocket socket(*zmq, ZmqLibrary::kDealer, kMaxBytes);
  socket.set(ZmqLibrary::kReceiveTimeout, 10'000);
  ASSERT_TRUE(socket.connect(endpoint("replay")));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(socket.send("", true) && socket.send(sequence_bytes(0), false));
    for (const SharedBatch& each : log.since(0)) {
      EXPECT_EQ(message(socket), (std::vector<std::string>{"", "kv", sequence_bytes(each->sequence),
                                                           payload_of(*each, EventForm::kMap)}));
    }
    EXPECT_EQ(message(socket), (std::vector<std::string>{"", "", std::string(8, '\xff'), ""}));
  }
}

TEST_F(ZmqPublisherTest, ReadersOfArraysAreToldNoTopicInReplays) {
  EventsConfig older = config();
  older.form = EventForm::kArray;
  ZmqPublisher publisher(*zmq, log, older);
  const auto subscribed = subscriber();
  ASSERT_GT(first_seen(*subscribed), log.origin());
  log.clear(0);
  const std::string sequence = sequence_bytes(log.last());
  const std::string payload = payload_of(*log.since(log.last()).at(0), EventForm::kArray);
  EXPECT_EQ(message(*subscribed), (std::vector<std::string>{"kv", sequence, payload}));
  ZmqSocket socket(*zmq, ZmqLibrary::kDealer, kMaxBytes);
  socket.set(ZmqLibrary::kReceiveTimeout, 10'000);
  ASSERT_TRUE(socket.connect(endpoint("replay")));
  ASSERT_TRUE(socket.send("", true) && socket.send(sequence, false));
  EXPECT_EQ(message(socket), (std::vector<std::string>{"", sequence, payload}));
  EXPECT_EQ(message(socket), (std::vector<std::string>{"", std::string(8, '\xff'), ""}));
}

TEST_F(ZmqPublisherTest, WhatIsNoRequestIsPassedOver) {
  ZmqPublisher publisher(*zmq, log, config());
  ZmqSocket wrong(*zmq, ZmqLibrary::kReq, kMaxBytes), right(*zmq, ZmqLibrary::kReq, kMaxBytes);
  ASSERT_TRUE(wrong.connect(endpoint("replay")) && right.connect(endpoint("replay")));
  right.set(ZmqLibrary::kReceiveTimeout, 10'000);
  wrong.set(ZmqLibrary::kReceiveTimeout, 300);
  ASSERT_TRUE(wrong.send("short", false));
  ASSERT_TRUE(right.send(sequence_bytes(log.last() + 1), false));
  const auto parts = message(right);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0], "");
  EXPECT_EQ(parts[1], std::string(8, '\xff'));
  EXPECT_EQ(parts[2], "");
  EXPECT_TRUE(message(wrong).empty());
}

TEST_F(ZmqPublisherTest, OneThatFallsBehindSaysAllAnew) {
  // Before it is there, more has happened than is kept.
  for (int i = 0; i < 100; ++i) {
    const engine::PageChange change = known(1, i);
    log.take(0, false, std::span(&change, 1));
  }
  const uint64_t before = log.last();
  EventsConfig late = config();
  late.endpoint = endpoint("missing/events");
  testing::internal::CaptureStderr();
  {
    ZmqPublisher publisher(*zmq, log, late);
    std::this_thread::sleep_for(milliseconds(300));
    std::filesystem::create_directory(directory.file("missing"));
    for (int i = 0; i < 100 && log.last() == before; ++i) {
      std::this_thread::sleep_for(milliseconds(100));
    }
  }
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, testing::HasSubstr("missing/events cannot be used"));
  EXPECT_THAT(lines, testing::HasSubstr("is there now"));
  EXPECT_THAT(lines, testing::HasSubstr("all pages anew"));
  ASSERT_EQ(log.last(), before + 2);
  const auto batches = log.since(before + 1);
  EXPECT_EQ(batches[0]->events[0].kind, Event::kCleared);
  EXPECT_EQ(batches[1]->num_pages(), 100u);
}

}  // namespace
}  // namespace wideep::kv_events
