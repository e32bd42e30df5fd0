// SPDX-License-Identifier: Apache-2.0
//
// A peer on the same machine, whose memory is read without its server.
#include "store/page_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/sanitized.h"
#include "store/host_tier.h"
#include "store/page_server.h"
#include "store/peer_place.h"
#include "store/records_testing.h"
#include "transport/local_socket.h"

namespace wideep::store {
namespace {

using ::testing::HasSubstr;
constexpr uint64_t kBlock = HostIndex::kBlockBytes;
using Results = std::vector<FetchResult>;

PageServerOptions options_at(uint16_t port) {
  return {.address = transport::resolve("127.0.0.1", port).value(),
          .token = "secret",
          .record_class = "class A"};
}

std::unique_ptr<PeerPlace> place_of(uint16_t port, std::string token = "secret") {
  return PeerPlace::make({.host = {"127.0.0.1", port},
                          .token = std::move(token),
                          .record_class = "class A",
                          .lease = std::chrono::milliseconds(100)})
      .value();
}

void offer(HostTier& tier, const std::vector<Head>& heads) {
  for (const Head& head : heads) {
    ASSERT_EQ(tier.offer(head, payload_of(head), 1.0, kIntact), OfferResult::kTaken);
  }
}

// Bytes of what is whole are compared.
Results fetched(Place& place, const std::vector<Head>& heads) {
  std::vector<std::vector<std::byte>> into;
  for (const Head& head : heads) into.emplace_back(head.part.bytes());
  std::vector<FetchOrder> orders;
  for (size_t i = 0; i < heads.size(); ++i) orders.push_back({heads[i], into[i]});
  Results results;
  [[maybe_unused]] const Status status = place.fetch(orders, [&](size_t i, FetchResult result) {
    if (result == FetchResult::kWhole) {
      EXPECT_EQ(into[i], payload_of(heads[i]));
    }
    results.push_back(result);
    return true;
  });
  return results;
}

// Until the memory is mapped: the first question goes over the socket.
void map(PeerPlace& place, uint64_t times = 1) {
  for (int i = 0; i < 100 && place.memory_use().mapped < times; ++i) {
    fetched(place, sequence_of(99, 1, 100));
  }
  ASSERT_EQ(place.memory_use().mapped, times) << place.trouble();
}

class PageMemoryTest : public testing::Test {
 protected:
  void start(uint16_t port = 0) { server_ = PageServer::start(options_at(port), memory_).value(); }
  uint16_t port() const { return server_->address().port; }

