// SPDX-License-Identifier: Apache-2.0
//
// RoutePolicy::kPrefix over real sockets, with replicas that reply, and tell their pages, as the
// test wants.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <mutex>
#include <optional>
#include <set>

#include "server/router_costs.h"
#include "server/router_prompt_text.h"
#include "server/router_testing.h"

namespace wideep::server {
namespace {

using testing::HasSubstr;

// Its answer is its name. Its pages are told if there is a snapshot.
class Worker {
 public:
  explicit Worker(std::string name)
      : name_(std::move(name)), replica_([this](const auto& exchange) { handle(exchange); }) {}

  int port() const { return replica_.port(); }
  TestReplica& replica() { return replica_; }
  int num_texts() const { return num_texts_; }
  int num_names() const { return num_names_; }
  int num_events() const { return num_events_; }
  std::string last_body() {
    const std::lock_guard lock(mutex_);
    return last_body_;
  }
  void set_status(int status) { status_ = status; }
  // Requests for text wait until let_go().
  void hold() { holds_ = true; }
  void let_go() {
    holds_ = false;
    replica_.server().post([this] {
      for (const auto& each : held_) each->reply(200, "text/plain", name_);
      held_.clear();
    });
  }
  void set_snapshot(uint64_t sequence, const std::string& hashes) {
    const std::lock_guard lock(mutex_);
    snapshot_ = fmt::format(
        R"({{"sequence": {}, "block_size": 64, "ranks": [{{"data_parallel_rank": 0, "blocks": [{}]}}]}})",
        sequence, hashes);
  }
  // Replies to the next question for events.
  void tell(int status, const std::string& text) {
    replica_.server().post([this, status, text] {
      if (waiting_ == nullptr) return untold_.emplace_back(status, text), void();
      std::exchange(waiting_, nullptr)->reply(status, "application/json", text);
    });
  }
  // From now on it answers questions for events at once: there are none.
  void end_events() { is_over_ = true; }
  // Ends the connection on which it would tell.
  void break_off() {
    replica_.server().post([this] {
      if (waiting_ == nullptr) return;
      waiting_->start_stream("application/json");
      waiting_.reset();
    });
  }
  // "": no reply at all; nullopt: 404.
  void set_names(std::optional<std::string> names) {
    const std::lock_guard lock(mutex_);
    names_ = std::move(names);
  }

 private:
  void handle(const std::shared_ptr<Exchange>& exchange) {
    const std::lock_guard lock(mutex_);
    if (exchange->path() == "/v1/kv_events/snapshot") {
      return exchange->reply(snapshot_.empty() ? 404 : 200, "application/json", snapshot_);
    }
    if (exchange->path() == "/v1/kv_events") {
      ++num_events_;
      if (is_over_) {
        return exchange->reply(200, "application/json", R"({"sequence": 7, "batches": []})");
      }
      if (untold_.empty()) return waiting_ = exchange, void();
      exchange->reply(untold_.front().first, "application/json", untold_.front().second);
      return untold_.pop_front();
    }
    if (exchange->path() == "/prompt_tokens") {
      ++num_names_;
      if (names_ == "") return silent_.push_back(exchange);
      return exchange->reply(names_ ? 200 : 404, "application/json", names_.value_or("{}"));
    }
    last_body_ = exchange->body();
    ++num_texts_;
    if (holds_) return held_.push_back(exchange);
    exchange->reply(status_, "text/plain", name_);
  }

