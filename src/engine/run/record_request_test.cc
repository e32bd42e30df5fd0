// SPDX-License-Identifier: Apache-2.0
#include "run/record_request.h"

#include <gtest/gtest.h>

namespace wideep::run {
namespace {

TEST(IterationRange, TakesTwoNumbersInOrder) {
  const auto range = IterationRange::parse("10-20", "--range");
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->first, 10);
  EXPECT_EQ(range->last, 20);
  for (const char* bad :
       {"", "-", "5", "5-", "-5", "5-5", "9-3", "a-b", "1-2-3", "1 -2", "0x1-2"}) {
    const auto refused = IterationRange::parse(bad, "--range");
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_NE(refused.status().message().find("--range: expected a range A-B"), std::string::npos);
  }
}

}  // namespace
}  // namespace wideep::run
