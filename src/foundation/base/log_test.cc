// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace wideep::log {
namespace {

constexpr int64_t kWhen = 1795918905123;  // date -u -d 2026-11-29T02:21:45Z +%s, and 123 ms

TEST(Log, FormsOfALine) {
  const Line line{.level = Level::kWarning, .text = "it \"is\"\tlate\nvery"};
  EXPECT_EQ(formatted(line, Form::kBare, 3, kWhen), "rank 3: warning: it \"is\"\tlate\nvery\n");
  EXPECT_EQ(formatted(line, Form::kTimes, std::nullopt, kWhen),
            "2026-11-29T02:21:45.123Z warning: it \"is\"\tlate\nvery\n");
  EXPECT_EQ(formatted(line, Form::kJournal, std::nullopt, kWhen),
            "<4>warning: it \"is\"\tlate\n<4>very\n");
  EXPECT_EQ(formatted(line, Form::kJson, 3, kWhen),
            "{\"time\":\"2026-11-29T02:21:45.123Z\",\"level\":\"warning\",\"rank\":3,"
            "\"message\":\"it \\\"is\\\"\\u0009late\\nvery\"}\n");
}

TEST(Log, InfoIsSaidWithTimesOnly) {
  const Line line{.level = Level::kInfo, .text = "text"};
  EXPECT_EQ(formatted(line, Form::kBare, std::nullopt, kWhen), "text\n");
  EXPECT_EQ(formatted(line, Form::kTimes, 0, kWhen),
            "2026-11-29T02:21:45.123Z rank 0: info: text\n");
  EXPECT_EQ(formatted(line, Form::kJournal, std::nullopt, kWhen), "<6>text\n");
  EXPECT_EQ(formatted({.level = Level::kError, .text = "x"}, Form::kJournal, std::nullopt, kWhen),
            "<3>error: x\n");
}

TEST(Log, Fields) {
  const std::vector<Field> fields = {{.name = "request_id", .value = "a\"b"},
                                     {.name = "status", .value = "200", .is_number = true}};
  const Line line{.level = Level::kInfo, .text = "access", .fields = fields};
  EXPECT_EQ(formatted(line, Form::kBare, std::nullopt, kWhen),
            "access request_id=a\"b status=200\n");
  EXPECT_EQ(formatted(line, Form::kJson, std::nullopt, kWhen),
            "{\"time\":\"2026-11-29T02:21:45.123Z\",\"level\":\"info\",\"request_id\":\"a\\\"b\","
            "\"status\":200,\"message\":\"access\"}\n");
}

TEST(Log, JsonIsUtf8WhateverTheTextIs) {
  const auto message = [](std::string_view text) {
    const std::string line = formatted({.text = text}, Form::kJson, std::nullopt, kWhen);
    const size_t begin = line.find("\"message\":") + 10;
    return line.substr(begin, line.size() - begin - 2);
  };
  EXPECT_EQ(message("é 界 😀"), "\"é 界 😀\"");
  EXPECT_EQ(message("\xff\xc3"), "\"??\"");
  EXPECT_EQ(message("\xe7\x95 x"), "\"?? x\"");
  // Too long for what it says, a half of a pair, and what is behind the last character; then the
  // last ones that are right.
  EXPECT_EQ(message("\xe0\x80\xaf \xf0\x80\x80\xaf"), "\"??? ????\"");
  EXPECT_EQ(message("\xed\xa0\x80 \xf4\x90\x80\x80 \xf5\x80\x80\x80"), "\"??? ???? ????\"");
  EXPECT_EQ(message("\xed\x9f\xbf \xf4\x8f\xbf\xbf"), "\"\xed\x9f\xbf \xf4\x8f\xbf\xbf\"");
  EXPECT_EQ(message(std::string_view("\0\x7f", 2)), "\"\\u0000\\u007f\"");
}

TEST(Log, JournalOnlyIfItIsTheStream) {
  ::setenv("JOURNAL_STREAM", "1:2", 1);  // not stderr's
  EXPECT_NE(form_of_service("auto"), Form::kJournal);
  ::unsetenv("JOURNAL_STREAM");
  EXPECT_EQ(form_of_service("json"), Form::kJson);
}

}  // namespace
}  // namespace wideep::log
