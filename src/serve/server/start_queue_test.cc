// SPDX-License-Identifier: Apache-2.0
#include "server/start_queue.h"

#include <gtest/gtest.h>

namespace wideep::server {
namespace {

engine::Request request(int index) { return {.index = index}; }

std::vector<int> indices(const std::vector<engine::Request>& requests) {
  std::vector<int> all;
  for (const auto& each : requests) all.push_back(each.index);
  return all;
}

TEST(StartQueue, IsOpenWhereNothingIsToWaitFor) {
  EXPECT_TRUE(StartQueue(0).is_open());
  EXPECT_TRUE(StartQueue(1).is_open());
  EXPECT_FALSE(StartQueue(2).is_open());
}

TEST(StartQueue, OpensOnceWithAllInOrder) {
  StartQueue queue(3);
  queue.add(request(4), 0.0);
  queue.add(request(2), 1.0);
  EXPECT_FALSE(queue.is_full());
  queue.add(request(9), 2.0);
  EXPECT_TRUE(queue.is_full());
  EXPECT_EQ(indices(queue.open()), (std::vector<int>{4, 2, 9}));
  EXPECT_TRUE(queue.is_open());
  EXPECT_TRUE(queue.open().empty());
}

TEST(StartQueue, CancelledRequestsDoNotCount) {
  StartQueue queue(2);
  queue.add(request(1), 0.0);
  EXPECT_FALSE(queue.cancel(7));
  EXPECT_TRUE(queue.cancel(1));
  queue.add(request(2), 0.0);
  EXPECT_FALSE(queue.is_full());
  EXPECT_EQ(indices(queue.open()), std::vector<int>{2});
}

TEST(StartQueue, IsQuietSomeTimeAfterTheLastArrival) {
  StartQueue queue(5);
  EXPECT_FALSE(queue.is_quiet(1e6, 10.0));  // nobody waits
  queue.add(request(1), 100.0);
  queue.add(request(2), 108.0);
  EXPECT_FALSE(queue.is_quiet(117.0, 10.0));
  EXPECT_TRUE(queue.is_quiet(118.0, 10.0));
}

}  // namespace
}  // namespace wideep::server
