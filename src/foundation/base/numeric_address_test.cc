// SPDX-License-Identifier: Apache-2.0
#include "base/numeric_address.h"

#include <gtest/gtest.h>

namespace wideep::base {
namespace {

TEST(NumericAddress, IsThatOfTheHost) {
  EXPECT_EQ(numeric_address("10.1.2.3").value(), "10.1.2.3");
  EXPECT_EQ(numeric_address("[::1]").value(), "::1");
  EXPECT_EQ(numeric_address("::1").value(), "::1");
  EXPECT_EQ(numeric_address("localhost").value(), "127.0.0.1");
}

TEST(NumericAddress, AnUnknownNameIsNamed) {
  const auto unknown = numeric_address("nowhere.invalid");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), StatusCode::kFailed);
  EXPECT_TRUE(
      unknown.status().message().starts_with("the host 'nowhere.invalid' has no address: "));
}

}  // namespace
}  // namespace wideep::base
