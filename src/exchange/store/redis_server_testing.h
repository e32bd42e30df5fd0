// SPDX-License-Identifier: Apache-2.0
//
// For tests: redis-server on a free port of this machine, and a relay before it that delays, stops
// or cuts what the server says.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/scratch_directory.h"
#include "store/redis_connection.h"

namespace wideep::store {

class RedisServerForTest {
 public:
  // arguments: of redis-server, besides folder and address. tls: what a client says to get in.
  explicit RedisServerForTest(std::vector<std::string> arguments = {}, RedisOptions client = {});
  RedisServerForTest(const RedisServerForTest&) = delete;
  RedisServerForTest& operator=(const RedisServerForTest&) = delete;
  ~RedisServerForTest() { kill(); }

  void start();
  void kill();
  int port() const { return port_; }
  int cluster_port() const { return cluster_port_; }
  std::string url() const;
  // A command on a connection of its own.
  RedisReply say(std::initializer_list<std::string_view> words) const;

 private:
  base::ScratchDirectory folder_;
  std::vector<std::string> arguments_;
  RedisOptions client_;
  int port_, cluster_port_;
  pid_t pid_ = -1;
};

// Between one client at a time and a server.
class RelayForTest {
 public:
  explicit RelayForTest(int server_port);
  ~RelayForTest();

  int port() const { return port_; }
  // Waits before each piece of what the server says, of at most 16 KiB.
  std::atomic<int> delay_ms = 0;
  // Of what the server says to each client so many bytes come through: then it says nothing more,
  // or (cuts) the connection ends. -1: all.
  std::atomic<int64_t> max_bytes = -1;
  std::atomic<bool> cuts = false;
  std::atomic<int> num_clients = 0;

 private:
  void run();
  void serve(int client) const;

  int port_, server_port_, listener_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace wideep::store
