// SPDX-License-Identifier: Apache-2.0
//
// A failure means that a server whose name has no address for a moment, or another one than before,
// gets no requests any more.
#include "server/router_names.h"

#include <gtest/gtest.h>

#include <future>
#include <map>

#include "http/http_client_testing.h"
#include "server/router_testing.h"

namespace wideep::server {
namespace {

using Resolved = RouterReplicas::Resolved;

RouterMember member(const std::string& host, int port = 1) {
  return {.address = {.host = host, .port = port}};
}

class RouterNamesTest : public RoutedTest {
 protected:
  void put(const std::string& host, const std::string& numbers) {
    const std::lock_guard lock(mutex_);
    numbers_[host] = numbers;
  }
  std::vector<std::string> told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  void take(const std::vector<Resolved>& members) {
    std::string text;
    for (const Resolved& each : members)
      text += each.member.address.host + "=" + each.numbers + " ";
    const std::lock_guard lock(mutex_);
    told_.push_back(text);
  }
  Result<std::string> look_up(const ReplicaAddress& address) {
    const std::lock_guard lock(mutex_);
    ++num_look_ups_;
    const std::string& numbers = numbers_[address.host];
    if (numbers.empty()) return failed(address.host + ": no address");
    return numbers;
  }
  int num_look_ups() {
    const std::lock_guard lock(mutex_);
    return num_look_ups_;
  }

  std::mutex mutex_;
  std::map<std::string, std::string> numbers_;
  std::vector<std::string> told_;
  int num_look_ups_ = 0;
  RouterNames names_{[this](const auto& members) { take(members); },
                     [this](const auto& address) { return look_up(address); },
                     std::chrono::milliseconds(5)};
};

TEST_F(RouterNamesTest, AreLookedUpUntilTheyHaveAnAddressAndWhenItChanges) {
  put("a", "10.0.0.1");
  names_.set({member("a"), member("b")});
  ASSERT_TRUE(comes([&] { return num_look_ups() > 6; }));
  put("b", "10.0.0.2");
  ASSERT_TRUE(comes([&] { return told().size() == 2; }));
  put("a", "10.0.0.3");
  ASSERT_TRUE(comes([&] { return told().size() == 3; }));
  put("a", "");
  ASSERT_TRUE(comes([&] { return told().size() == 4; }));
  names_.set({member("b")});
  ASSERT_TRUE(comes([&] { return told().size() == 5; }));
  EXPECT_EQ(told(),
            (std::vector<std::string>{"a=10.0.0.1 b= ", "a=10.0.0.1 b=10.0.0.2 ",
                                      "a=10.0.0.3 b=10.0.0.2 ", "a= b=10.0.0.2 ", "b=10.0.0.2 "}));
}

// Of its replicas alone, on the thread of an event loop.
class RouterReplicasTest : public RoutedTest {
 protected:
  RouterReplicasTest() {
    http_ = HttpServer::listen({.port = 0}, [](std::shared_ptr<Exchange>) {}).value();
    RouterOptions options;
    options.disaggregation = DisaggregationOptions();
    replicas_ = std::make_unique<RouterReplicas>(*http_, options, std::vector<Resolved>());
    thread_ = std::thread([this] { http_->run(); });
  }
  ~RouterReplicasTest() override {
    on_loop([this] { replicas_.reset(); });
    http_->stop();
    thread_.join();
  }
  void on_loop(const std::function<void()>& call) {
    std::promise<void> done;
    http_->post([&] {
      call();
      done.set_value();
    });
    done.get_future().wait();
  }
  void set(const std::vector<Resolved>& members) {
    on_loop([&] { replicas_->set_members(members); });
  }
  size_t num_healthy() {
    size_t count = 0;
    on_loop([&] {
      replicas_->probe();
      count = replicas_->num_healthy();
    });
    return count;
  }

  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<RouterReplicas> replicas_;
  std::thread thread_;
};

TEST_F(RouterReplicasTest, AMemberIsAskedWhereItsNameIs) {
  TestReplica pod([](const auto& exchange) { exchange->reply(404, "text/plain", ""); });
  const RouterMember name = member("pod", pod.port());
  set({{.member = name, .numbers = ""}});
  EXPECT_EQ(replicas_->num_members(), 0u);
  set({{.member = name, .numbers = "127.0.0.2"}});  // nobody is there
  EXPECT_TRUE(comes([&] { return num_healthy() == 0; }));
  EXPECT_EQ(replicas_->num_members(), 1u);
  set({{.member = name, .numbers = "127.0.0.1"}});
  EXPECT_TRUE(comes([&] { return num_healthy() == 1; }));
  set({{.member = name, .numbers = ""}});  // it stays
  EXPECT_EQ(num_healthy(), 1u);
}

TEST_F(RouterReplicasTest, WhoFindsNoSlotWaitsForOne) {
  std::vector<Resolved> members;
  for (size_t i = 0; i <= RouterReplicas::kMaxJoining; ++i) {
    members.push_back({.member = member("h", static_cast<int>(i) + 1), .numbers = "127.0.0.2"});
  }
  set(members);
  EXPECT_EQ(replicas_->num_members(), RouterReplicas::kMaxJoining);
  EXPECT_EQ(replicas_->urls().find("http://h:257"), std::string::npos);
  members.erase(members.begin());
  set(members);
  EXPECT_NE(replicas_->urls().find("http://h:257"), std::string::npos);
}

}  // namespace
}  // namespace wideep::server
