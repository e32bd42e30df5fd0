// SPDX-License-Identifier: Apache-2.0
//
// For tests of the router: replicas that reply as the test wants, and a router before them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "http/http_client_testing.h"
#include "http/http_server.h"
#include "server/router.h"

namespace wideep::server {

// A replica with a thread of its own. Requests of /health are answered but not counted.
class TestReplica {
 public:
  explicit TestReplica(HttpServer::Handler handler) {
    auto server = HttpServer::listen({.port = 0}, [this, handler](std::shared_ptr<Exchange> each) {
      if (each->path() == "/health")
        return each->reply(health, "text/plain", drains ? "\"draining\"" : "");
      ++asked;
      handler(each);
    });
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    thread_ = std::thread([this] { server_->run(); });
  }
  ~TestReplica() {
    server_->stop();
    thread_.join();
  }
  int port() const { return server_->port(); }
  HttpServer& server() { return *server_; }

  std::atomic<int> asked = 0;
  std::atomic<int> health = 200;
  std::atomic<bool> drains = false;  // what its health says

 private:
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

class RoutedTest : public testing::Test {
 protected:
  ~RoutedTest() override { end(); }

  void route(RouterOptions options, const std::vector<int>& ports) {
    for (const int port : ports) options.replicas.push_back({.address = {"127.0.0.1", port}});
    auto router = Router::listen(options);
    ASSERT_TRUE(router.ok()) << router.status().message();
    router_ = std::move(*router);
    thread_ = std::thread([this] {
      router_->run();
      over_ = true;
    });
  }
  void end() {
    if (router_ == nullptr) return;
    router_->stop();
    if (thread_.joinable()) thread_.join();
    router_.reset();
  }
  // A value of the router's metrics.
  std::string value(const std::string& name, int port) const {
    const std::string text = ask(router_->port(), "GET", "/metrics").body;
    const std::string line =
        "\nwideep_router_" + name + "{replica=\"http://127.0.0.1:" + std::to_string(port) + "\"} ";
    const size_t at = text.find(line);
    if (at == text.npos) return "none";
    return text.substr(at + line.size(), text.find('\n', at + 1) - at - line.size());
  }
  static bool comes(const std::function<bool()>& there) {
    for (int i = 0; i < 5000 && !there(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return there();
  }

  std::unique_ptr<Router> router_;
  std::thread thread_;
  std::atomic<bool> over_ = false;
};

}  // namespace wideep::server
