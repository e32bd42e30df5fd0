// SPDX-License-Identifier: Apache-2.0
#include "client/answer_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::client {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

// A view whose clock is set by hand.
struct Shown {
  explicit Shown(AnswerView::Style style)
      : view(style, [this](std::string_view more) { text += more; }, start) {}
  AnswerView::Clock::time_point at(int ms) const { return start + milliseconds(ms); }

  AnswerView::Clock::time_point start{std::chrono::hours(1)};
  std::string text;
  AnswerView view;
};
constexpr AnswerView::Style kFile{.rewrites = false, .colors = false};
constexpr AnswerView::Style kTerminal{.rewrites = true, .colors = true};

TEST(AnswerView, ShowsTextAsItComes) {
  Shown shown(kTerminal);
  shown.view.take({"He", ""}, shown.at(100));
  EXPECT_EQ(shown.text, "He");
  shown.view.take({"llo\x1b[2J", ""}, shown.at(200));
  shown.view.end(shown.at(300));
  EXPECT_EQ(shown.text, "Hello[2J\n");
  EXPECT_EQ(shown.view.text(), "Hello\x1b[2J");
}

TEST(AnswerView, FoldsThinking) {
  Shown shown(kFile);
  shown.view.take({"", "First "}, shown.at(1000));
  shown.view.take({"", "second"}, shown.at(2000));
  EXPECT_EQ(shown.text, "");
  shown.view.take({"\n\n", ""}, shown.at(3000));
  shown.view.take({"\nYes\n", ""}, shown.at(3500));
  shown.view.end(shown.at(4000));
  EXPECT_EQ(shown.text, "thought for 2.5 s, 2 parts (/think shows them)\nYes\n");
  EXPECT_EQ(shown.view.thinking(), "First second");
}

TEST(AnswerView, ATerminalShowsThatItThinks) {
  Shown shown(kTerminal);
  shown.view.tick(shown.at(500));
  EXPECT_EQ(shown.text, "");
  shown.view.tick(shown.at(2000));
  EXPECT_EQ(shown.text, "\r\x1b[2mwaiting 2 s\x1b[0m\x1b[K");
  shown.text.clear();
  shown.view.take({"", "hm"}, shown.at(3000));
  EXPECT_EQ(shown.text, "\r\x1b[2mthinking 0 s, 1 parts\x1b[0m\x1b[K");
  shown.view.take({"", "hm"}, shown.at(3001));  // not more often than people read
  EXPECT_THAT(shown.text, Not(HasSubstr("2 parts")));
  shown.text.clear();
  shown.view.take({"Yes", ""}, shown.at(4000));
  EXPECT_THAT(shown.text, testing::StartsWith("\r\x1b[K\x1b[2mthought for 1.0 s, 2 parts"));
  EXPECT_THAT(shown.text, testing::EndsWith("\x1b[0m\nYes"));
}

TEST(AnswerView, StoppedWhileItThinks) {
  Shown shown(kFile);
  shown.view.take({"", "hm"}, shown.at(1000));
  shown.view.end(shown.at(2000));
  EXPECT_THAT(shown.text, HasSubstr("thought for 1.0 s"));
}

TEST(AnswerView, Figures) {
  Shown shown(kFile);
  ReplyReader reply;
  EXPECT_EQ(shown.view.figures(reply), "");
  shown.view.take({"a", ""}, shown.at(500));
  EXPECT_EQ(shown.view.figures(reply), "1 parts, first after 0.50 s");
  shown.view.take({"b", ""}, shown.at(1500));
  EXPECT_EQ(shown.view.figures(reply), "2 parts, 1.0 parts/s, first after 0.50 s");
  ASSERT_TRUE(reply
                  .take(R"({"usage": {"prompt_tokens": 9, "completion_tokens": 5,
                    "prompt_tokens_details": {"cached_tokens": 8}},
                    "choices": [{"finish_reason": "length"}]})")
                  .ok());
  EXPECT_EQ(
      shown.view.figures(reply),
      "5 tokens, 4.0 tokens/s, first after 0.50 s, prompt 9 tokens (8 cached); cut off at the "
      "limit of tokens");
}

}  // namespace
}  // namespace wideep::client
