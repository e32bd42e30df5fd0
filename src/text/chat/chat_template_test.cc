// SPDX-License-Identifier: Apache-2.0
//
// Prompts are held against golden ones that Jinja itself has rendered, with Hugging Face's
// settings; null is expected where Jinja fails. Templates of published models are not in the
// repository, and their tests run where a file of them is named. A prompt that differs in one space
// is another than the model was trained with: it answers worse, and nobody sees why. Long chats
// must not spend the budget of a rendering.
#include "chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <set>
#include <utility>

#include "base/work_timer.h"
#include "formats/json_parse.h"

namespace wideep::chat {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

constexpr std::time_t kGoldenTime = 1735689600;  // as make_golden.py

ordered_json read_json(const std::string& path) {
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return formats::parse_exact_json(text, path).value();
}

// Renders like make_golden.py: every name is a variable of the template.
Result<std::string> render(const std::string& text, const ordered_json& names, std::time_t now) {
  const auto parsed = ChatTemplate::parse(text, "t");
  if (!parsed.ok()) return parsed.status();
  return parsed->render({.messages = names.value("messages", ordered_json()),
                         .tools = names.value("tools", ordered_json()),
                         .variables = names,
                         .add_generation_prompt = names.value("add_generation_prompt", false),
                         .now = now});
}

void expect_like_jinja(const ordered_json& one, const ordered_json& names, std::time_t now) {
  const std::string text = one["template"];
  const Result<std::string> found = render(text, names, now);
  if (one["expected"].is_null()) {
    EXPECT_FALSE(found.ok()) << text << "\nrendered: " << (found.ok() ? *found : "");
    return;
  }
  ASSERT_TRUE(found.ok()) << text << "\n" << found.status().message();
  EXPECT_EQ(*found, one["expected"].get<std::string>()) << text;
}

TEST(ChatTemplate, RendersLikeJinja) {
  ::setenv("TZ", "UTC", 1);
  const ordered_json golden = read_json(WIDEEP_SOURCE_DIR "/tests/golden/chat/constructs.json");
  ASSERT_GT(golden["cases"].size(), 90u);
  for (const auto& one : golden["cases"]) expect_like_jinja(one, golden["names"], golden["now"]);
}

// Templates of real models are not part of the repository: see make_golden.py. Those that are
// refused by name are printed: scripts/test_chat_templates.sh wants none, test_chat_expressions.sh
// few of its random expressions.
TEST(ChatTemplate, RealTemplatesRenderLikeJinja) {
  const char* path = std::getenv("WIDEEP_CHAT_GOLDEN");
  if (path == nullptr) GTEST_SKIP() << "WIDEEP_CHAT_GOLDEN is not set";
  ::setenv("TZ", "UTC", 1);
  std::set<std::string> refused;
  for (const auto& one : read_json(path)) {
    const Result<std::string> found = render(one["template"], one["names"], kGoldenTime);
    // What of Jinja and Python the language leaves out: see RefusesByName.
    if (!found.ok() && found.status().message().find("chat templates") != std::string::npos) {
      refused.insert(one["name"].get<std::string>() + ": " + found.status().message());
      continue;
    }
    SCOPED_TRACE(one["name"].get<std::string>());
    expect_like_jinja(one, one["names"], kGoldenTime);
  }
  for (const std::string& each : refused) std::cout << "refused by name: " << each << "\n";
}

// What a template is given for the call of a function, as a text on the wire.
std::string prompt_of(const std::string& text, const std::string& arguments) {
  const ordered_json messages = {
      {{"role", "assistant"},
       {"content", nullptr},
       {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", arguments}}}}}},
       {"function_call", {{"name", "g"}, {"arguments", arguments}}}}};
  const Result<std::string> found = render(text, {{"messages", messages}}, 0);
  return found.ok() ? *found : found.status().message();
}

// On the wire the arguments of a call are text. A template gets the object, or, where that fails,
// the text.
TEST(ChatTemplate, ArgumentsOfCallsAreObjectsOrTheirText) {
  const std::string each =
      "{% for k, v in messages[0].tool_calls[0].function.arguments | items %}{{ k }}={{ v }};"
      "{% endfor %}{{ messages[0].content }}";
  const std::string joined = "{{ '<' + messages[0].tool_calls[0].function.arguments + '>' }}";
  EXPECT_EQ(prompt_of(each, R"({"a": 3, "b": [1]})"), "a=3;b=[1];");
  EXPECT_EQ(prompt_of(joined, R"({"a": 3, "b": [1]})"), R"(<{"a": 3, "b": [1]}>)");
  EXPECT_EQ(prompt_of("{{ messages[0].function_call.arguments.a }}", R"({"a": 3})"), "3");
  EXPECT_EQ(prompt_of(each, R"({"a": 123456789012345678901234567890})"),
            "a=123456789012345678901234567890;");
  EXPECT_EQ(prompt_of(each, " "), "");
  EXPECT_EQ(prompt_of(joined, " "), "< >");
  // Not an object: only the text is left.
  for (const std::string text : {"{\"a\": ", "[1]", "null", "3"}) {
    EXPECT_EQ(prompt_of(joined, text), "<" + text + ">");
    EXPECT_EQ(prompt_of(each, text), "t: line 1: items: Can only get item pairs from a mapping.");
  }
  // Content that is null is none, and prints as nothing.
  EXPECT_EQ(prompt_of("[{{ messages[0].content }}]{{ messages[0].content is none }}", "{}"),
            "[]True");
}

// The work is linear in the conversation: looking at one message costs the same in a long one, also
// by the budget of a rendering.
TEST(ChatTemplate, LongChatsTakeLinearTime) {
  ordered_json messages = ordered_json::array();
  for (int i = 0; i < 10'000; ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "Hi."}});
  }
  const Result<std::string> found = render(
      "{% for m in messages %}{% if loop.index0 == messages | length - 1 or "
      "messages[loop.index0 + 1].role != m.role %}{% set last = messages[-1] %}"
      "{{ m.role if m is not sameas last else messages | last | length }}{% endif %}{% endfor %}",
      {{"messages", messages}}, 0);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_TRUE(found->ends_with("assistantuser2"));
}

// It takes half a second. A copy of the list for each of its elements takes minutes.
TEST(ChatTemplate, ALookUpInALongListCopiesNothing) {
  constexpr int kCount = 200'000;
  ordered_json numbers = ordered_json::array();
  for (int i = 0; i < kCount; ++i) numbers.push_back(i);
  const auto parsed = ChatTemplate::parse(
      "{% for n in numbers %}{% if numbers[-1] == n %}{{ numbers | length }}{% endif %}"
      "{% endfor %}",
      "t");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  ChatInput input;
  input.variables["numbers"] = std::move(numbers);
  const base::WorkTimer work;
  const Result<std::string> found = parsed->render(input);
  EXPECT_LT(work.seconds(), 5);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(*found, std::to_string(kCount));
}

// Published templates, with tool calls: see RealTemplatesRenderLikeJinja.
TEST(ChatTemplate, RealTemplatesRenderLongChats) {
  const char* path = std::getenv("WIDEEP_CHAT_GOLDEN");
  if (path == nullptr) GTEST_SKIP() << "WIDEEP_CHAT_GOLDEN is not set";
  ordered_json messages = ordered_json::array(), fewer = messages;
  const ordered_json call = ordered_json::parse(
      R"({"type": "function", "id": "c", "function": {"name": "f", "arguments": {"a": 1}}})");
  for (int i = 0; i < 1500; ++i) {
    if (i == 200) fewer = messages;
    messages.push_back({{"role", "user"}, {"content", "Weather?"}});
    messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}});
    messages.push_back({{"role", "tool"}, {"tool_call_id", "c"}, {"content", "sun"}});
    messages.push_back({{"role", "assistant"}, {"content", "Sun."}});
  }
  std::set<std::string> seen;
  for (const auto& one : read_json(path)) {
    if (!seen.insert(one["template"].get<std::string>()).second) continue;
    // These look through other messages for each of them, or for each call.
    const bool is_quadratic = std::ranges::any_of(
        std::initializer_list<const char*>{"gpt-oss", "gemma-4", "Cohere", "Kimi-K3", "Reka",
                                           "V3.2", "muse", "Solar"},
        [&](const char* name) {
          return one["name"].get<std::string>().find(name) != std::string::npos;
        });
    const Result<std::string> found = render(
        one["template"], {{"messages", is_quadratic ? fewer : messages}, {"bos_token", "<s>"}}, 0);
    const std::string complaint = found.ok() ? "" : found.status().message();
    EXPECT_THAT(complaint, testing::Not(HasSubstr("too much"))) << one["name"];
  }
}

}  // namespace
}  // namespace wideep::chat
