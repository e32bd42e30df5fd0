// SPDX-License-Identifier: Apache-2.0
#include "store/redis_record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>

#include "base/content_hash.h"

namespace wideep::store {
namespace {

Head some_head() {
  Head head;
  head.before = root_name("class", "");
  std::iota(head.tokens.begin(), head.tokens.end(), 500);
  head.name = page_name(head.before, 0, head.tokens);
  head.page = 3;
  head.canonical_bytes = 1000;
  head.part = {.first = 10, .length = 5, .stride = 20, .count = 4};
  return head;
}

std::string value_of(const Head& head) {
  std::string payload(head.part.bytes(), '\0');
  std::iota(payload.begin(), payload.end(), 'a');
  const auto* bytes = reinterpret_cast<const std::byte*>(payload.data());
  const auto value_head = redis_value_head(head, base::content_hash(bytes, payload.size()));
  return std::string(value_head.data(), value_head.size()) + payload;
}

TEST(RedisRecord, IsWhatWasWritten) {
  const Head head = some_head();
  const std::string value = value_of(head);
  const RedisValue found = check_redis_value(value, head);
  ASSERT_EQ(found.result, FetchResult::kWhole);
  ASSERT_EQ(found.payload.size(), 20u);
  EXPECT_EQ(found.payload[19], static_cast<std::byte>('a' + 19));
}

// Written down, as in redis_record.h: other versions of this program read it.
TEST(RedisRecord, LiesAsItIsDocumented) {
  const Head head = some_head();
  EXPECT_EQ(redis_key(head.name, Kind::kPage), "wideep:1:{" + head.name.hex() + "}");
  EXPECT_EQ(redis_key(head.name, Kind::kState), "wideep:1:{" + head.name.hex() + "}:state");
  EXPECT_EQ(redis_field(head.part), "10:5:20:4");
  const std::string value = value_of(head);
  const auto number = [&](size_t at, size_t bytes) {
    uint64_t found = 0;
    for (size_t i = 0; i < bytes; ++i) {
      found |= uint64_t{static_cast<unsigned char>(value[at + i])} << (8 * i);
    }
    return found;
  };
  EXPECT_EQ(value.substr(0, 8), "wdpredis");
  EXPECT_EQ(number(24, 8), 20u);
  EXPECT_EQ(std::memcmp(value.data() + 32, head.name.bytes.data(), 16), 0);
  EXPECT_EQ(std::memcmp(value.data() + 48, head.before.bytes.data(), 16), 0);
  EXPECT_EQ(number(64, 8), 10u);
  EXPECT_EQ(number(72, 8), 5u);
  EXPECT_EQ(number(80, 8), 20u);
  EXPECT_EQ(number(88, 8), 4u);
  EXPECT_EQ(number(96, 8), 1000u);
  EXPECT_EQ(number(104, 4), 3u);
  EXPECT_EQ(number(108, 4), 0u);
  EXPECT_EQ(number(112, 4), 500u);
  EXPECT_EQ(number(364, 4), 563u);
  EXPECT_EQ(value.substr(384), "abcdefghijklmnopqrst");
}

TEST(RedisRecord, NoChangedByteIsTaken) {
  const Head head = some_head();
  const std::string value = value_of(head);
  for (size_t at = 0; at < value.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = value;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      EXPECT_NE(check_redis_value(changed, head).result, FetchResult::kWhole) << at;
    }
  }
  for (size_t length = 0; length < value.size(); ++length) {
    EXPECT_EQ(check_redis_value(value.substr(0, length), head).result, FetchResult::kDamaged);
  }
  EXPECT_EQ(check_redis_value(value + "x", head).result, FetchResult::kDamaged);
}

TEST(RedisRecord, OfOthersIsMissing) {
  const Head head = some_head();
  const std::string value = value_of(head);
  for (int which = 0; which < 7; ++which) {
    Head other = head;
    if (which == 0) other.name.bytes[15] ^= 1;
    if (which == 1) other.before.bytes[0] ^= 1;
    if (which == 2) other.kind = Kind::kState;
    if (which == 3) other.page = 4;
    if (which == 4) other.tokens[63] = 0;
    if (which == 5) other.canonical_bytes = 1001;
    if (which == 6) other.part.first = 11;
    EXPECT_EQ(check_redis_value(value, other).result, FetchResult::kMissing) << which;
  }
}

TEST(RedisRecord, FieldsAreParts) {
  EXPECT_EQ(parse_redis_field("10:5:20:4", 1000), some_head().part);
  EXPECT_EQ(parse_redis_field("0:1000:1000:1", 1000), Part::whole(1000));
  for (const char* field : {"",
                            ":::",
                            "1",
                            "10:5:20",
                            "10:5:20:",
                            "10:5:20:4:",
                            "10:5:20:4x",
                            "-1:5:20:4",
                            "10;5:20:4",
                            "+10:5:20:4",
                            "10:0:20:4",
                            "10:5:20:0",
                            "10:5:4:4",
                            "10:5:400:4",
                            "996:5:20:1",
                            "1000:1:1:1",
                            "0:1001:1001:1",
                            "0:1:18446744073709551615:1",
                            "0:1:9223372036854775808:3",
                            "18446744073709551615:2:2:1",
                            "1:18446744073709551615:18446744073709551615:2",
                            "18446744073709551616:1:1:1"}) {
    EXPECT_FALSE(parse_redis_field(field, 1000).has_value()) << field;
  }
  EXPECT_FALSE(parse_redis_field("0:1:1:1", uint64_t{1} << 41).has_value());
  EXPECT_TRUE(parse_redis_field("0:1:2:65536", uint64_t{1} << 20).has_value());
  EXPECT_FALSE(parse_redis_field("0:1:2:65537", uint64_t{1} << 20).has_value());
}

}  // namespace
}  // namespace wideep::store
