// SPDX-License-Identifier: Apache-2.0
//
// Values are full of their own format's marks: a command that greps for </parameter>, a file about
// calls. What is written by the format must be read back, and what models leave out must have one
// fixed meaning. Random values may have several right readings, so that one is right if, written
// down again, it is the same text but for space and ends, and nine in ten must have as many calls
// as were meant. Texts made to be slow count how often each mark is looked at. A failure is half of
// a command, which an agent then runs.
#include "answer/value_end.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "answer/marked_values_testing.h"
#include "base/work_timer.h"

namespace wideep::answer {
namespace {

AnswerSettings settings_for(std::string_view format) {
  return settings_of(nullptr, find_call_format(format), some_tools());
}

std::string shown(const ReadAnswer& answer) {
  std::string text = "content «" + answer.content + "»";
  for (const ReadCall& call : answer.calls) text += "\n  " + call.name + " " + call.arguments;
  return text;
}

// Whole, byte by byte, and in pieces.
ReadAnswer read_in_pieces(const AnswerSettings& settings, const std::string& text) {
  const ReadAnswer whole = read_answer(settings, text);
  EXPECT_EQ(shown(read_answer(settings, text, std::vector<size_t>(text.size(), 1))), shown(whole));
  for (size_t bytes = 2; bytes < 9; ++bytes) {
    const std::vector<size_t> pieces(text.size() / bytes, bytes);
    EXPECT_EQ(shown(read_answer(settings, text, pieces)), shown(whole)) << bytes << ": " << text;
  }
  return whole;
}

struct Example {
  const char* format;
  std::string text;
  std::string arguments;  // of one call of f
};

// The value of "s" in the format's own writing.
std::string with_value(std::string_view format, const std::string& value) {
  return calls_text(*find_call_format(format), {{"f", {{"s", value}}}});
}

constexpr const char* kTagged[] = {"qwen3_coder", "glm45", "minimax_m2", "deepseek_v32", "hy_v3"};

TEST(ValueEndTest, MarksInValuesEndNothing) {
  for (const char* format : kTagged) {
    const TagSyntax& tags = find_call_format(format)->tags;
    const AnswerSettings settings = settings_for(format);
    for (const std::string_view mark : settings.format.markers()) {
      for (const std::string& value :
           {"grep '" + std::string(mark) + "' a.xml", "echo " + std::string(mark) + "; cat b",
            std::string(mark) + " is a mark", "x\n" + std::string(mark) + "\ny",
            std::string(tags.value_end) + std::string(mark) + "'"}) {
        const ReadAnswer answer = read_in_pieces(settings, with_value(format, value));
        ASSERT_EQ(answer.calls.size(), 1u) << format << ": " << value << "\n" << shown(answer);
        EXPECT_EQ(as_written(answer)[0].arguments, (nlohmann::ordered_json{{"s", value}}))
            << format << ": " << value;
        EXPECT_EQ(answer.content, "") << value;
      }
    }
  }
}

// A file that tells how calls are written.
TEST(ValueEndTest, CallsInValuesArePartsOfThem) {
  for (const char* name : kTagged) {
    const CallFormat& format = *find_call_format(name);
    const std::string call = calls_text(format, {{"f", {{"s", "ls"}, {"a", 1}}}});
    const std::string other = calls_text(format, {{"no_tool", {{"x", "ls"}}}});
    for (const std::string& value : {"So:\n" + call + "\nThat is all.",
                                     call + "\n" + call + "\nTwo.", "a\n" + other + "\nb"}) {
      const ReadAnswer answer =
          read_in_pieces(settings_for(name), calls_text(format, {{"f", {{"s", value}, {"a", 2}}}}));
      ASSERT_EQ(answer.calls.size(), 1u) << name << "\n" << shown(answer);
      EXPECT_EQ(as_written(answer)[0].arguments, (nlohmann::ordered_json{{"s", value}, {"a", 2}}))
          << name;
    }
  }
}

TEST(ValueEndTest, MissingEnds) {
  const std::vector<Example> examples = {
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=s>\nls\n<parameter=a>\n3\n</parameter>\n</function>\n"
       "</tool_call>",
       R"({"s": "ls", "a": 3})"},
      {"qwen3_coder",
       "<function=f>\n<parameter=s>\nls\n<parameter=a>\n3\n<parameter=b>\ntrue\n</function>",
       R"({"s": "ls", "a": 3, "b": true})"},
      // No argument of the tool, or not at a line's beginning: text.
      {"qwen3_coder",
       "<function=f>\n<parameter=s>\nls\n<parameter=z>\n3\n</parameter>\n</function>",
       R"({"s": "ls\n<parameter=z>\n3"})"},
      {"qwen3_coder", "<function=f>\n<parameter=s>\nls <parameter=a>\n3\n</parameter>\n</function>",
       R"({"s": "ls <parameter=a>\n3"})"},
      {"qwen3_coder",
       "<function=f>\n<parameter=s>\nx\n<parameter=a>\n3\n</parameter>\ny\n</parameter>\n</"
       "function>",
       R"({"s": "x\n<parameter=a>\n3\n</parameter>\ny"})"},
      {"glm45",
       "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>ls\n<arg_key>a</arg_key>\n<arg_value>3"
       "</arg_value>\n</tool_call>",
       R"({"s": "ls", "a": 3})"},
      {"minimax_m2",
       "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">ls\n<parameter name=\"a\">3"
       "</parameter>\n</invoke>\n</minimax:tool_call>",
       R"({"s": "ls", "a": 3})"},
      {"deepseek_v32",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
       "string=\"true\">ls\n<｜DSML｜parameter name=\"a\" string=\"false\">3</｜DSML｜parameter>\n"
       "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       R"({"s": "ls", "a": 3})"},
      {"qwen3_coder", "<function=f>\n<parameter=s>\nls\n</function>\n</tool_call>\nDone.",
       R"({"s": "ls"})"},
      {"qwen3_coder", "<function=f>\n<parameter=s>\nls\n</parameter>\n", R"({"s": "ls"})"},
      {"qwen3_coder", "<function=f>\n<parameter=s>\nls\n</parameter>\n</func", R"({"s": "ls"})"},
      // A name that has come already is text.
      {"qwen3_coder",
       "<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=s>\nb\n</parameter>\n</function>",
       R"({"s": "a\n</parameter>\n<parameter=s>\nb"})"},
  };
  for (const Example& each : examples) {
    const ReadAnswer answer = read_in_pieces(settings_for(each.format), each.text);
    ASSERT_EQ(answer.calls.size(), 1u) << each.text;
    EXPECT_EQ(answer.calls[0].arguments, each.arguments) << each.text;
  }
}

TEST(ValueEndTest, WhatFollowsACall) {
  for (const char* name : kTagged) {
    const CallFormat& format = *find_call_format(name);
    const CallToWrite call = {"f", {{"s", "a"}, {"a", 1}}}, other = {"f", {{"s", "b"}}};
    const std::string one = calls_text(format, {call}), two = calls_text(format, {call, other});
    EXPECT_EQ(read_in_pieces(settings_for(name), two).calls.size(), 2u) << name;
    const ReadAnswer with_text = read_in_pieces(settings_for(name), one + "\nDone.");
    EXPECT_EQ(with_text.calls.size(), 1u) << name;
    EXPECT_EQ(with_text.content, "Done.") << name;
    const ReadAnswer between = read_in_pieces(settings_for(name), one + "\nOnce more.\n" + two);
    EXPECT_EQ(between.calls.size(), 3u) << name;
    EXPECT_EQ(between.content, "Once more.") << name;
  }
}

// A limit in the middle of a value is never taken for its end: what is there of the arguments is no
// JSON then. Where it comes after the call, the call is whole.
TEST(ValueEndTest, CutCalls) {
  for (const char* name : kTagged) {
    const CallFormat& format = *find_call_format(name);
    const std::string value = "echo '" + std::string(format.tags.value_end) +
                              std::string(format.tags.call_end) + "' > a; cat b";
    const std::string text = with_value(name, value);
    const AnswerSettings settings = settings_for(name);
    const size_t end = text.rfind(format.tags.call_end) + format.tags.call_end.size();
    for (size_t size = 0; size <= text.size(); ++size) {
      const std::string cut = text.substr(0, size);
      const ReadAnswer answer = read_answer(settings, cut, {}, true);
      ASSERT_EQ(shown(read_answer(settings, cut, std::vector<size_t>(size, 1), true)),
                shown(answer));
      if (answer.calls.empty()) continue;
      const std::string& arguments = answer.calls[0].arguments;
      if (size < end && nlohmann::json::accept(arguments)) {
        // Just what is a call if nothing follows.
        EXPECT_TRUE(cut.ends_with(format.tags.call_end)) << cut;
      }
      if (size >= end) EXPECT_TRUE(nlohmann::json::accept(arguments)) << cut << "\n" << arguments;
    }
    const ReadAnswer later = read_answer(settings, text + "\nNow I", {}, true);
    EXPECT_EQ(later.content, "Now I") << name;
    EXPECT_TRUE(nlohmann::json::accept(later.calls.at(0).arguments)) << name;
  }
}

// Random values of the format's own marks.
TEST(ValueEndTest, ReadsWhatIsWritten) {
  std::mt19937 random(11);
  int same = 0, all = 0;
  for (const char* name : kTagged) {
    const CallFormat& format = *find_call_format(name);
    const AnswerSettings settings = settings_for(name);
    std::vector<std::string> pieces = {"x", " ", "\n", "'", "f", "s", "a", "\n\n", ">", "f>\n"};
    for (const std::string_view marker : settings.format.markers()) pieces.emplace_back(marker);
    const auto value = [&] {
      std::string text;
      for (auto n = random() % 7; n > 0; --n) text += pieces[random() % pieces.size()];
      return text;
    };
    for (int i = 0; i < 1000; ++i) {
      std::vector<CallToWrite> calls;
      for (auto n = 1 + random() % 2; n > 0; --n) {
        calls.push_back({"f", {{"s", value()}}});
        if (random() % 2 == 0) calls.back().arguments["a"] = 1;
        if (random() % 4 == 0) calls.back().arguments["o"] = {{"k", value()}};
      }
      const std::string text = calls_text(format, calls);
      const ReadAnswer answer = read_answer(settings, text);
      ASSERT_EQ(shown(read_answer(settings, text, random_pieces(text.size(), random))),
                shown(answer))
          << text;
      ASSERT_TRUE(is_right_reading(format, calls, answer)) << text << "\n" << shown(answer);
      ASSERT_TRUE(has_whole_calls(format, answer)) << text << "\n" << shown(answer);
      ++all;
      same += as_written(answer).size() == calls.size() ? 1 : 0;
    }
  }
  EXPECT_GT(same, all * 9 / 10);
}

// Work is proportional to the text, also where nothing is certain for long.
TEST(ValueEndTest, LongValuesThatMayHaveEnded) {
  std::string value = "a</parameter>\n</function>\n</tool_call>\n";
  for (int i = 0; i < 80'000; ++i) value += "no end <tool_call> ";
  const std::string text = with_value("qwen3_coder", value);
  // It takes a tenth of a second. To look through all that has come for each token takes half a
  // minute, even at 10 GB/s.
  const base::WorkTimer work;
  const ReadAnswer answer =
      read_answer(settings_for("qwen3_coder"), text, std::vector<size_t>(text.size() / 4 + 1, 4));
  EXPECT_LT(work.seconds(), 2);
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(as_written(answer)[0].arguments["s"], value);
}

std::string repeated(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// What a model can be asked for, so that one end is far away from many marks that wait for it.
std::vector<std::string> costly_values() {
  const std::string keys =
      "\n<parameter=a>\n<parameter=b>\n<parameter=l>\n<parameter=o>\n<parameter=n>";
  const std::string head = "<function=f>\n<parameter=s>\n", close = "</function></tool_call>x";
  return {repeated(keys, 1'500) + "</parameter>x",
          repeated(keys, 1'500) + "</parameter>\n<parameter=s>",
          repeated(keys + "</parameter>x", 1'500),
          repeated("\n<parameter=a>", 8'000) + "</parameter>x",
          repeated("\n<parameter=a>", 8'000),
          repeated(close, 8'000) + "</parameter></function>y</parameter></function>",
          repeated(close, 8'000),
          repeated("</parameter></function>x", 8'000) + "</parameter></function>",
          repeated(head, 4'000) + "</parameter>\n</function>",
          repeated(head + head + close, 1'000),
          repeated(head + close, 4'000),
          repeated("<function=", 8'000),
          repeated("<tool_call>", 8'000)};
}

// A thread that serves all reads this, token by token.
TEST(ValueEndTest, WorkIsProportionalToTheText) {
  const AnswerSettings settings = settings_for("qwen3_coder");
  for (const std::string& value : costly_values()) {
    const std::string text = "<function=f>\n<parameter=s>\nls" + value;
    const base::WorkTimer work;
    read_answer(settings, text, std::vector<size_t>(text.size() / 4, 4));
    EXPECT_LT(work.seconds(), 2) << value.substr(0, 100);
  }
}

TEST(ValueEndTest, LooksAtEachMarkAFewTimes) {
  const ToolList tools(some_tools());
  const ValueEnd value_end(*find_call_format("qwen3_coder"), *tools.find("f"));
  for (const std::string& value : costly_values()) {
    for (const Behind behind : {Behind::kMore, Behind::kNothing, Behind::kCut}) {
      const ValueEnd::Found found = value_end.find(value, behind, {.given = {"s"}});
      const auto num_marks = static_cast<size_t>(std::ranges::count(value, '<'));
      EXPECT_LE(found.num_looked_at, 4 * num_marks) << value.substr(0, 100);
    }
  }
}

}  // namespace
}  // namespace wideep::answer
