// SPDX-License-Identifier: Apache-2.0
//
// What Jinja renders is held by chat_template_test.cc; here is what a template cannot do. A model's
// template is code from outside: without limits, many of these texts would overflow the stack, take
// hours or make 100 GB. The others hold, word for word, how errors name line and construct, and
// that all that Jinja has and chat templates do not use is refused by name, not rendered as
// something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>

#include "base/sanitized.h"
#include "base/try.h"
#include "base/work_timer.h"
#include "jinja/template_renderer.h"
#include "jinja/template_syntax.h"

namespace wideep::jinja {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

// Every member of `variables` is a variable of the template.
Result<std::string> render(const std::string& text, const ordered_json& variables) {
  WIDEEP_TRY_ASSIGN(const Block block, parse_template(text));
  Names names;
  for (const auto& [key, value] : variables.items()) {
    WIDEEP_TRY_ASSIGN(names[key], Value::from_json(value));
  }
  return render_template(block, std::move(names));
}

std::string error_of(const std::string& text) {
  const Result<std::string> found = render(text, ordered_json::object());
  const std::string all = found.ok() ? "rendered: " + *found : found.status().message();
  return all.substr(0, 1000);  // the output may be very long
}

TEST(Template, ErrorsNameLineAndConstruct) {
  EXPECT_EQ(error_of("{{ x.y }}"), "line 1: 'x' is undefined");
  EXPECT_EQ(error_of("{{ [].push(1) }}"), "line 1: 'list object' has no attribute 'push'");
  EXPECT_EQ(error_of("{{ raise_exception('Roles must alternate') }}"),
            "line 1: the template raised: Roles must alternate");
  EXPECT_EQ(error_of("{% if a %}"), "line 1: expected '{% endif %}', found the end");
  EXPECT_EQ(error_of("{{ (1 }}"), "line 1: unexpected '}'");
  EXPECT_EQ(error_of("{{ [].append(1) }}"),
            "line 1: 'append' of a list would change it: the sandbox of templates forbids it");
  EXPECT_EQ(error_of("{{ {}.update({}) }}"),
            "line 1: 'update' of a dict would change it: the sandbox of templates forbids it");
}

// Arguments of calls that a client has sent as text, in templates of DeepSeek.
TEST(Template, ReadsJson) {
  const auto rendered = [](const std::string& text) {
    const Result<std::string> found = render(text, {{"a", R"({"x": [1, "é"], "y": null})"}});
    return found.ok() ? *found : found.status().message();
  };
  EXPECT_EQ(rendered("{% for k, v in (a | from_json).items() %}{{ k }}={{ v }};{% endfor %}"),
            "x=[1, 'é'];y=None;");
  EXPECT_EQ(rendered("{{ '123456789012345678901' | from_json }}"), "123456789012345678901");
  EXPECT_THAT(rendered("{{ '{' | from_json }}"), HasSubstr("line 1: from_json: the text"));
  EXPECT_THAT(rendered("{{ x | from_json }}"), HasSubstr("line 1: from_json: the text"));
}

std::string text_of(const std::string& text) {
  const Result<std::string> found = render(text, {{"m", {{{"type", "a"}}, {{"type", "b"}}}}});
  return found.ok() ? *found : found.status().message();
}

// Templates index so: GLM-5's `m.content.0.type`.
TEST(Template, AnIntegerAfterADotIsAnIndex) {
  EXPECT_EQ(text_of("{{ m.0.type }}{{ m.1['type'] }}"), "ab");
  EXPECT_EQ(text_of("{{ [[1, 2], [3, 4]].1.0 }} {{ 1.5 }}"), "3 1.5");
}

TEST(Template, DivisionIsPythonsAtTheEndsOfTheRange) {
  EXPECT_EQ(text_of("{{ 7 // -1 }} {{ 7 % -1 }} {{ 6 is divisibleby(-1) }}"), "-7 0 True");
  EXPECT_EQ(text_of("{{ (-9223372036854775807 - 1) % 3 }} {{ 9223372036854775807 % -2 }}"), "1 -1");
  EXPECT_EQ(text_of("{{ -7 // 2 }} {{ -7 % 2 }} {{ 7 // -2 }} {{ 7 % -2 }}"), "-4 1 -4 -1");
  EXPECT_THAT(text_of("{{ range(0, 10, 5)[::9223372036854775807] }}"), HasSubstr("beyond 64 bits"));
}

struct Computed {
  const char* expression;
  const char* value;  // what Python prints
};

void expect_pythons(std::span<const Computed> all) {
  for (const auto& [expression, value] : all) {
    EXPECT_EQ(text_of(std::string("{{ ") + expression + " }}"), value) << expression;
  }
}

// The last five are rounded twice, and wrongly, where long doubles divide.
TEST(Template, QuotientsOfIntegersAreRoundedOnce) {
  constexpr Computed kAll[] = {
      {"1 / 2731", "0.0003661662394727206"},
      {"0 / -5", "-0.0"},
      {"1 / 9223372036854775807", "1.0842021724855044e-19"},
      {"9223372036854775807 / -7", "-1.3176245766935393e+18"},
      {"9223372036854775807 / 1", "9.223372036854776e+18"},
      {"(-9223372036854775807 - 1) / -1", "9.223372036854776e+18"},
      // Doubles of both would give other quotients.
      {"9007199254740993 / 3", "3002399751580331.0"},
      {"-9007199254740993 / 9007199254740995", "-0.9999999999999998"},
      {"(-9223372036854775807 - 1) / 9007199254740993", "-1023.9999999999999"},
      {"23 / 2207", "0.01042138649750793"},
      {"17 / 2435", "0.006981519507186858"},
      {"7503973568766224767 / 1163920555487913305", "6.447152714491389"},
      {"1094590456942921735 / 708110131745828989", "1.5457912658928274"},
      {"7067036087113445471 / 285022934466082793", "24.794622581343223"},
  };
  expect_pythons(kAll);
}

TEST(Template, FloorDivisionOfFloatsIsPythons) {
  constexpr Computed kAll[] = {
      {"-1.0 // 1e999", "-1.0"}, {"-1.0 % 1e999", "inf"},
      {"1.0 // 1e999", "0.0"},   {"1.0 % 1e999", "1.0"},
      {"1.0 // -1e999", "-1.0"}, {"1.0 % -1e999", "-inf"},
      {"-0.0 // 1e999", "-0.0"}, {"0.0 // -1.0", "-0.0"},
      {"-0.0 % 3.0", "0.0"},     {"0.0 % -3.0", "-0.0"},
      {"1e999 // 2.0", "nan"},   {"1e999 % 2.0", "nan"},
      {"1.0 // 0.1", "9.0"},     {"1.0 % 0.1", "0.09999999999999995"},
      {"-7.5 // 2.0", "-4.0"},   {"-7.5 % 2.0", "0.5"},
      {"7.5 // -2", "-4.0"},     {"7.5 % -2", "-0.5"},
      {"-1e-20 // 3.0", "-1.0"}, {"-1e-20 % 3.0", "3.0"},
      {"0.3 // 0.1", "2.0"},     {"-0.3 // 0.1", "-3.0"},
      {"1e300 // 1e-10", "inf"}, {"4.5 // 1.5", "3.0"},
  };
  expect_pythons(kAll);
}

// A double lacks the last digits of large integers, and nothing is below, above or equal to NaN.
TEST(Template, IntegersAndFloatsAreComparedExactly) {
  constexpr Computed kAll[] = {
      {"9007199254740993 == 9007199254740992.0", "False"},
      {"9007199254740993 != 9007199254740992.0", "True"},
      {"9007199254740993 > 9007199254740992.0", "True"},
      {"9007199254740992.0 < 9007199254740993", "True"},
      {"9007199254740992.0 >= 9007199254740993", "False"},
      {"9007199254740993 <= 9007199254740992.0", "False"},
      {"9007199254740992 == 9007199254740992.0", "True"},
      {"-9007199254740993 < -9007199254740992.0", "True"},
      {"9223372036854775807 == 9223372036854775808.0", "False"},
      {"9223372036854775807 < 9223372036854775808.0", "True"},
      {"9223372036854775808 == 9223372036854775808.0", "True"},
      {"9223372036854775809 > 9223372036854775808.0", "True"},
      {"(-9223372036854775807 - 1) == -9223372036854775808.0", "True"},
      {"-9223372036854775807 > -9223372036854775808.0", "True"},
      {"100000000000000000000000 > 1e23", "True"},
      {"9223372036854775807 < 1e999", "True"},
      {"-9223372036854775807 > -1e999", "True"},
      {"2 < 2.5", "True"},
      {"2.5 < 3", "True"},
      {"-2 > -2.5", "True"},
      {"0 == -0.0", "True"},
      {"true == 1.0", "True"},
      {"1e999 - 1e999 == 1e999 - 1e999", "False"},
      {"1e999 - 1e999 < 1", "False"},
      {"1 <= 1e999 - 1e999", "False"},
      {"1e999 - 1e999 >= 1e999 - 1e999", "False"},
      {"(1e999 - 1e999) is ge(1)", "False"},
      {"9007199254740993 is gt(9007199254740992.0)", "True"},
      {"9007199254740992.0 in [9007199254740993]", "False"},
      {"[9007199254740993, 9007199254740992.0] | sort", "[9007199254740992.0, 9007199254740993]"},
      {"[9007199254740993, 9007199254740992.0] | unique | list | length", "2"},
      {"{9007199254740993: 1} == {9007199254740992.0: 1}", "False"},
      {"{9007199254740992: 1} == {9007199254740992.0: 1}", "True"},
      {"9007199254740992.0 in {9007199254740993: 1}", "False"},
      {"{9007199254740993: 'a', 9007199254740992.0: 'b'}[9007199254740992]", "b"},
      {"{9223372036854775807: 'a', 9223372036854775808.0: 'b'} | length", "2"},
  };
  expect_pythons(kAll);
}

// What is between two words may matter to the sigma at the end of the first one.
TEST(Template, TitlesHaveTheSigmaThatPythonWrites) {
  EXPECT_EQ(text_of("{{ \"ΑΣ'Α ΑΣ' ΑΣ. ΑΣ.Β ΑΣΑ ΣΑ ΑΣ\".title() }}"),
            "Ασ'Α Ας' Ας. Ασ.Β Ασα Σα Ας");
  // ʰ is cased, and ignored where a sigma is judged.
  EXPECT_EQ(text_of("{{ \"aΣʰ'b aΣʰ b aΣʰ\".title() }}"), "Aσʰ'B Aςʰ B Aςʰ");
}

TEST(Template, OperatorsNameTests) {
  EXPECT_EQ(text_of("{{ m | selectattr('type', '==', 'b') | list | length }}"), "1");
  EXPECT_EQ(text_of("{{ [1, 2, 3] | select('>=', 2) | list }}"), "[2, 3]");
}

// What Jinja and Python have and chat templates do not use.
TEST(Template, RefusesByName) {
  const auto refusal = [](const std::string& what) {
    return testing::StartsWith("line 1: " + what +
                               "': is not one that chat templates use; known: ");
  };
  for (const std::string filter :
       {"abs",      "attr",        "batch",  "center",   "e",         "escape", "filesizeformat",
        "float",    "forceescape", "format", "groupby",  "pprint",    "random", "round",
        "slice",    "striptags",   "sum",    "truncate", "urlencode", "urlize", "wordcount",
        "wordwrap", "xmlattr",     "weird"}) {
    EXPECT_THAT(error_of("{{ x | " + filter + " }}"), refusal("filter '" + filter));
    EXPECT_THAT(error_of("{{ [1] | map('" + filter + "') }}"),
                HasSubstr("filter '" + filter + "': is not one that chat templates use"));
  }
  for (const std::string test : {"callable", "escaped", "filter", "test", "lower", "upper"}) {
    EXPECT_THAT(error_of("{{ x is " + test + " }}"), refusal("test '" + test));
  }
  for (const std::string name : {"include", "import", "extends", "with", "call", "block"}) {
    EXPECT_THAT(error_of("{% " + name + " 'x' %}"), refusal("statement '" + name));
  }
  for (const std::string function : {"cycler", "joiner", "lipsum"}) {
    EXPECT_THAT(error_of("{{ " + function + "(1) }}"), refusal("function '" + function));
  }
  for (const std::string method : {"center", "encode", "format_map", "index", "isupper", "zfill"}) {
    EXPECT_THAT(error_of("{{ 'a'." + method + "() }}"), refusal("method '" + method));
  }
  EXPECT_EQ(error_of("\n\n{{ 1 | urlize }}").substr(0, 24), "line 3: filter 'urlize':");
  EXPECT_EQ(error_of("{{ 2 ** 3 }}"), "line 1: operator '**': is not one that chat templates use");
  EXPECT_EQ(error_of("{{ '%s' % 1 }}"),
            "line 1: operator '%': chat templates do not use it of a text");
  EXPECT_EQ(error_of("{% for i in [1] recursive %}{% endfor %}"),
            "line 1: chat templates use no recursive loops");
  EXPECT_EQ(error_of("{{ '{:>4}'.format(1) }}"),
            "line 1: format: chat templates use only names and numbers in braces, not ':>4'");
  EXPECT_EQ(error_of("{{ ('a' | safe).join([1]) }}"),
            "line 1: method 'join': chat templates do not use it of text marked as safe");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"),
            "line 1: +: chat templates do not compute with integers beyond 64 bits");
  EXPECT_EQ(error_of("{{ -18446744073709551616 }}"),
            "line 1: -: chat templates do not compute with integers beyond 64 bits");
}

