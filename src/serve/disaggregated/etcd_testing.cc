// SPDX-License-Identifier: Apache-2.0
#include "disaggregated/etcd_testing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "disaggregated/etcd_gateway.h"
#include "formats/base64.h"
#include "transport/programs_testing.h"

namespace wideep::disaggregated {
namespace {

std::string text_of(const nlohmann::json& body, const char* key) {
  return formats::from_base64(body.value(key, "")).value_or("");
}

}  // namespace

EtcdForTest::EtcdForTest() : port_(transport::free_port()), peer_port_(transport::free_port()) {
  forget();
  start();
}

std::string EtcdForTest::address() const { return fmt::format("127.0.0.1:{}", port_); }

void EtcdForTest::forget() { folder_ = std::make_unique<base::ScratchDirectory>(); }

void EtcdForTest::start() {
  const std::string own = "http://" + address();
  const std::string peers = fmt::format("http://127.0.0.1:{}", peer_port_);
  std::vector<std::string> line = {"etcd",
                                   "--data-dir",
                                   folder_->file("data"),
                                   "--listen-client-urls",
                                   own,
                                   "--advertise-client-urls",
                                   own,
                                   "--listen-peer-urls",
                                   peers,
                                   "--initial-advertise-peer-urls",
                                   peers,
                                   "--initial-cluster",
                                   "default=" + peers,
                                   "--logger",
                                   "zap",
                                   "--log-outputs",
                                   folder_->file("log")};
  std::vector<char*> words;
  for (std::string& word : line) words.push_back(word.data());
  words.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execvp(words[0], words.data());
    ::_exit(127);
  }
  EtcdGateway gateway(address());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!gateway.range("/").ok()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "etcd does not answer";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void EtcdForTest::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

FakeEtcd::FakeEtcd() {
  auto server = server::HttpServer::listen(
      {.port = 0}, [this](const std::shared_ptr<server::Exchange>& each) { handle(each); });
  EXPECT_TRUE(server.ok()) << server.status().message();
  server_ = std::move(*server);
  thread_ = std::thread([this] { server_->run(); });
}

FakeEtcd::~FakeEtcd() {
  server_->stop();
  thread_.join();
}

std::string FakeEtcd::address() const { return fmt::format("127.0.0.1:{}", server_->port()); }

void FakeEtcd::forget() {
  const std::lock_guard lock(mutex_);
  values_.clear();
  deadlines_.clear();
  revision_ = 1;
}

void FakeEtcd::put(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = {value, ""};
  ++revision_;
}

size_t FakeEtcd::num_keys() {
  const std::lock_guard lock(mutex_);
  expire();
  return values_.size();
}

void FakeEtcd::expire() {
  std::erase_if(deadlines_, [](const auto& each) { return each.second < Clock::now(); });
  revision_ += static_cast<int64_t>(std::erase_if(values_, [&](const auto& each) {
    return !each.second.lease.empty() && !deadlines_.contains(each.second.lease);
  }));
}

void FakeEtcd::handle(const std::shared_ptr<server::Exchange>& exchange) {
  if (babbles) return exchange->reply(200, "text/plain", "hello");
  if (refuses) return exchange->reply(503, "application/json", R"({"error":"no leader"})");
  const std::lock_guard lock(mutex_);
  expire();
  int status = 200;
  const nlohmann::json body = nlohmann::json::parse(exchange->take_body());
  nlohmann::json reply = answer(std::string(exchange->path()), body, &status);
  reply["header"] = {{"revision", std::to_string(revision_)}};
  exchange->reply(status, "application/json", reply.dump());
}

nlohmann::json FakeEtcd::answer(const std::string& path, const nlohmann::json& body, int* status) {
  const std::string lease = body.value("ID", body.value("lease", ""));
  const auto deadline = [&] { return Clock::now() + std::chrono::seconds(seconds_[lease]); };
  if (path == "/v3/lease/grant") {
    const std::string id = std::to_string(next_lease_++);
    seconds_[id] = std::stoi(body.value("TTL", "0"));
    deadlines_[id] = Clock::now() + std::chrono::seconds(seconds_[id]);
    return {{"ID", id}, {"TTL", body["TTL"]}};
  }
  if (path == "/v3/lease/keepalive") {
    ++num_heartbeats;
    nlohmann::json result = {{"ID", lease}};
    if (deadlines_.contains(lease)) {
      deadlines_[lease] = deadline();
      result["TTL"] = std::to_string(seconds_[lease]);
    }
    return {{"result", result}};
  }
  if (path == "/v3/kv/range") {
    nlohmann::json found = nlohmann::json::array();
    for (const auto& [key, value] : values_) {
      if (key < text_of(body, "key") || key >= text_of(body, "range_end")) continue;
      found.push_back({{"key", formats::base64(key)}, {"value", formats::base64(value.text)}});
    }
    return found.empty() ? nlohmann::json::object() : nlohmann::json{{"kvs", found}};
  }
  if (path == "/v3/kv/deleterange") {
    revision_ += static_cast<int64_t>(values_.erase(text_of(body, "key")));
    return nlohmann::json::object();
  }
  if (!deadlines_.contains(lease)) {
    *status = 404;
    return {{"error", "etcdserver: requested lease not found"}};
  }
  if (path == "/v3/kv/put") {
    values_[text_of(body, "key")] = {text_of(body, "value"), lease};
    ++revision_;
  } else if (path == "/v3/lease/revoke") {
    deadlines_.erase(lease);
    expire();
  } else {
    *status = 404;
  }
  return nlohmann::json::object();
}

}  // namespace wideep::disaggregated