  const std::string name_;
  std::atomic<int> num_texts_ = 0, num_names_ = 0, num_events_ = 0, status_ = 200;
  std::atomic<bool> holds_ = false, is_over_ = false;
  std::mutex mutex_;
  std::string snapshot_, last_body_;  // guarded by mutex_
  std::optional<std::string> names_;  // guarded by mutex_
  // Of the replica's thread.
  std::deque<std::pair<int, std::string>> untold_;
  std::shared_ptr<Exchange> waiting_;
  std::vector<std::shared_ptr<Exchange>> held_, silent_;
  TestReplica replica_;  // last: its thread uses the members above
};

// A request whose prompt begins with so many bytes of this letter.
std::string request(char letter, size_t bytes, const std::string& end = "") {
  return R"({"prompt": ")" + std::string(bytes, letter) + end + "\"}";
}

// Of a prompt with 200 tokens and the pages 1, 2 and 3.
std::string names() {
  std::string tokens = "0";
  for (int i = 1; i < 200; ++i) tokens += fmt::format(",{}", i);
  return R"({"prompts": [[)" + tokens + R"(]], "cache_salt": "", "page_hashes": [[1, 2, 3]]})";
}

class RouterPrefixTest : public RoutedTest {
 protected:
  void route_to(const std::vector<int>& ports) {
    route({.http = {.port = 0}, .replicas = {}, .policy = RoutePolicy::kPrefix}, ports);
  }
  std::string post(const std::string& body, const std::string& headers = "") const {
    return ask(router_->port(), "POST", "/v1/completions", body, headers).body;
  }
  bool is_known(const Worker& worker) const {
    return value("kv_events_known", worker.port()) == "1";
  }
  std::string total(const std::string& name) const {
    const std::string text = ask(router_->port(), "GET", "/metrics").body;
    const std::string line = "\nwideep_router_" + name + " ";
    const size_t at = text.find(line);
    if (at == text.npos) return "none";
    return text.substr(at + line.size(), text.find('\n', at + 1) - at - line.size());
  }
  // Sends a request without waiting for its answer, until a worker has it.
  void send(const std::string& body, const std::vector<const Worker*>& workers) {
    const auto sum = [&] {
      int all = 0;
      for (const Worker* each : workers) all += each->num_texts();
      return all;
    };
    const int before = sum();
    clients_.push_back(std::make_unique<Socket>(router_->port()));
    clients_.back()->send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n" + body);
    ASSERT_TRUE(comes([&] { return sum() > before; }));
  }

  std::vector<std::unique_ptr<Socket>> clients_;
};

TEST_F(RouterPrefixTest, ConversationsStayWhereTheyBegan) {
  Worker a("a"), b("b"), c("c");
  route_to({a.port(), b.port(), c.port()});
  std::map<char, std::string> homes;
  for (const char letter : {'u', 'v', 'w'}) homes[letter] = post(request(letter, 3000));
  EXPECT_EQ(homes['u'] + homes['v'] + homes['w'], "abc");  // misses take turns
  std::string end;
  for (int turn = 0; turn < 6; ++turn) {
    end += std::string(300, static_cast<char>('0' + turn));
    for (const char letter : {'w', 'u', 'v'}) {
      EXPECT_EQ(post(request(letter, 3000, end)), homes[letter]) << letter << turn;
    }
  }
  EXPECT_EQ(value("prefix_misses_total", a.port()), "1");
  EXPECT_EQ(value("prefix_hits_total", a.port()), "6");
  EXPECT_GT(std::stoi(value("prefix_matched_bytes_total", a.port())), 6 * 2800);
  EXPECT_EQ(value("work_bytes", a.port()), "0");
  EXPECT_EQ(total("prefix_exact_total"), "0");
  EXPECT_EQ(total("prefix_unread_total"), "0");
}

TEST_F(RouterPrefixTest, APopularBeginningSpreadsWhereItsReplicaIsBusy) {
  Worker a("a"), b("b");
  route_to({a.port(), b.port()});
  constexpr size_t kPrompt = 40'000;
  ASSERT_EQ(post(request('p', kPrompt)), "a");
  a.hold();
  b.hold();
  // As many as are cheaper than to compute it again, all at the first.
  const int cheaper = static_cast<int>(kPrompt / kRequestBytes);
  for (int i = 0; i < cheaper - 1; ++i) send(request('p', kPrompt), {&a, &b});
  EXPECT_EQ(a.num_texts(), cheaper);
  EXPECT_EQ(b.num_texts(), 0);
  for (int i = 0; i < 3; ++i) send(request('p', kPrompt), {&a, &b});
  EXPECT_GE(b.num_texts(), 1);
  // Now both have it.
  EXPECT_NE(value("work_bytes", a.port()), "0");
  a.let_go();
  b.let_go();
  EXPECT_TRUE(comes([&] {
    return value("work_bytes", a.port()) == "0" && value("work_bytes", b.port()) == "0";
  }));
}

TEST_F(RouterPrefixTest, MissesGoToTheLeastLoaded) {
  Worker a("a"), b("b");
  route_to({a.port(), b.port()});
  a.hold();
  send(request('a', 5000), {&a, &b});
  ASSERT_EQ(a.num_texts(), 1);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(post(request(static_cast<char>('b' + i), 3000)), "b");
  a.let_go();
}

TEST_F(RouterPrefixTest, DeadDrainingAndFullReplicasLeaveTheOthersTheirPrompts) {
  Worker a("a"), b("b"), d("d");
  auto c = std::make_unique<Worker>("c");
  route_to({a.port(), b.port(), c->port(), d.port()});
  std::map<char, std::string> homes;
  for (const char letter : {'u', 'v', 'w', 'x'}) homes[letter] = post(request(letter, 3000));
  ASSERT_EQ(homes['w'], "c");
  c.reset();
  d.set_status(429);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(post(request('u', 3000)), "a");
    EXPECT_EQ(post(request('v', 3000)), "b");
  }
  EXPECT_THAT(post(request('w', 3000)), testing::AnyOf("a", "b"));
  EXPECT_THAT(post(request('x', 3000)), testing::AnyOf("a", "b"));
  d.set_status(200);
  b.replica().drains = true;
  b.replica().health = 503;
  ASSERT_TRUE(comes([&] { return value("replica_up", b.port()) == "0"; }));
  EXPECT_EQ(post(request('u', 3000)), "a");
  for (int i = 0; i < 4; ++i) EXPECT_NE(post(request(static_cast<char>('0' + i), 3000)), "b");
  b.replica().health = 200;
  b.replica().drains = false;
  ASSERT_TRUE(comes([&] { return value("replica_up", b.port()) == "1"; }));
  EXPECT_EQ(post(request('v', 3000)), "b");  // it has kept what it had
}

