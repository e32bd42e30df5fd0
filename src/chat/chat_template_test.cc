// SPDX-License-Identifier: Apache-2.0
#include "chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>

namespace wideep::chat {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

ordered_json read_json(const std::string& path) {
  std::ifstream file(path);
  return ordered_json::parse(file);
}

// As make_golden.py has it: every name is one of the template's own.
Result<std::string> render(const std::string& text, const ordered_json& names, std::time_t now) {
  const auto parsed = ChatTemplate::parse(text, "t");
  if (!parsed.ok()) return parsed.status();
  return parsed->render({.messages = names.value("messages", ordered_json()),
                         .tools = names.value("tools", ordered_json()),
                         .variables = names,
                         .add_generation_prompt = names.value("add_generation_prompt", false),
                         .bos_token = names.value("bos_token", ""),
                         .eos_token = names.value("eos_token", ""),
                         .now = now});
}

void expect_as_jinja(const ordered_json& one, const ordered_json& names, std::time_t now) {
  const std::string text = one["template"];
  const Result<std::string> found = render(text, names, now);
  if (one["expected"].is_null()) {
    EXPECT_FALSE(found.ok()) << text << "\nrendered: " << (found.ok() ? *found : "");
    return;
  }
  ASSERT_TRUE(found.ok()) << text << "\n" << found.status().message();
  EXPECT_EQ(*found, one["expected"].get<std::string>()) << text;
}

TEST(ChatTemplate, IsAsJinjaHasIt) {
  ::setenv("TZ", "UTC", 1);
  const ordered_json golden = read_json(WIDEEP_SOURCE_DIR "/tests/golden/chat/constructs.json");
  ASSERT_GT(golden["cases"].size(), 90u);
  for (const auto& one : golden["cases"]) expect_as_jinja(one, golden["names"], golden["now"]);
}

// Templates of real models, which are not ours to keep here: see make_golden.py.
TEST(ChatTemplate, RealTemplatesAreAsJinjaHasThem) {
  const char* path = std::getenv("WIDEEP_CHAT_GOLDEN");
  if (path == nullptr) GTEST_SKIP() << "WIDEEP_CHAT_GOLDEN is not set";
  ::setenv("TZ", "UTC", 1);
  std::set<std::string> refused;
  for (const auto& one : read_json(path)) {
    const auto parsed = ChatTemplate::parse(one["template"].get<std::string>(), "t");
    if (!parsed.ok() && parsed.status().message().ends_with("is not supported")) {
      refused.insert(one["name"].get<std::string>() + ": " + parsed.status().message());
      continue;
    }
    SCOPED_TRACE(one["name"].get<std::string>() + "\n" + one["names"].dump());
    expect_as_jinja(one, one["names"], 1735689600);
  }
  for (const std::string& each : refused) std::cout << "refused by name: " << each << "\n";
}

std::string complaint_of(const std::string& text) {
  const Result<std::string> found = render(text, ordered_json::object(), 0);
  return found.ok() ? "rendered: " + *found : found.status().message();
}

TEST(ChatTemplate, ComplaintsNameLineAndConstruct) {
  EXPECT_EQ(complaint_of("a\n{% include 'x' %}"),
            "t: line 2: the statement 'include' is not supported");
  EXPECT_EQ(complaint_of("\n\n{{ 1 | urlize }}"),
            "t: line 3: the filter 'urlize' is not supported");
  EXPECT_EQ(complaint_of("{{ 1 is weird }}"), "t: line 1: the test 'weird' is not supported");
  EXPECT_EQ(complaint_of("{{ x.y }}"), "t: line 1: 'x' is undefined");
  EXPECT_EQ(complaint_of("{{ [].push(1) }}"), "t: line 1: 'list object' has no attribute 'push'");
  EXPECT_EQ(complaint_of("{{ raise_exception('Roles must alternate') }}"),
            "t: line 1: the template refuses: Roles must alternate");
  EXPECT_EQ(complaint_of("{% if a %}"), "t: line 1: expected '{% endif %}', found the end");
  EXPECT_EQ(complaint_of("{{ (1 }}"), "t: line 1: unexpected '}'");
  for (const std::string filter : {"indent", "title", "reverse"}) {
    EXPECT_EQ(complaint_of("{{ 'a' | safe | " + filter + " }}"),
              "t: line 1: " + filter + ": of text marked as safe is not supported");
  }
  EXPECT_EQ(complaint_of("{{ 'a' | safe | indent(2, first=true) }}"),
            "t: line 1: indent: of text marked as safe is not supported");
}

TEST(ChatTemplate, EndsWhateverItIsTold) {
  EXPECT_THAT(
      complaint_of(
          "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"),
      HasSubstr("does not end"));
  EXPECT_THAT(complaint_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("macros call each other 100 deep"));
  EXPECT_THAT(complaint_of("{{ 'a' * 100000000000 }}"), HasSubstr("too large"));
  EXPECT_THAT(complaint_of("{{ range(10000000) }}"), HasSubstr("more than 1000000 elements"));
  EXPECT_THAT(complaint_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + "}}"),
              HasSubstr("nested deeper than 100"));
  EXPECT_THAT(complaint_of("{{ " + std::string(5000, '-') + "1 }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(complaint_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("too large"));
}

}  // namespace
}  // namespace wideep::chat
