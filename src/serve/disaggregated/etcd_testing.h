// SPDX-License-Identifier: Apache-2.0
//
// For tests: an etcd on a free port of this machine, and one of this process that fails as a test
// wants.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/scratch_directory.h"
#include "http/http_server.h"

namespace wideep::disaggregated {

class EtcdForTest {
 public:
  EtcdForTest();
  EtcdForTest(const EtcdForTest&) = delete;
  EtcdForTest& operator=(const EtcdForTest&) = delete;
  ~EtcdForTest() { kill(); }

  void start();  // where it was, with what it had
  void kill();
  void forget();  // REQUIRES: it was killed
  std::string address() const;

 private:
  int port_, peer_port_;
  std::unique_ptr<base::ScratchDirectory> folder_;
  pid_t pid_ = -1;
};

// The calls of EtcdGateway, with leases that end.
class FakeEtcd {
 public:
  FakeEtcd();
  FakeEtcd(const FakeEtcd&) = delete;
  FakeEtcd& operator=(const FakeEtcd&) = delete;
  ~FakeEtcd();

  std::string address() const;
  void forget();  // as an etcd that begins anew, without its data
  void put(const std::string& key, const std::string& value);
  size_t num_keys();

  std::atomic<bool> refuses = false;  // 503 to all
  std::atomic<bool> babbles = false;  // something that is no reply of an etcd
  std::atomic<int> num_heartbeats = 0;

 private:
  using Clock = std::chrono::steady_clock;
  struct Value {
    std::string text;
    std::string lease;  // "": none
  };

  void handle(const std::shared_ptr<server::Exchange>& exchange);
  nlohmann::json answer(const std::string& path, const nlohmann::json& body, int* status);
  void expire();

  std::mutex mutex_;
  std::map<std::string, Value> values_;                 // by key
  std::map<std::string, Clock::time_point> deadlines_;  // by lease
  std::map<std::string, int> seconds_;                  // by lease
  int64_t revision_ = 1;
  int next_lease_ = 1000;
  std::unique_ptr<server::HttpServer> server_;
  std::thread thread_;
};

}  // namespace wideep::disaggregated
