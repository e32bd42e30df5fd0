// SPDX-License-Identifier: Apache-2.0
#include "store/redis_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

namespace wideep::store {
namespace {

using std::string_view_literals::operator""sv;
using Type = RedisReply::Type;

constexpr std::string_view kReplies =
    "+OK\r\n-MOVED 5 h:1\r\n:-42\r\n$-1\r\n$0\r\n\r\n$7\r\na\r\nb\0cd\r\n*-1\r\n*0\r\n"
    "*3\r\n*2\r\n:1\r\n$1\r\nx\r\n$-1\r\n*1\r\n*1\r\n-no\r\n+PONG\r\n"sv;

// In a form of its own, to compare.
std::string text_of(const RedisReply& reply) {
  switch (reply.type) {
    case Type::kNil:
      return "nil";
    case Type::kInteger:
      return std::to_string(reply.integer);
    case Type::kText:
      return "'" + reply.text + "'";
    case Type::kStatus:
      return "+" + reply.text;
    case Type::kError:
      return "!" + reply.text;
    case Type::kArray:
      break;
  }
  std::string text = "[";
  for (const RedisReply& each : reply.elements) text += text_of(each) + " ";
  return text + "]";
}

std::vector<std::string> read(std::string_view bytes, size_t step) {
  RedisReplyReader reader;
  std::vector<std::string> replies;
  for (size_t at = 0; at < bytes.size(); at += step) {
    const std::string_view piece = bytes.substr(at, step);
    reader.feed(std::as_bytes(std::span(piece)));
    for (;;) {
      auto reply = reader.next();
      EXPECT_TRUE(reply.ok());
      if (!reply.ok() || !reply->has_value()) break;
      replies.push_back(text_of(**reply));
    }
  }
  return replies;
}

TEST(RedisReply, AllKindsInPiecesOfAnyLength) {
  const std::vector<std::string> expected = {"+OK",  "!MOVED 5 h:1", "-42",
                                             "nil",  "''",           std::string("'a\r\nb\0cd'", 9),
                                             "nil",  "[]",           "[[1 'x' ] nil [[!no ] ] ]",
                                             "+PONG"};
  for (size_t step = 1; step <= kReplies.size(); ++step) EXPECT_EQ(read(kReplies, step), expected);
}

TEST(RedisReply, ACutReplyIsNone) {
  const std::string_view bytes = "*2\r\n$3\r\nabc\r\n:7\r\n";
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_TRUE(read(bytes.substr(0, length), 1).empty()) << length;
  }
  EXPECT_EQ(read(bytes, 1).size(), 1u);
}

// Four bytes on the wire take a hundred of memory.
TEST(RedisReply, TooManyValuesAreRefused) {
  for (const bool is_nested : {false, true}) {
    RedisReplyReader reader;
    std::string piece;
    for (int i = 0; i < 1000; ++i) piece += is_nested ? "*1\r\n:1\r\n" : ":1\r\n";
    const std::string begin = "*2000000000\r\n";
    reader.feed(std::as_bytes(std::span(begin)));
    std::string refusal;
    for (int i = 0; i < 1000 && refusal.empty(); ++i) {
      reader.feed(std::as_bytes(std::span(piece)));
      const auto reply = reader.next();
      if (!reply.ok()) refusal = reply.status().message();
    }
    EXPECT_EQ(refusal, "a reply of more than 262144 values");
    EXPECT_FALSE(reader.next().ok());
  }
  // Each reply for itself.
  RedisReplyReader reader;
  std::string reply = "*200000\r\n";
  for (int i = 0; i < 200000; ++i) reply += ":1\r\n";
  for (int i = 0; i < 3; ++i) {
    reader.feed(std::as_bytes(std::span(reply)));
    const auto next = reader.next();
    ASSERT_TRUE(next.ok() && next->has_value());
    EXPECT_EQ((*next)->elements.size(), 200000u);
  }
}

TEST(RedisReply, OtherBytesAreNoReply) {
  for (const std::string_view bytes : {"HTTP/1.1 400\r\n", "$x\r\n", "*-5\r\n", ":\r\n", "\r\n",
                                       "$-7\r\n", ":12a\r\n", "$99999999999999999999\r\n"}) {
    RedisReplyReader reader;
    reader.feed(std::as_bytes(std::span(bytes)));
    const auto reply = reader.next();
    ASSERT_FALSE(reply.ok()) << bytes;
    EXPECT_THAT(reply.status().message(), testing::HasSubstr("no reply of Redis' protocol"));
    EXPECT_FALSE(reader.next().ok());  // and there is no way to go on
  }
}

}  // namespace
}  // namespace wideep::store
