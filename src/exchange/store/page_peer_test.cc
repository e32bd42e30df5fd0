// SPDX-License-Identifier: Apache-2.0
#include "store/page_peer.h"

#include <gtest/gtest.h>

namespace wideep::store {
namespace {

TEST(PagePeer, ComesBackFromItsText) {
  const PagePeer peer{.host = {.name = "fd00::7", .port = 7001},
                      .token = "a-b.c_9",
                      .record_class = "00ff",
                      .request = "disagg:12",
                      .mac = "9a"};
  EXPECT_EQ(text_of(peer), "1;[fd00::7]:7001;a-b.c_9;00ff;disagg:12;9a");
  EXPECT_EQ(parse_page_peer(text_of(peer)).value(), peer);
}

TEST(PagePeer, RefusesWhatIsNone) {
  for (const char* text : {"", "1;h:1;t;c;r", "1;h:1;t;c;r;m;more", "1;h:0;t;c;r;", "1;h;t;c;;",
                           "1;h\xa5:1;t;c;;", "1;h h:1;t;c;;", "1;h:1;;c;r;", "1;h:1;t t;c;r;",
                           "1;h:1;t;c;r\n;", "1;h:1;t;-;r;", "1;h:1;t;c;r;m.m"}) {
    EXPECT_FALSE(parse_page_peer(text).ok()) << text;
  }
  EXPECT_FALSE(parse_page_peer("1;h:1;t;c;;" + std::string(2000, 'a')).ok());
  const auto other = parse_page_peer("2;h:1;t;c;r;");
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.status().message().find("expected version 1, found 2"), std::string::npos);
}

}  // namespace
}  // namespace wideep::store