TEST_F(RouterPrefixTest, ARestartedReplicaIsCold) {
  Worker a("a"), b("b");
  route_to({a.port(), b.port()});
  ASSERT_EQ(post(request('u', 3000)), "a");
  ASSERT_EQ(post(request('v', 3000)), "b");
  ASSERT_EQ(post(request('u', 3000)), "a");
  ASSERT_EQ(value("prefix_hits_total", a.port()), "1");
  a.replica().health = 503;
  ASSERT_TRUE(comes([&] { return value("replica_up", a.port()) == "0"; }));
  a.replica().health = 200;
  ASSERT_TRUE(comes([&] { return value("replica_up", a.port()) == "1"; }));
  // Whoever gets it now has nothing of it.
  post(request('u', 3000));
  EXPECT_EQ(value("prefix_hits_total", a.port()), "1");
  EXPECT_EQ(value("prefix_hits_total", b.port()), "0");
  EXPECT_EQ(post(request('v', 3000)), "b");
}

// The server says what is wrong.
TEST_F(RouterPrefixTest, BodiesThatCannotBeReadArePassedOn) {
  Worker a("a");
  route_to({a.port()});
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("\0\xff", 2),
        R"({"prompt": ")" + std::string(5000, 'x'), std::string(3000, '[')}) {
    EXPECT_EQ(post(body), "a");
    EXPECT_EQ(a.last_body(), body);
  }
  EXPECT_EQ(post(request('u', 3000), "Content-Encoding: gzip\r\n"), "a");
  EXPECT_EQ(total("prefix_unread_total"), "6");
  EXPECT_EQ(ask(router_->port(), "GET", "/v1/models").body, "a");
  EXPECT_EQ(value("work_bytes", a.port()), "0");
}

TEST_F(RouterPrefixTest, ReplicasTellTheirPages) {
  Worker a("a"), b("b");
  a.set_snapshot(5, "");
  b.set_snapshot(5, R"({"hash": 1, "parent": null}, {"hash": 2, "parent": 1})");
  a.set_names(names());
  b.set_names(names());
  route_to({a.port(), b.port()});
  ASSERT_TRUE(comes([&] { return is_known(a) && is_known(b); }));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(post(request(static_cast<char>('a' + i), 3000)), "b");
  }
  EXPECT_EQ(total("prefix_exact_total"), "3");
  EXPECT_EQ(post(request('s', 1000)).size(), 1u);  // too short to ask
  EXPECT_EQ(total("prefix_exact_total"), "3");
  // Pages come and go.
  a.tell(200, R"({"sequence": 6, "batches": [{"sequence": 6, "data_parallel_rank": 0, "events": [
      {"type": "BlockStored", "block_hashes": [1, 2, 3]}]}]})");
  ASSERT_TRUE(comes([&] { return value("kv_pages", a.port()) == "3"; }));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post(request(static_cast<char>('d' + i), 3000)), "a");
  b.tell(200, R"({"sequence": 6, "batches": [{"sequence": 6, "data_parallel_rank": 0, "events": [
      {"type": "AllBlocksCleared"}]}]})");
  ASSERT_TRUE(comes([&] { return value("kv_pages", b.port()) == "0"; }));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post(request(static_cast<char>('A' + i), 3000)), "a");
  // It has lost the thread, and is read anew.
  a.set_snapshot(90, "");
  b.set_snapshot(50, R"({"hash": 1, "parent": null})");
  a.tell(410, "{}");
  b.tell(410, "{}");
  ASSERT_TRUE(comes([&] {
    return is_known(a) && value("kv_pages", a.port()) == "0" && value("kv_pages", b.port()) == "1";
  }));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post(request(static_cast<char>('0' + i), 3000)), "b");
}

