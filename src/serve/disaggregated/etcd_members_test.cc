// SPDX-License-Identifier: Apache-2.0
//
// With an etcd of this process, which fails as a test wants; what an etcd itself does, its leases
// and restarts, with a real one, which is skipped where there is none.
#include "disaggregated/etcd_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "disaggregated/etcd_testing.h"
#include "transport/programs_testing.h"

namespace wideep::disaggregated {
namespace {

using engine::Role;
using server::RouterMember;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Texts = std::vector<std::string>;

parallel::DisaggCluster cluster_at(const std::string& address) {
  return {.etcd = address, .name = "c", .heartbeat_seconds = 1, .inactive_seconds = 3};
}

Texts texts_of(const std::vector<RouterMember>& members) {
  Texts texts;
  for (const RouterMember& each : members) {
    texts.push_back(each.address.url() + " " + std::string(engine::name_of(each.role)));
  }
  return texts;
}

// What a proxy has been told.
class Proxy {
 public:
  explicit Proxy(const parallel::DisaggCluster& cluster)
      : watch_(cluster, [this](const std::vector<RouterMember>& members) {
          const std::lock_guard lock(mutex_);
          told_.push_back(texts_of(members));
        }) {}

  std::vector<Texts> told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  // Waits until the last list is this one.
  bool sees(const Texts& members, int seconds = 10) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (std::chrono::steady_clock::now() < until) {
      const auto lists = told();
      if (!lists.empty() && lists.back() == members) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ADD_FAILURE() << "last list: "
                  << (told().empty() ? "none" : testing::PrintToString(told().back()));
    return false;
  }

 private:
  std::mutex mutex_;
  std::vector<Texts> told_;  // guarded by mutex_
  EtcdWatch watch_;          // last: it calls
};

TEST(EtcdEntries, AreThoseOfTensorRtLlm) {
  const auto entries = entries_of(worker_prefix("c"), {{"h", 8001}, Role::kBoth}, "ab");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].key, "/trtllm-disagg/c/workers/CONTEXT-h:8001-ab");
  EXPECT_EQ(entries[0].value,
            R"({"host":"h","port":8001,"role":0,"worker_id":"CONTEXT-h:8001-ab"})");
  EXPECT_EQ(entries[1].key, "/trtllm-disagg/c/workers/GENERATION-h:8001-ab");
  EXPECT_EQ(entries_of("p/", {{"h", 1}, Role::kDecode}, "x").front().key, "p/GENERATION-h:1-x");
  std::vector<std::string> complaints;
  EXPECT_THAT(texts_of(members_of(entries, &complaints)), ElementsAre("http://h:8001 both"));
  EXPECT_THAT(complaints, IsEmpty());
}

TEST(EtcdEntries, ThatAreNoWorkersAreLeftOutWithALine) {
  std::vector<std::string> complaints;
  const auto members = members_of({{"k/a", R"({"host":"h","port":1,"role":0})"},
                                   {"k/b", R"({"host":"h","port":1,"role":2})"},
                                   {"k/c", R"({"host":"h","port":0,"role":1})"},
                                   {"k/d", R"({"host":"a/b","port":1,"role":1})"},
                                   {"k/e", "text"},
                                   {"k/f", R"(["host"])"},
                                   {"k/g", R"({"host":1,"port":"1","role":0})"},
                                   {"k/h", R"({"port":1,"role":0})"}},
                                  &complaints);
  EXPECT_THAT(texts_of(members), ElementsAre("http://h:1 prefill"));
  ASSERT_EQ(complaints.size(), 7u);
  EXPECT_THAT(complaints[3], HasSubstr("etcd: k/e: expected a worker with host, port and role 0 "
                                       "or 1, found 'text'; it is left out"));
}

