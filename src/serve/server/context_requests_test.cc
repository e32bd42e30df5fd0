// SPDX-License-Identifier: Apache-2.0
#include "server/context_requests.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace wideep::server {
namespace {

using store::RequestState;

TEST(ContextRequests, NameRunsUntilTheLastOfItHasEnded) {
  ContextRequests requests;
  EXPECT_EQ(requests.state_of("a"), RequestState::kUnknown);
  requests.begin("a");
  requests.begin("a");
  requests.end("a");
  EXPECT_EQ(requests.state_of("a"), RequestState::kComputes);
  requests.end("a");
  EXPECT_EQ(requests.state_of("a"), RequestState::kEnded);
  EXPECT_LT(requests.status_of("a").ended_before, std::chrono::seconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(requests.status_of("a").ended_before, std::chrono::milliseconds(5));
  requests.end("a");  // nothing runs
  requests.begin("a");
  EXPECT_EQ(requests.state_of("a"), RequestState::kComputes);
  EXPECT_EQ(requests.num_running(), 1u);
}

TEST(ContextRequests, ForgetsTheOldestThatHaveEnded) {
  ContextRequests requests;
  const auto run = [&](const std::string& name) {
    requests.begin(name);
    requests.end(name);
  };
  run("first");
  run("twice");
  for (size_t i = 0; i + 2 < ContextRequests::kMaxEnded; ++i) run("n" + std::to_string(i));
  EXPECT_EQ(requests.state_of("first"), RequestState::kEnded);
  run("twice");
  EXPECT_EQ(requests.state_of("first"), RequestState::kUnknown);
  run("last");  // "twice" is still there once
  EXPECT_EQ(requests.state_of("twice"), RequestState::kEnded);
}

}  // namespace
}  // namespace wideep::server
