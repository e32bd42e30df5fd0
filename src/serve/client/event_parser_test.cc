// SPDX-License-Identifier: Apache-2.0
//
// Streams are given whole, byte by byte and in every two parts: what is found must not depend on
// where a network cuts, also between CR and LF. Expected data is what the standard says, written
// out.
#include "client/event_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace wideep::client {
namespace {

using Events = std::vector<std::string>;

Events found_in(const std::vector<std::string_view>& parts) {
  EventParser parser;
  Events events;
  for (const std::string_view part : parts) {
    parser.take(part, [&](std::string_view data) { events.emplace_back(data); });
  }
  return events;
}

void expect_events(std::string_view stream, const Events& expected) {
  SCOPED_TRACE(testing::PrintToString(std::string(stream)));
  EXPECT_EQ(found_in({stream}), expected);
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < stream.size(); ++i) bytes.push_back(stream.substr(i, 1));
  EXPECT_EQ(found_in(bytes), expected);
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    EXPECT_EQ(found_in({stream.substr(0, cut), stream.substr(cut)}), expected) << cut;
  }
}

TEST(EventParser, TakesEveryLineEnd) {
  for (const std::string end : {"\n", "\r\n", "\r"}) {
    expect_events("data: one" + end + end + "data: two" + end + end, {"one", "two"});
  }
  expect_events("data: one\r\n\ndata: two\n\r\ndata: three\r\r\n", {"one", "two", "three"});
}

TEST(EventParser, TakesAValueWithOneSpaceOrNone) {
  expect_events("data:{\"a\": 1}\n\n", {"{\"a\": 1}"});
  expect_events("data:  two spaces \n\n", {" two spaces "});
  expect_events("data: a: b\n\n", {"a: b"});
}

TEST(EventParser, JoinsLinesOfData) {
  expect_events("data: a\r\ndata:b\r\n\r\n", {"a\nb"});
  expect_events("data: a\ndata\ndata:\ndata: b\n\n", {"a\n\n\nb"});
  expect_events("data\n\n", {""});
}

TEST(EventParser, LeavesOutWhatIsNoData) {
  expect_events(": keep-alive\n\ndata: x\n: data: no\n\n:\n\n", {"x"});
  expect_events("event: e\nid: 7\ndata: x\nretry: 9\ndatas: no\n data: no\nDATA: no\n\n", {"x"});
  expect_events("event: alone\n\ndata: x\n\n", {"x"});
  expect_events(
      "\xef\xbb\xbf"
      "data: x\n\n",
      {"x"});
}

TEST(EventParser, AnEventWithoutItsEndIsNone) {
  expect_events("data: x\n\ndata: y\n", {"x"});
  expect_events("data: x\n\ndata: y", {"x"});
  expect_events("", {});
}

TEST(EventParser, AnEventIsTakenWhereItEnds) {
  EventParser parser;
  Events events;
  const auto take = [&](std::string_view bytes) {
    parser.take(bytes, [&](std::string_view data) { events.emplace_back(data); });
    return events.size();
  };
  EXPECT_EQ(take("data: x\r\n"), 0u);
  EXPECT_EQ(take("\r"), 1u);  // no LF has to come
  EXPECT_EQ(take("\n"), 1u);  // nor does it end another
  EXPECT_EQ(take("data: y\r\r"), 2u);
}

TEST(EventParser, AnEventHasALimit) {
  const auto takes = [](size_t max_bytes, std::string_view text, size_t step) {
    EventParser parser(max_bytes);
    bool goes_on = true;
    for (size_t at = 0; at < text.size(); at += step) {
      goes_on = parser.take(text.substr(at, step), [](std::string_view) {});
    }
    return goes_on;
  };
  const std::string line = "data: " + std::string(94, 'x');
  for (const size_t step : {size_t{1}, size_t{1000}}) {
    EXPECT_TRUE(takes(100, line + "\n\n" + line + "\n\n", step));
    EXPECT_FALSE(takes(99, line, step)) << "a line without an end";
    EXPECT_FALSE(takes(150, line + "\n" + line + "\n", step)) << "lines without an end";
  }
}

}  // namespace
}  // namespace wideep::client