TEST(EtcdMembers, ComeChangeAndGo) {
  FakeEtcd etcd;
  const auto cluster = cluster_at(etcd.address());
  Proxy proxy(cluster);
  EXPECT_TRUE(proxy.sees({}));
  EtcdRegistration one(cluster, "10.0.0.1", Role::kBoth), two(cluster, "", Role::kDecode);
  one.change_role(Role::kPrefill);
  one.join(8001);
  EXPECT_TRUE(proxy.sees({"http://10.0.0.1:8001 prefill"}));
  two.join(8002);
  EXPECT_TRUE(proxy.sees({"http://10.0.0.1:8001 prefill", "http://127.0.0.1:8002 decode"}));
  one.change_role(Role::kBoth);
  EXPECT_TRUE(proxy.sees({"http://10.0.0.1:8001 both", "http://127.0.0.1:8002 decode"}));
  one.change_role(Role::kDecode);
  EXPECT_TRUE(proxy.sees({"http://10.0.0.1:8001 decode", "http://127.0.0.1:8002 decode"}));
  two.leave();
  EXPECT_TRUE(proxy.sees({"http://10.0.0.1:8001 decode"}));
  two.join(8002);  // as after DELETE /drain
  EXPECT_TRUE(proxy.sees({"http://10.0.0.1:8001 decode", "http://127.0.0.1:8002 decode"}));
  EXPECT_GT(etcd.num_heartbeats, 0);
  // No list was without a member that was there.
  for (const Texts& each : proxy.told()) EXPECT_LE(each.size(), 2u);
}

TEST(EtcdMembers, LeaveWhenTheyAreDestroyed) {
  FakeEtcd etcd;
  {
    EtcdRegistration server(cluster_at(etcd.address()), "h", Role::kBoth);
    server.join(1);
    while (etcd.num_keys() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(etcd.num_keys(), 0u);
}

TEST(EtcdMembers, DoNotComeBackAfterTheEnd) {
  FakeEtcd etcd;
  EtcdRegistration server(cluster_at(etcd.address()), "h", Role::kPrefill);
  server.join(1);
  while (etcd.num_keys() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  server.end();
  server.join(1);  // of another thread, which has not heard of it
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(etcd.num_keys(), 0u);
}

TEST(EtcdMembers, AnEtcdThatIsAwayTakesNobodyAway) {
  FakeEtcd etcd;
  const auto cluster = cluster_at(etcd.address());
  Proxy proxy(cluster);
  EtcdRegistration server(cluster, "h", Role::kPrefill);
  server.join(1);
  ASSERT_TRUE(proxy.sees({"http://h:1 prefill"}));
  const size_t before = proxy.told().size();
  etcd.refuses = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  etcd.babbles = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  // It is back without what it had: servers register anew, and the proxy misses nobody meanwhile.
  etcd.forget();
  etcd.refuses = etcd.babbles = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(5000));
  EXPECT_EQ(proxy.told().size(), before);
  EXPECT_EQ(etcd.num_keys(), 1u);
  server.leave();
  EXPECT_TRUE(proxy.sees({}));
}

TEST(EtcdMembers, EntriesOfOthersAreSeenOnce) {
  FakeEtcd etcd;
  etcd.put("/trtllm-disagg/c/workers/CONTEXT-w",
           R"({"worker_id":"w","host":"w","port":5,"role":0})");
  etcd.put("/trtllm-disagg/c/workers/bad", "{}");
  etcd.put("/trtllm-disagg/other/workers/x", R"({"worker_id":"x","host":"x","port":5,"role":0})");
  Proxy proxy(cluster_at(etcd.address()));
  EXPECT_TRUE(proxy.sees({"http://w:5 prefill"}));
}

// And again when it has come again: what is gone is not kept.
TEST(EtcdMembers, ABadEntryIsToldOnceWhileItIsThere) {
  testing::internal::CaptureStderr();
  {
    FakeEtcd etcd;
    const std::string key = "/trtllm-disagg/c/workers/w";
    etcd.put(key, "{}");
    Proxy proxy(cluster_at(etcd.address()));
    EXPECT_TRUE(proxy.sees({}));
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // for another look
    etcd.put(key, R"({"worker_id":"w","host":"w","port":5,"role":0})");
    EXPECT_TRUE(proxy.sees({"http://w:5 prefill"}));
    etcd.put(key, "{}");
    EXPECT_TRUE(proxy.sees({}));
  }
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line = "etcd: /trtllm-disagg/c/workers/w: expected a worker";
  const size_t first = log.find(line), second = log.find(line, first + 1);
  ASSERT_NE(second, log.npos) << log;
  EXPECT_EQ(log.find(line, second + 1), log.npos) << log;
}

TEST(EtcdGateway, NamesWhatIsWrong) {
  EtcdGateway nobody("127.0.0.1:1");
  EXPECT_THAT(nobody.range("/").status().message(), HasSubstr("etcd://127.0.0.1:1: "));
  FakeEtcd etcd;
  EtcdGateway gateway(etcd.address());
  EXPECT_THAT(gateway.put({"k", "v"}, "77").message(), HasSubstr("requested lease not found"));
  EXPECT_EQ(*gateway.keep_alive("77"), false);
  etcd.babbles = true;
  EXPECT_THAT(gateway.range("/").status().message(),
              HasSubstr("/v3/kv/range: expected a reply of etcd's JSON gateway, found 'hello'"));
  EXPECT_FALSE(gateway.grant(3).ok());
  EXPECT_FALSE(gateway.keep_alive("1").ok());
}

class RealEtcdTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!transport::has_program("etcd"))
      GTEST_SKIP() << "etcd-server is missing (scripts/test_packages.txt)";
  }
};