  base::SharedBytes memory_ = HostTier::create_memory(64 * kBlock).value();
  std::unique_ptr<HostTier> tier_ = HostTier::open(memory_).value();
  std::unique_ptr<PageServer> server_;
};

TEST_F(PageMemoryTest, ThePeerReadsTheMemoryItself) {
  start();
  const std::vector<Head> pages = sequence_of(1, 5, 100'000);
  offer(*tier_, {pages.begin(), pages.begin() + 3});
  const auto place = place_of(port());
  map(*place);
  EXPECT_EQ(place->find(pages), (std::vector<bool>{true, true, true, false, false}));
  using enum FetchResult;
  EXPECT_EQ(fetched(*place, pages), (Results{kWhole, kWhole, kWhole, kMissing, kMissing}));
  EXPECT_EQ(place->memory_use().fetched_bytes, 300'000u);
  EXPECT_EQ(place->counts().fetched_bytes, 300'000u);
  EXPECT_EQ(place->counts().fetched, 3u);
  EXPECT_EQ(place->label(), "peer");
  EXPECT_EQ(place->state("a").value().state, RequestState::kUnknown);
}

TEST_F(PageMemoryTest, WhatIsFoundThereIsLeased) {
  start();
  const std::vector<Head> kept = sequence_of(1, 32, kBlock);
  offer(*tier_, kept);
  const auto place = PeerPlace::make({.host = {"127.0.0.1", port()},
                                      .token = "secret",
                                      .record_class = "class A",
                                      .lease = std::chrono::seconds(10)})
                         .value();
  map(*place);
  EXPECT_EQ(place->find(kept), std::vector<bool>(32, true));
  for (const Head& head : sequence_of(2, 40, kBlock)) {
    tier_->offer(head, payload_of(head), 100.0, kIntact);
  }
  EXPECT_EQ(fetched(*place, kept), Results(32, FetchResult::kWhole));
}

TEST_F(PageMemoryTest, ThreadsReadWhileOthersEvict) {
  start();
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
  std::atomic<uint64_t> whole = 0;
  std::vector<std::thread> readers;
  for (unsigned reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      std::mt19937 random(reader);
      const auto place = PeerPlace::make({.host = {"127.0.0.1", port()},
                                          .token = "secret",
                                          .record_class = "class A",
                                          .lease = std::chrono::milliseconds(1)})
                             .value();
      for (int round = 0; round < (base::kSanitized ? 60 : 400); ++round) {
        const std::vector<Head> pages = sequence_of(static_cast<int32_t>(random() % 20), 8, 50'000);
        place->find(pages);
        for (const FetchResult each : fetched(*place, pages)) {
          EXPECT_NE(each, FetchResult::kDamaged);
          whole += each == FetchResult::kWhole ? 1 : 0;
        }
      }
      EXPECT_GT(place->memory_use().fetched_bytes, 0u);
    });
  }
  for (std::thread& reader : readers) reader.join();
  ends = true;
  writer.join();
  EXPECT_GT(whole, 0u);
  const HostIndex::Lock lock(tier_->index());
  EXPECT_EQ(tier_->index().disagreement(), "");
}

// The one that comes after it has other memory.
TEST_F(PageMemoryTest, AnotherServerHasOtherMemory) {
  start();
  const std::vector<Head> pages = sequence_of(1, 2, 5000);
  offer(*tier_, pages);
  const auto place = place_of(port());
  map(*place);
  const uint16_t same = port();
  server_.reset();
  EXPECT_EQ(place->find(pages), std::vector<bool>(2, false));
  EXPECT_EQ(place->counts().failures, 1u);
  const base::SharedBytes other = HostTier::create_memory(64 * kBlock).value();
  const auto tier = HostTier::open(other).value();
  server_ = PageServer::start(options_at(same), other).value();
  map(*place, 2);
  EXPECT_EQ(place->find(pages), std::vector<bool>(2, false));
  offer(*tier, {pages[0]});
  EXPECT_EQ(fetched(*place, pages), (Results{FetchResult::kWhole, FetchResult::kMissing}));
  server_.reset();
}

// A process that writes and serves until it is killed.
pid_t serve_and_write(int port_to) {
  const pid_t process = ::fork();
  if (process != 0) return process;
  const base::SharedBytes memory = HostTier::create_memory(64 * kBlock).value();
  const auto server = PageServer::start(options_at(0), memory).value();
  const auto tier = HostTier::open(memory).value();
  const uint16_t port = server->address().port;
  if (::write(port_to, &port, sizeof(port)) != sizeof(port)) ::_exit(1);
  for (int32_t sequence = 0;; ++sequence) {
    for (const Head& head : sequence_of(sequence % 6, 4, 100'000)) {
      tier->offer(head, payload_of(head), 1.0 + sequence, kIntact);
    }
  }
}

TEST_F(PageMemoryTest, APeerThatDiesIsGoneAndNothingIsWrong) {
  if (base::kSanitized) GTEST_SKIP() << "forks";
  std::mt19937 random(3);
  uint64_t bytes = 0;
  for (int kill = 0; kill < 12; ++kill) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t process = serve_and_write(pipe[1]);
    uint16_t port = 0;
    ASSERT_EQ(::read(pipe[0], &port, sizeof(port)), ssize_t{sizeof(port)});
    ::close(pipe[0]);
    ::close(pipe[1]);
    const auto place = place_of(port);
    map(*place);
    const auto read = [&](int times) {
      for (int i = 0; i < times; ++i) {
        const auto pages = sequence_of(static_cast<int32_t>(random() % 6), 4, 100'000);
        place->find(pages);
        for (const FetchResult each : fetched(*place, pages)) {
          EXPECT_NE(each, FetchResult::kDamaged);
        }
      }
    };
    read(static_cast<int>(random() % 20));
    std::thread reader([&] { read(40); });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    reader.join();
    EXPECT_EQ(place->find(sequence_of(1, 1, 100'000)), std::vector<bool>{false});
    EXPECT_GT(place->counts().failures, 0u);
    bytes += place->memory_use().fetched_bytes;
  }
  EXPECT_GT(bytes, 0u);
}

// What is wrong with the other way is not told, and the socket serves.
TEST_F(PageMemoryTest, WithoutTheMemoryTheSocketServes) {
  start();
  const std::vector<Head> pages = sequence_of(1, 2, 5000);
  offer(*tier_, pages);
  const auto place = PeerPlace::make({.host = {"127.0.0.1", port()},
                                      .token = "secret",
                                      .record_class = "class A",
                                      .maps_memory = false})
                         .value();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fetched(*place, pages), Results(2, FetchResult::kWhole));
  EXPECT_EQ(place->memory_use().mapped, 0u);
  EXPECT_EQ(place->counts().fetched, 6u);
}

TEST(PageMemory, NobodyElseGetsIt) {
  std::string name;
  const int listener = listen_for_memory(name);
  ASSERT_GE(listener, 0);
  const std::chrono::milliseconds soon(50);
  EXPECT_EQ(take_memory(name, "class A", "secret", soon).status().code(),
            StatusCode::kDeadlineExceeded);
  ::close(listener);
  EXPECT_EQ(take_memory(name, "class A", "secret", soon).status().code(), StatusCode::kFailed);
  EXPECT_FALSE(take_memory("", "class A", "secret", soon).ok());
  EXPECT_FALSE(take_memory(std::string(200, 'x'), "class A", "secret", soon).ok());
  EXPECT_NE(this_machine(), "");
}

}  // namespace
}  // namespace wideep::store
