// SPDX-License-Identifier: Apache-2.0
#include "bench/serving_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::bench {
namespace {

using testing::HasSubstr;

TEST(Address, IsTakenApart) {
  const auto whole = parse_address("http://host:81/base/");
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->host, "host");
  EXPECT_EQ(whole->port, "81");
  EXPECT_EQ(whole->path, "/base");
  EXPECT_EQ(parse_address("http://host")->port, "80");
  const auto v6 = parse_address("http://[::1]:8000");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->port, "8000");
  for (const char* wrong : {"host:81", "https://host", "http://", "http://host:x", "http://:80"}) {
    EXPECT_THAT(parse_address(wrong).status().message(), HasSubstr("expected http://")) << wrong;
  }
}

TEST(Address, NobodyThereIsAnError) {
  const HttpAddress address{.host = "127.0.0.1", .port = "1"};
  const Status status = post_for_events(address, "/v1/completions", "{}", std::chrono::seconds(1),
                                        [](std::string_view) {});
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1:1: Connection refused"));
}

}  // namespace
}  // namespace wideep::bench