TEST_F(RealEtcdTest, MembersComeChangeAndGo) {
  EtcdForTest etcd;
  const auto cluster = cluster_at(etcd.address());
  Proxy proxy(cluster);
  EtcdRegistration one(cluster, "10.0.0.1", Role::kPrefill);
  one.join(8001);
  EXPECT_TRUE(proxy.sees({"http://10.0.0.1:8001 prefill"}));
  {
    EtcdRegistration two(cluster, "10.0.0.2", Role::kDecode);
    two.join(8002);
    EXPECT_TRUE(proxy.sees({"http://10.0.0.1:8001 prefill", "http://10.0.0.2:8002 decode"}));
    one.change_role(Role::kBoth);
    EXPECT_TRUE(proxy.sees({"http://10.0.0.1:8001 both", "http://10.0.0.2:8002 decode"}));
  }
  EXPECT_TRUE(proxy.sees({"http://10.0.0.1:8001 both"}));
  // Heartbeats keep it for longer than a lease.
  std::this_thread::sleep_for(std::chrono::seconds(4));
  EXPECT_TRUE(proxy.sees({"http://10.0.0.1:8001 both"}));
}

TEST_F(RealEtcdTest, ALeaseEndsWithItsServer) {
  EtcdForTest etcd;
  const auto cluster = cluster_at(etcd.address());
  Proxy proxy(cluster);
  EtcdGateway server(etcd.address());  // which sends no heartbeat
  const auto lease = server.grant(cluster.inactive_seconds);
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  for (const auto& each : entries_of(worker_prefix("c"), {{"h", 1}, Role::kPrefill}, "x")) {
    ASSERT_TRUE(server.put(each, *lease).ok());
  }
  EXPECT_TRUE(proxy.sees({"http://h:1 prefill"}));
  EXPECT_TRUE(proxy.sees({}, 20));
  EXPECT_EQ(*server.keep_alive(*lease), false);
}

TEST_F(RealEtcdTest, ARestartTakesNobodyAway) {
  EtcdForTest etcd;
  const auto cluster = cluster_at(etcd.address());
  Proxy proxy(cluster);
  EtcdRegistration server(cluster, "h", Role::kPrefill);
  server.join(1);
  ASSERT_TRUE(proxy.sees({"http://h:1 prefill"}));
  const size_t before = proxy.told().size();
  etcd.kill();
  etcd.start();
  std::this_thread::sleep_for(std::chrono::seconds(4));
  etcd.kill();
  etcd.forget();
  etcd.start();
  std::this_thread::sleep_for(std::chrono::seconds(5));
  EXPECT_EQ(proxy.told().size(), before);
  EtcdGateway gateway(etcd.address());
  EXPECT_EQ(gateway.range("/trtllm-disagg/c/workers/")->entries.size(), 1u);
}

}  // namespace
}  // namespace wideep::disaggregated