// It may have died between two health checks.
// As one that drains does, whose pages stay known: it has better to do than to answer all the time.
TEST_F(RouterPrefixTest, AReplicaWithoutEventsIsNotAskedAllTheTime) {
  Worker worker("a");
  worker.set_snapshot(7, R"({"hash": 1, "parent": null})");
  worker.end_events();
  route_to({worker.port()});
  ASSERT_TRUE(comes([&] { return worker.num_events() > 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_LE(worker.num_events(), 3);
  EXPECT_TRUE(is_known(worker));
  ASSERT_TRUE(comes([&] { return worker.num_events() > 3; }));  // later it is asked again
}

TEST_F(RouterPrefixTest, AReplicaThatBreaksOffItsEventsIsCold) {
  Worker a("a"), b("b");
  a.set_snapshot(5, "");
  route_to({a.port(), b.port()});
  ASSERT_TRUE(comes([&] { return is_known(a); }));
  ASSERT_EQ(post(request('u', 1500)), "a");
  ASSERT_EQ(post(request('u', 1500)), "a");
  ASSERT_EQ(value("prefix_hits_total", a.port()), "1");
  a.set_snapshot(9, R"({"hash": 1, "parent": null})");
  a.break_off();
  ASSERT_TRUE(comes([&] { return value("kv_events_known", a.port()) == "0"; }));
  post(request('u', 1500));
  EXPECT_EQ(value("prefix_hits_total", a.port()), "1");
}

// Its pages are not told, so that what it was sent is all that is known.
TEST_F(RouterPrefixTest, PromptsWithASaltAreNotAskedFor) {
  Worker a("a"), b("b");
  a.set_snapshot(5, "");
  a.set_names(names());
  route_to({a.port(), b.port()});
  ASSERT_TRUE(comes([&] { return is_known(a); }));
  const std::string body =
      R"({"cache_salt": "tenant", "prompt": ")" + std::string(3000, 'u') + "\"}";
  const std::string home = post(body);
  EXPECT_EQ(post(body), home);
  EXPECT_EQ(a.num_names() + b.num_names(), 0);
}

TEST_F(RouterPrefixTest, NamesThatAreLateOrWrongAreDoneWithout) {
  Worker a("a"), b("b");
  for (Worker* each : {&a, &b}) {
    each->set_snapshot(5, "");
    each->set_names("");
  }
  route_to({a.port(), b.port()});
  ASSERT_TRUE(comes([&] { return is_known(a) && is_known(b); }));
  const auto start = std::chrono::steady_clock::now();
  const std::string home = post(request('u', 3000));
  // Each is late once, then not asked for a while.
  for (int i = 0; i < 8; ++i) EXPECT_EQ(post(request('u', 3000)), home);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(a.num_names() + b.num_names(), 2);
  EXPECT_EQ(total("prefix_exact_total"), "0");
}

TEST_F(RouterPrefixTest, ReplicasWithoutNamesAreAskedOnce) {
  Worker a("a");
  a.set_snapshot(5, "");
  route_to({a.port()});
  ASSERT_TRUE(comes([&] { return is_known(a); }));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(post(request('u', 3000)), "a");
  EXPECT_EQ(a.num_names(), 1);
  a.set_names("{}");
  EXPECT_EQ(post(request('u', 3000)), "a");
}

TEST_F(RouterPrefixTest, ClientsMayLeaveAndTheRouterEndWhileAPromptIsPlaced) {
  Worker a("a");
  a.set_snapshot(5, "");
  a.set_names("");
  route_to({a.port()});
  ASSERT_TRUE(comes([&] { return is_known(a); }));
  const std::string body = request('u', 3000);
  const std::string sent =
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\n\r\n" + body;
  {
    Socket client(router_->port());
    client.send(sent);
    ASSERT_TRUE(comes([&] { return a.num_names() == 1; }));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_EQ(a.num_texts(), 0);
  EXPECT_EQ(value("requests_running", a.port()), "0");
  std::vector<std::unique_ptr<Socket>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<Socket>(router_->port()));
    clients.back()->send(sent);
  }
  end();
}

TEST_F(RouterPrefixTest, CachesAndEventsAreOfOneReplica) {
  Worker a("a");
  route_to({a.port()});
  for (const char* path : {"/v1/cache/export", "/v1/cache/import", "/v1/kv_events",
                           "/v1/kv_events/snapshot?tokens=0"}) {
    const Reply reply = ask(router_->port(), "POST", path, "{}");
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_THAT(reply.body, HasSubstr("is about a single replica: request it there, for example at "
                                      "http://127.0.0.1:" +
                                      std::to_string(a.port())));
  }
}

}  // namespace
}  // namespace wideep::server
