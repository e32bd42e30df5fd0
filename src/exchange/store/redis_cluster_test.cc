// SPDX-License-Identifier: Apache-2.0
//
// A cluster of three servers on this machine, and a fourth that takes the place of one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "store/redis_place_testing.h"
#include "store/redis_record.h"
#include "store/redis_slots.h"

namespace wideep::store {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class RedisClusterTest : public RedisPlaceTest {
 protected:
  static constexpr int kFirstSlot[4] = {0, 5461, 10923, 16384};

  void SetUp() override {
    RedisPlaceTest::SetUp();
    if (IsSkipped()) return;
    for (int i = 0; i < 3; ++i) {
      add_server();
      const std::string first = std::to_string(kFirstSlot[i]);
      const std::string last = std::to_string(kFirstSlot[i + 1] - 1);
      ASSERT_EQ(servers_[i]->say({"CLUSTER", "ADDSLOTSRANGE", first, last}).text, "OK");
    }
    join(3);
  }

  void add_server() {
    servers_.push_back(std::make_unique<RedisServerForTest>(std::vector<std::string>{
        "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
        "--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
        "--repl-diskless-sync-delay", "0"}));
  }
  void join(size_t count) {
    for (const auto& server : servers_) {
      servers_[0]->say({"CLUSTER", "MEET", "127.0.0.1", std::to_string(server->port()),
                        std::to_string(server->cluster_port())});
    }
    for (const auto& server : servers_) {
      wait_until([&] {
        const std::string info = server->say({"CLUSTER", "INFO"}).text;
        return info.find("cluster_state:ok") != std::string::npos &&
               info.find(fmt::format("cluster_known_nodes:{}\r", count)) != std::string::npos;
      });
    }
  }
  static void wait_until(const std::function<bool()>& holds) {
    const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!holds()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  std::string id_of(int server) const { return servers_[server]->say({"CLUSTER", "MYID"}).text; }
  static int slot_of(const Head& head) { return redis_slot(redis_key(head.name, head.kind)); }
  static int server_of(const Head& head) {
    return static_cast<int>(std::upper_bound(kFirstSlot, kFirstSlot + 4, slot_of(head)) -
                            kFirstSlot) -
           1;
  }
  std::string url() const {
    return fmt::format("redis://127.0.0.1:{},127.0.0.1:{}", servers_[0]->port(),
                       servers_[1]->port());
  }
  static std::vector<Head> heads_of(int seed, uint32_t count, uint64_t bytes) {
    std::vector<Head> heads;
    for (uint32_t i = 0; i < count; ++i) heads.push_back(page_at(seed, i, bytes));
    return heads;
  }
  static void write(RedisPlace& place, const std::vector<Head>& heads) {
    for (const Head& head : heads) {
      EXPECT_EQ(offer(place, head), OfferResult::kTaken) << place.trouble();
    }
  }

  std::vector<std::unique_ptr<RedisServerForTest>> servers_;
};

TEST_F(RedisClusterTest, RecordsAreAtTheServersOfTheirSlots) {
  const auto place = place_at(url());
  const std::vector<Head> heads = heads_of(30, 40, 50000);
  write(*place, heads);
  std::vector<int64_t> expected(3);
  for (const Head& head : heads) ++expected[static_cast<size_t>(server_of(head))];
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GT(expected[i], 0);
    EXPECT_EQ(servers_[i]->say({"DBSIZE"}).integer, expected[i]);
  }
  EXPECT_EQ(place->size().records, 40u);
  EXPECT_THAT(place->find(heads), Each(true));
  const Fetched fetched = fetch(*place, heads);
  EXPECT_EQ(fetched.results.size(), 40u);
  EXPECT_THAT(fetched.results, Each(FetchResult::kWhole));
  // One host is enough: the first that is elsewhere shows that it is a cluster.
  const auto other = place_at(fmt::format("redis://127.0.0.1:{}", servers_[2]->port()));
  EXPECT_THAT(fetch(*other, heads).results, Each(FetchResult::kWhole));
  EXPECT_EQ(place->counts().failures + other->counts().failures, 0u);
}

// A slot on its way to another server, and then there: what is asked, and what is written.
TEST_F(RedisClusterTest, SlotsMoveWhileTheyAreRead) {
  const auto place = place_at(url());
  const std::vector<Head> heads = heads_of(31, 30, 20000);
  write(*place, heads);
  const Head& moving = heads[10];
  const int from = server_of(moving), to = (from + 1) % 3;
  const std::string slot = std::to_string(slot_of(moving));
  const std::string key = redis_key(moving.name, moving.kind);
  ASSERT_EQ(servers_[to]->say({"CLUSTER", "SETSLOT", slot, "IMPORTING", id_of(from)}).text, "OK");
  ASSERT_EQ(servers_[from]->say({"CLUSTER", "SETSLOT", slot, "MIGRATING", id_of(to)}).text, "OK");
  EXPECT_THAT(fetch(*place, heads).results, Each(FetchResult::kWhole));  // it is still there
  const std::string port = std::to_string(servers_[to]->port());
  ASSERT_EQ(servers_[from]->say({"MIGRATE", "127.0.0.1", port, key, "0", "2000"}).text, "OK");
  Fetched fetched = fetch(*place, heads);  // ASK
  EXPECT_TRUE(fetched.status.ok()) << fetched.status.message();
  EXPECT_EQ(fetched.results.size(), heads.size());
  EXPECT_THAT(fetched.results, Each(FetchResult::kWhole));
  place->forget(moving.name, moving.kind);
  EXPECT_THAT(place->find({&moving, 1}), ElementsAre(false));
  EXPECT_EQ(offer(*place, moving), OfferResult::kTaken) << place->trouble();
  EXPECT_EQ(servers_[to]->say({"CLUSTER", "COUNTKEYSINSLOT", slot}).integer, 1);
  const std::string id = id_of(to);
  for (const auto& server : {servers_[to].get(), servers_[from].get()}) {
    ASSERT_EQ(server->say({"CLUSTER", "SETSLOT", slot, "NODE", id}).text, "OK");
  }
  fetched = fetch(*place, heads);  // MOVED
  EXPECT_TRUE(fetched.status.ok()) << fetched.status.message();
  EXPECT_EQ(fetched.results.size(), heads.size());
  EXPECT_THAT(fetched.results, Each(FetchResult::kWhole));
  EXPECT_EQ(place->counts().failures, 0u) << place->trouble();
}

TEST_F(RedisClusterTest, AnotherTakesThePlaceOfAServerThatDied) {
  add_server();
  join(4);
  wait_until([&] { return servers_[3]->say({"CLUSTER", "REPLICATE", id_of(2)}).text == "OK"; });
  wait_until([&] {
    return servers_[3]->say({"INFO", "replication"}).text.find("master_link_status:up") !=
           std::string::npos;
  });
  const auto place = place_at(url());
  const std::vector<Head> heads = heads_of(32, 30, 3000);
  write(*place, heads);
  ASSERT_EQ(servers_[2]->say({"WAIT", "1", "5000"}).type, RedisReply::Type::kInteger);
  wait_until(
      [&] { return servers_[3]->say({"DBSIZE"}).integer == servers_[2]->say({"DBSIZE"}).integer; });
  servers_[2]->kill();
  const auto begun = std::chrono::steady_clock::now();
  const Fetched failed = fetch(*place, heads);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
  if (!failed.status.ok()) {  // unless it was replaced already
    EXPECT_THAT(failed.status.message(), HasSubstr("127.0.0.1"));
  }
  servers_[3]->say({"CLUSTER", "FAILOVER", "TAKEOVER"});
  wait_until([&] { return fetch(*place, heads).results.size() == heads.size(); });
  EXPECT_THAT(fetch(*place, heads).results, Each(FetchResult::kWhole));
}

TEST_F(RedisPlaceTest, SeveralHostsThatAreNoClusterAreRefused) {
  const RedisServerForTest server;
  const auto place = place_at(fmt::format("{},127.0.0.1:{}", server.url(), server.port()));
  const Head head = page_at(33, 0, 100);
  EXPECT_THAT(fetch(*place, {head}).status.message(), HasSubstr("cluster support disabled"));
}

}  // namespace
}  // namespace wideep::store