TEST(Template, EveryTemplateEnds) {
  EXPECT_THAT(
      error_of("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"),
      HasSubstr("too much"));
  EXPECT_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("macro calls are nested deeper than 100"));
  EXPECT_THAT(error_of("{{ 'a' * 100000000000 }}"), HasSubstr("too large"));
  EXPECT_THAT(error_of("{{ range(100001) }}"), HasSubstr("more than 100000 elements"));
  EXPECT_THAT(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + "}}"),
              HasSubstr("nested deeper than 100"));
  EXPECT_THAT(error_of("{{ " + std::string(5000, '-') + "1 }}"), HasSubstr("nested deeper"));
  EXPECT_EQ(error_of("{{ range(9223372036854775800, 9223372036854775807, 5) | length }}"),
            "rendered: 2");
}

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// Without limits, each of these would overflow the stack.
TEST(Template, ChainsAndNestingAreLimited) {
  const std::string sum = repeated(" + 1", 900);
  EXPECT_EQ(error_of("{{ 1" + sum + " }}"), "rendered: 901");
  for (const std::string link : {" + 1", " | trim", ".a", "['a']", "[1:]", "()", " is eq 1",
                                 " if 1", " ~ 1", " or 1", " * 1"}) {
    EXPECT_EQ(error_of("{{ a" + repeated(link, 100'000) + " }}"),
              "line 1: an expression of more than 1000 chained parts")
        << link;
  }
  // Chains inside 95 nested parentheses.
  EXPECT_THAT(error_of("{{ " + repeated("(", 95) + "1" + repeated(sum + ")", 95) + " }}"),
              HasSubstr("more than 1000 chained parts"));
  EXPECT_THAT(error_of("{% macro m() %}{{ m()" + sum + " }}{% endmacro %}{{ m() }}"),
              HasSubstr("nested deeper than 1500"));
  for (const auto& [begin, end] :
       {std::pair("{% for i in [1] %}", "{% endfor %}"), std::pair("{% if 1 %}", "{% endif %}"),
        std::pair("{% filter trim %}", "{% endfilter %}")}) {
    EXPECT_THAT(error_of("{% macro m() %}" + repeated(begin, 60) + "{{ m() }}" + repeated(end, 60) +
                         "{% endmacro %}{{ m() }}"),
                HasSubstr("nested deeper than 1500"));
  }
  const std::string set = "{% set ns = namespace() %}{% for i in range(100000) %}{% set ns.a = ";
  for (const std::string value : {"[ns.a]", "{'a': ns.a}", "[ns.a].count"}) {
    EXPECT_THAT(error_of(set + value + " %}{% endfor %}"), HasSubstr("nested deeper than 200"));
  }
  EXPECT_THAT(error_of(set + "namespace(a=ns.a) %}{% endfor %}"), HasSubstr("rendered: "));
  EXPECT_THAT(error_of(set + "namespace(a=ns.a) %}{% endfor %}{{ ns }}"),
              HasSubstr("nested deeper than 200"));
  EXPECT_THAT(error_of("{% set ns = namespace() %}{% for i in range(100000) %}"
                       "{% for x in [ns.a, 1] %}{% if loop.last %}{% set ns.a = [loop] %}"
                       "{% endif %}{% endfor %}{% endfor %}"),
              HasSubstr("nested deeper than 200"));
}

TEST(Template, ValuesMayContainThemselves) {
  const std::string self = "{% set ns = namespace() %}{% set ns.me = [ns, 1] %}";
  EXPECT_EQ(error_of(self + "{{ ns.me == ns.me }}{{ ns == ns }}"), "rendered: TrueTrue");
  EXPECT_EQ(error_of(self + "{{ ns.me | tojson }}"),
            "line 1: tojson: a value of type Namespace cannot be written as JSON");
  EXPECT_EQ(error_of(self + "{{ ns }}"), "rendered: <Namespace {'me': [<Namespace {...}>, 1]}>");
  EXPECT_EQ(error_of("{% for i in range(2) %}{% macro m() %}{{ i }}{% endmacro %}"
                     "{% set ns = namespace(m=m) %}{{ ns.m() }}{% endfor %}"),
            "rendered: 01");
  EXPECT_EQ(error_of("{% set ns = namespace() %}{% for i in [1] %}{% macro m() %}{{ i }}"
                     "{% endmacro %}{% set ns.m = m %}{% endfor %}{{ ns.m() }}"),
            "line 1: the macro 'm' is called after the loop or macro that defines it has ended");
}

// Without the budget, each of these would take hours, or make 100 GB and more.
TEST(Template, WorkAndMemoryAreLimited) {
  const std::string million = "{% set a = 'a' * 1000000 %}";
  const std::string doubled =
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}";
  const std::string tuples =
      "{% set ns = namespace(a=(1,)) %}{% for i in range(60) %}{% set ns.a = (ns.a, ns.a) %}"
      "{% endfor %}";
  const std::vector<std::string> texts = {
      million + "{{ [a] * 1000000 }}",
      million + "{{ ([a] * 1000000) | join }}",
      million + "{{ ''.join([a] * 1000000) }}",
      million + "{{ ([a] * 1000000) | tojson }}",
      million + "{{ ([a] * 1000000) | string | length }}",
      million + "{{ ([a] * 1000000) ~ '' }}",
      million + "{{ ([''] * 1000000) | join(a) }}",
      million + "{{ a | replace('a', 'b' * 100000) }}",
      million + "{{ a.replace('', 'b' * 100000) }}",
      million + "{{ ('\n' * 1000000) | indent(a, true) }}",
      million + "{{ ([1] * 1000000) | tojson(separators=[a, a]) }}",
      million + "{% for i in range(100000) %}{% set b = a.upper() %}{% endfor %}",
      million + "{% for i in range(100000) %}{% if a[5] == a[-1] %}{% endif %}{% endfor %}",
      million +
          "{% set b = a ~ 'b' %}{% for i in range(100000) %}{% if b in a %}{% endif %}"
          "{% endfor %}",
      million + "{% for i in range(100000) %}{{ a }}{% endfor %}",
      million + "{% for i in range(100000) %}{% set t %}{{ a }}{% endset %}{% endfor %}",
      million + "{% set l = [a ~ 'b', a ~ 'c'] * 1000 %}{{ l | sort | length }}",
      million + "{% set l = [a ~ 'b', a ~ 'c'] * 1000 %}{{ l | unique | list | length }}",
      std::string("{% set l = range(100000) %}{% for i in l %}{{ -1 in l }}{% endfor %}"),
      std::string("{% set l = range(100000) %}{% for i in l %}{{ l[1:] | last }}{% endfor %}"),
      doubled + "{{ ns.a == ns.b }}",
      doubled + "{{ ns.a < ns.b }}",
      doubled + "{{ ns.a }}",
      doubled + "{{ ns.a | tojson }}",
      doubled + "{{ [[ns.a], [ns.b]] | sort }}",
      doubled + "{{ raise_exception(ns.a) }}",
      tuples + "{{ {ns.a: 1} }}",
      tuples + "{{ {}.get(ns.a) }}",
      tuples + "{{ [ns.a] | unique | list }}",
      million + "{% for i in range(100000) %}{% set b = ('&' | safe) + a %}{% endfor %}",
      million + "{% for i in range(100000) %}{% set b = '{}{}'.format(a, a) %}{% endfor %}",
  };
  // Each spends a whole budget, which takes the sanitizers ten seconds.
  const size_t stride = base::kSanitized ? 4 : 1;
  for (size_t i = 0; i < texts.size(); i += stride) {
    EXPECT_THAT(error_of(texts[i]), HasSubstr("too much")) << texts[i];
  }
  EXPECT_THAT(error_of(doubled + "{{ missing[ns.a] }}"), HasSubstr("'missing' is undefined"));
  EXPECT_EQ(error_of(doubled + "{{ {}[ns.a] }}"), "rendered: ");
}

// Both would take minutes if they took quadratic time.
TEST(Template, LargeTextsAndDictsTakeLinearTime) {
  const base::WorkTimer work;
  const Result<std::string> words =
      render("{{ text.split() | length }} {{ text.split(none, 400000) | last }}",
             {{"text", repeated("a ", 400'000) + "b  "}});
  ASSERT_TRUE(words.ok()) << words.status().message();
  EXPECT_EQ(*words, "400001 b  ");
  ordered_json pairs = ordered_json::array();
  for (int i = 0; i < 200'000; ++i) pairs.push_back({"key " + std::to_string(i), i});
  const Result<std::string> dict =
      render("{% set d = dict(pairs) %}{{ d | length }} {{ d['key 17'] }} {{ d['key 199999'] }}",
             {{"pairs", pairs}});
  ASSERT_TRUE(dict.ok()) << dict.status().message();
  EXPECT_EQ(*dict, "200000 17 199999");
  EXPECT_LT(work.seconds(), 20);
}

TEST(Template, InputNestedTooDeepIsRefused) {
  ordered_json deep;
  for (int i = 0; i < 300; ++i) deep = ordered_json::array({std::move(deep)});
  const Result<std::string> found = render("{{ deep }}", {{"deep", deep}});
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.status().message(), HasSubstr("nested deeper than 200"));
}

}  // namespace
}  // namespace wideep::jinja
