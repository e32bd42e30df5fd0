// SPDX-License-Identifier: Apache-2.0
#include "server/answer_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace wideep::server {
namespace {

using engine::FinishReason;
using testing::HasSubstr;

AnswerHead head() {
  AnswerHead head{.id = "chatcmpl-7",
                  .created = 1'700'000'000,
                  .model = "m",
                  .seed = UINT64_MAX,
                  .settings = {.stream_interval = 3,
                               .draft_metrics = DraftMetrics::kSummary,
                               .max_drafts = 4,
                               .reuses_pages = true}};
  head.local = {.kept = std::string("a\0b", 3),
                .request_id = "r",
                .came_ns = 11,
                .trace = traces::RequestTrace{.own = {.trace_id = std::string(32, 'a'),
                                                      .span_id = std::string(16, 'b'),
                                                      .is_sampled = true},
                                              .parent_id = "p",
                                              .state = "s=1"}};
  return head;
}

run::Token token(int32_t id, FinishReason reason = FinishReason::kNotFinished) {
  return {.rank = 2,
          .sampled = {.token = id, .log_probability = -0.5f},
          .finish_reason = reason,
          .cached_tokens = 3,
          .step_drafts = 1,
          .digest = {},
          .likely = {{.token = id, .log_probability = -0.5f}, {.token = 1, .log_probability = -2}}};
}

AnswerBounds bounds() {
  return {.id_start = "chatcmpl-",
          .model = "m",
          .other_model = "other",
          .vocab_size = 100,
          .answers = {{.forced = {}, .max = 3, .prompt = 5}, {.forced = {}, .max = 3, .prompt = 5}},
          .max_likely = 2};
}

std::string error_of(const std::vector<std::string>& records,
                     const AnswerBounds& allowed = bounds()) {
  const auto read = AnswerRecords::read(records);
  if (!read.ok()) return read.status().message();
  return check(*read, allowed).message();
}

TEST(AnswerRecords, AreReadAsTheyWereWritten) {
  const std::vector<std::string> records = {
      record_of(head()), record_of(1, token(9)),
      record_of(AnswerProgress{.index = 1, .processed = 4, .begun_ns = 8}),
      record_of(0, token(8, FinishReason::kLength)), record_of(AnswerEnd{.ended_at = 17})};
  const auto read = AnswerRecords::read(records);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(record_of(read->head), records[0]);
  EXPECT_EQ(read->head.local.trace->own.span_id, std::string(16, 'b'));
  ASSERT_EQ(read->tokens.size(), 2u);
  EXPECT_EQ(record_of(read->tokens[0].index, read->tokens[0].token), records[1]);
  EXPECT_EQ(record_of(read->tokens[1].index, read->tokens[1].token), records[3]);
  ASSERT_EQ(read->told.size(), 1u);
  EXPECT_EQ(record_of(read->told[0]), records[2]);
  ASSERT_TRUE(read->end);
  EXPECT_EQ(read->end->ended_at, 17);
  EXPECT_TRUE(check(*read, bounds()).ok()) << check(*read, bounds()).message();

  AnswerRecords of_other = *read;
  of_other.leave_machine();
  EXPECT_EQ(of_other.head.id, "chatcmpl-7");
  EXPECT_EQ(of_other.head.local.kept + of_other.head.local.request_id, "");
  EXPECT_FALSE(of_other.head.local.trace);
  EXPECT_EQ(of_other.tokens[0].token.rank, -1);
  EXPECT_EQ(of_other.told[0].begun_ns, 0);
}

// None is read over its end, and none is taken for another one.
TEST(AnswerRecords, PartsOfRecordsAreRefused) {
  const std::string first = record_of(head());
  const std::string records[] = {
      record_of(0, token(9)), record_of(AnswerProgress{.index = 0, .processed = 4, .begun_ns = 8}),
      record_of(AnswerEnd{.ended_at = 17})};
  for (size_t size = 0; size < first.size(); ++size) {
    EXPECT_FALSE(AnswerRecords::read(std::vector{first.substr(0, size)}).ok()) << size;
  }
  EXPECT_FALSE(AnswerRecords::read(std::vector{first + "x"}).ok());
  EXPECT_FALSE(AnswerRecords::read({}).ok());
  for (const std::string& record : records) {
    for (size_t size = 0; size < record.size(); ++size) {
      EXPECT_FALSE(AnswerRecords::read(std::vector{first, record.substr(0, size)}).ok()) << size;
    }
    EXPECT_TRUE(AnswerRecords::read(std::vector{first, record}).ok());
    EXPECT_FALSE(AnswerRecords::read(std::vector{first, record + "x"}).ok());
    EXPECT_FALSE(AnswerRecords::read(std::vector{record}).ok());
  }
  EXPECT_THAT(error_of({first, first}), HasSubstr("record 1: expected a head, then tokens"));
}

TEST(AnswerRecords, OfAnotherVersionAreRefused) {
  std::string record = record_of(head());
  record[5] = 'x';  // behind the kind and the length
  EXPECT_THAT(error_of({record}), HasSubstr("record 0: expected records of wideep "));
}

TEST(AnswerRecords, ValuesThatNoneHasAreRefused) {
  const auto with = [](const std::function<void(AnswerHead&)>& change) {
    AnswerHead changed = head();
    change(changed);
    return error_of({record_of(changed)});
  };
  EXPECT_EQ(with([](AnswerHead&) {}), "");
  EXPECT_EQ(with([](AnswerHead& each) { each.id = "chatcmpl-6b0cf42b.1-7"; }), "");
  EXPECT_EQ(with([](AnswerHead& each) { each.model = "other"; }), "");
  EXPECT_EQ(with([](AnswerHead& each) { each.model = "x\n"; }),
            "the model: expected 'm', found 'x\\n'");
  EXPECT_NE(with([](AnswerHead& each) { each.model = ""; }), "");
  EXPECT_NE(with([](AnswerHead& each) { each.created = -1; }), "");
  EXPECT_NE(with([](AnswerHead& each) { each.created = INT64_MAX; }), "");
  for (const int64_t at : {int64_t{-1}, int64_t{0}, INT64_MAX}) {
    EXPECT_NE(error_of({record_of(head()), record_of(AnswerEnd{.ended_at = at})}), "");
  }
  EXPECT_NE(with([](AnswerHead& each) { each.settings.stream_interval = 0; }), "");
  EXPECT_NE(with([](AnswerHead& each) { each.settings.max_drafts = -1; }), "");
  EXPECT_NE(with([](AnswerHead& each) { each.settings.draft_metrics = DraftMetrics(3); }), "");
  for (const char* id : {"", "chatcmpl-", "cmpl-7", "chatcmpl-a b", "chatcmpl-\r\n"}) {
    EXPECT_NE(with([&](AnswerHead& each) { each.id = id; }), "") << id;
  }
  EXPECT_NE(with([&](AnswerHead& each) { each.id += std::string(100, '7'); }), "");

  const auto with_token = [](const std::function<void(run::Token&)>& change) {
    run::Token changed = token(9);
    change(changed);
    return error_of({record_of(head()), record_of(0, changed)});
  };
  EXPECT_EQ(with_token([](run::Token&) {}), "");
  EXPECT_NE(with_token([](run::Token& each) { each.sampled.token = -1; }), "");
  EXPECT_NE(with_token([](run::Token& each) { each.sampled.token = 100; }), "");
  EXPECT_NE(with_token([](run::Token& each) { each.likely[1].token = 100; }), "");
  EXPECT_NE(with_token([](run::Token& each) { each.likely.push_back({.token = 1}); }), "");
  EXPECT_NE(with_token([](run::Token& each) { each.likely[1].log_probability = NAN; }), "");
  EXPECT_NE(with_token([](run::Token& each) { each.finish_reason = FinishReason(9); }), "");
  for (const FinishReason failed : {FinishReason::kFailed, FinishReason::kNotNumbers}) {
    EXPECT_THAT(with_token([&](run::Token& each) { each.finish_reason = failed; }),
                HasSubstr("token 0 of the records: expected tokens of no failed answer"));
  }
  EXPECT_NE(with_token([](run::Token& each) { each.cached_tokens = 6; }), "");
  EXPECT_NE(with_token([](run::Token& each) { each.cached_tokens = -1; }), "");
  EXPECT_NE(with_token([](run::Token& each) { each.step_drafts = 1 << 20; }), "");
  EXPECT_NE(with_token([](run::Token& each) { each.step_drafts = -2; }), "");
  EXPECT_NE(with_token([](run::Token& each) { each.step_drafts = -1; }), "");
}

// The head is that of the first server.
TEST(AnswerRecords, AServerThatDraftsMoreMayHaveGoneOn) {
  run::Token of_second = token(9);
  of_second.step_drafts = 7;
  const auto read = AnswerRecords::read(
      std::vector{record_of(head()), record_of(0, token(9)), record_of(0, of_second)});
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->head.settings.max_drafts, 7);
  EXPECT_EQ(check(*read, bounds()).message(), "");
}

