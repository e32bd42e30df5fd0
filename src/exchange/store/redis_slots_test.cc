// SPDX-License-Identifier: Apache-2.0
#include "store/redis_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::store {
namespace {

using testing::HasSubstr;

const RedisHost kAsked{"asked", 7000};

RedisReply integer(int64_t value) { return {.type = RedisReply::Type::kInteger, .integer = value}; }
RedisReply text(std::string value) {
  return {.type = RedisReply::Type::kText, .text = std::move(value)};
}
RedisReply array(std::vector<RedisReply> elements) {
  return {.type = RedisReply::Type::kArray, .elements = std::move(elements)};
}

// The first is the specification's, the others are what `redis-cli cluster keyslot` says.
TEST(RedisSlots, FollowFromTheKey) {
  EXPECT_EQ(redis_slot("123456789"), 0x31C3);
  EXPECT_EQ(redis_slot("{user1000}.following"), redis_slot("user1000"));
  EXPECT_EQ(redis_slot("user1000"), 3443);
  EXPECT_EQ(redis_slot(""), 0);
  EXPECT_EQ(redis_slot("foo"), 12182);
  EXPECT_EQ(redis_slot("foo{}{bar}"), 8363);  // nothing between the first two: all of it
  EXPECT_EQ(redis_slot("foo{{bar}}zap"), redis_slot("{bar"));
  EXPECT_EQ(redis_slot("foo{bar}{zap}"), redis_slot("bar"));
  EXPECT_EQ(redis_slot("wideep:1:{0123}"), redis_slot("wideep:1:{0123}:state"));
}

TEST(RedisSlots, RedirectsSayWhoIsAsked) {
  const auto moved = parse_redirect("MOVED 3999 127.0.0.1:6381", kAsked);
  ASSERT_TRUE(moved.has_value());
  EXPECT_FALSE(moved->is_ask);
  EXPECT_EQ(moved->slot, 3999);
  EXPECT_EQ(moved->host, (RedisHost{"127.0.0.1", 6381}));
  const auto ask = parse_redirect("ASK 0 ::1:6381", kAsked);
  ASSERT_TRUE(ask.has_value());
  EXPECT_TRUE(ask->is_ask);
  EXPECT_EQ(ask->host, (RedisHost{"::1", 6381}));
  EXPECT_EQ(parse_redirect("MOVED 1 :6381", kAsked)->host, (RedisHost{"asked", 6381}));
  EXPECT_EQ(parse_redirect("MOVED 1 ?:6381", kAsked)->host, (RedisHost{"asked", 6381}));
  for (const char* other :
       {"", "MOVED", "MOVED ", "MOVED x h:1", "MOVED 16384 h:1", "MOVED -1 h:1", "MOVED 1",
        "MOVED 1 ", "MOVED 1 h:0", "MOVED 1h:1", "ERR MOVED 1 h:1", "ASKING 1 h:1"}) {
    EXPECT_FALSE(parse_redirect(other, kAsked).has_value()) << other;
  }
}

TEST(RedisSlots, RangesAreAtServers) {
  const auto slots = RedisSlots::parse(
      array({array({integer(0), integer(99), array({text("a"), integer(1), text("id"), array({})}),
                    array({text("replica"), integer(2)})}),
             array({integer(200), integer(16383), array({text(""), integer(3), text("id")})})}),
      kAsked);
  ASSERT_TRUE(slots.ok()) << slots.status().message();
  EXPECT_EQ(slots->hosts().size(), 2u);
  EXPECT_EQ(*slots->host_of(0), (RedisHost{"a", 1}));
  EXPECT_EQ(*slots->host_of(99), (RedisHost{"a", 1}));
  EXPECT_EQ(slots->host_of(100), nullptr);
  EXPECT_EQ(*slots->host_of(16383), (RedisHost{"asked", 3}));
  RedisSlots changed = *slots;
  changed.move(100, {"b", 4});
  EXPECT_EQ(*changed.host_of(100), (RedisHost{"b", 4}));
  EXPECT_EQ(*changed.host_of(99), (RedisHost{"a", 1}));
}

TEST(RedisSlots, OnlySoManyServersAreTaken) {
  const auto cluster_of = [](int num_hosts) {
    std::vector<RedisReply> ranges;
    for (int i = 0; i < num_hosts; ++i) {
      ranges.push_back(
          array({integer(i), integer(i), array({text("host" + std::to_string(i)), integer(1)})}));
    }
    return RedisSlots::parse(array(std::move(ranges)), kAsked);
  };
  auto slots = cluster_of(static_cast<int>(kMaxRedisHosts));
  ASSERT_TRUE(slots.ok()) << slots.status().message();
  EXPECT_FALSE(slots->move(0, {"another", 1}));
  EXPECT_EQ(*slots->host_of(0), (RedisHost{"host0", 1}));
  EXPECT_TRUE(slots->move(0, {"host1", 1}));
  EXPECT_THAT(cluster_of(static_cast<int>(kMaxRedisHosts) + 1).status().message(),
              HasSubstr("more than 1024 servers"));
  const RedisReply range = array({integer(0), integer(0), array({text("a"), integer(1)})});
  EXPECT_THAT(
      RedisSlots::parse(array(std::vector(kRedisSlots + 1, range)), kAsked).status().message(),
      HasSubstr("16385 ranges"));
}

TEST(RedisSlots, OtherRepliesAreRefused) {
  const RedisReply host = array({text("a"), integer(1)});
  EXPECT_THAT(
      RedisSlots::parse({.type = RedisReply::Type::kError, .text = "ERR cluster support disabled"},
                        kAsked)
          .status()
          .message(),
      HasSubstr("cluster support disabled"));
  for (const RedisReply& reply :
       {RedisReply(), array({}), array({array({})}), array({array({integer(0), integer(1)})}),
        array({array({integer(-1), integer(1), host})}),
        array({array({integer(0), integer(16384), host})}),
        array({array({integer(0), text("1"), host})}),
        array({array({integer(5), integer(4), host})}),
        array({array({integer(0), integer(9), host}), array({integer(9), integer(12), host})}),
        array({array({integer(0), integer(1), array({text(std::string(256, 'a')), integer(1)})})}),
        array({array({integer(0), integer(1), array({text("a")})})}),
        array({array({integer(0), integer(1), array({text("a"), integer(70000)})})})}) {
    EXPECT_FALSE(RedisSlots::parse(reply, kAsked).ok());
  }
}

}  // namespace
}  // namespace wideep::store
