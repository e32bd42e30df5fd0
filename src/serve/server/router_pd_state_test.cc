// SPDX-License-Identifier: Apache-2.0
#include "server/router_pd_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using testing::HasSubstr;

TEST(RouterPdState, IsReadAsServersSayIt) {
  const auto state = read_pd_state(R"({"role": "prefill", "epoch": 3, "ranks": 4, "seen_by": 4,
      "instance": "5f", "version": "0.3.0", "model": "m", "record_class": "a7",
      "encoded_opaque_state": "1;h:1;t;a7;;", "load": {"prompt_tokens": 512, "running": 3,
      "prefill_seconds_per_token": 0.25, "iteration_seconds": null, "kv_share": 0.5,
      "pages_per_second": 2000,
      "max_context": 4096}})");
  ASSERT_TRUE(state.ok()) << state.status().message();
  EXPECT_EQ(state->role, engine::Role::kPrefill);
  EXPECT_EQ(state->instance, "5f");
  EXPECT_EQ(state->version, "0.3.0");
  EXPECT_EQ(state->record_class, "a7");
  EXPECT_EQ(state->opaque_state, "1;h:1;t;a7;;");
  EXPECT_EQ(state->prompt_tokens, 512u);
  EXPECT_EQ(state->running, 3u);
  EXPECT_EQ(state->prefill_seconds_per_token, 0.25);
  EXPECT_EQ(state->pages_per_second, 2000.0);
  EXPECT_EQ(state->kv_share, 0.5);
}

TEST(RouterPdState, WhatIsNotKnownIsLeftOut) {
  const auto state = read_pd_state(R"({"role": "both", "version": "1", "record_class": null,
      "encoded_opaque_state": null, "load": {"prefill_seconds_per_token": null, "running": -1,
      "pages_per_second": -2, "kv_share": "much"}})");
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->record_class + state->opaque_state, "");
  EXPECT_EQ(state->running, 0u);
  EXPECT_FALSE(state->prefill_seconds_per_token);
  EXPECT_FALSE(state->pages_per_second);
  EXPECT_EQ(state->kv_share, 0.0);
  EXPECT_TRUE(read_pd_state(R"({"role": "decode", "version": "1", "load": 3})").ok());
}

TEST(RouterPdState, OtherRepliesAreRefused) {
  for (const char* reply : {"", "[]", "{", R"({"role": "boss", "version": "1"})",
                            R"({"version": "1"})", R"({"role": "both"})"}) {
    const auto state = read_pd_state(reply);
    ASSERT_FALSE(state.ok()) << reply;
    EXPECT_THAT(state.status().message(), HasSubstr("/v1/pd_role: "));
  }
}

TEST(RouterPdState, ServersOfAnotherKindAreNoneOfTheGroup) {
  const PdGroup group{.version = "0.3.0", .record_class = "a7", .url = "http://a:1"};
  EXPECT_EQ(group.refusal({.version = "0.3.0", .record_class = "a7"}, "http://b:1"), "");
  EXPECT_EQ(group.refusal({.version = "0.3.0"}, "http://b:1"), "");
  EXPECT_THAT(group.refusal({.version = "0.2.9", .record_class = "a7"}, "http://b:1"),
              HasSubstr("http://b:1 has version 0.2.9, but http://a:1 has 0.3.0"));
  EXPECT_THAT(group.refusal({.version = "0.3.0", .record_class = "b8"}, "http://b:1"),
              HasSubstr("http://b:1 has record class b8, but http://a:1 has a7"));
  EXPECT_THAT(
      group.refusal({.version = "1\nhttp://c:1 joins" + std::string(100, 'x')}, "http://b:1"),
      HasSubstr("http://b:1 has version 1\\nhttp://c:1 joinsxxx"));
  EXPECT_LT(group.refusal({.version = std::string(1 << 20, 'x')}, "http://b:1").size(), 300u);
}

}  // namespace
}  // namespace wideep::server