TEST(AnswerRecords, TokensAreThoseOfTheRequest) {
  const auto errors = [](const std::vector<run::Token>& tokens, size_t index = 0,
                         const AnswerBounds& allowed = bounds()) {
    std::vector<std::string> records = {record_of(head())};
    for (const run::Token& each : tokens) records.push_back(record_of(index, each));
    return error_of(records, allowed);
  };
  const run::Token some = token(9), last = token(9, FinishReason::kStop);
  EXPECT_EQ(errors({some, some}, 1), "");
  EXPECT_EQ(errors({some, some, last}), "");
  EXPECT_THAT(errors({some}, 2), HasSubstr("expected tokens of 2 answers"));
  EXPECT_THAT(errors({some, some, some}), HasSubstr("expected at most 3 tokens"));
  EXPECT_THAT(errors({last, some}), HasSubstr("token 1 of the records: expected no tokens after"));
  AnswerBounds scored = bounds();
  const std::vector<int32_t> forced = {9, 10};
  scored.answers[0].forced = forced;
  EXPECT_EQ(errors({some}, 0, scored), "");
  EXPECT_NE(errors({some, some}, 0, scored), "");
  // A draft that was right brings one more.
  run::Token more = some;
  more.step_drafts = -1;
  EXPECT_EQ(errors({some, more}), "");
  EXPECT_NE(errors({some, more, more}), "");
  // Computed anew, together with the answer so far.
  more = some;
  more.cached_tokens = 6;
  EXPECT_EQ(errors({some, more}), "");
  more.cached_tokens = 7;
  EXPECT_NE(errors({some, more}), "");
  EXPECT_NE(error_of({record_of(head()), record_of(AnswerProgress{.index = 2, .processed = 1})}),
            "");
  EXPECT_NE(error_of({record_of(head()), record_of(AnswerProgress{.index = 0, .processed = 6})}),
            "");
  EXPECT_NE(error_of({record_of(head()), record_of(AnswerProgress{.index = 0, .processed = -1})}),
            "");
}

}  // namespace
}  // namespace wideep::server
