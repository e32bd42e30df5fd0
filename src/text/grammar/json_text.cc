// SPDX-License-Identifier: Apache-2.0
//
// Rules are made when they are first asked for, one of each, so that all strings of an answer are
// the same place of a rule and share a mask (token_masks.h). White space is bounded, because a
// model that may write it for ever does.
//
// Strings other than some names are a trie of these: at each place go on with a name, or leave it
// by another character, after which anything may follow.
#include "grammar/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "formats/json_text.h"
#include "tokenizer/utf8.h"

namespace wideep::grammar {
namespace {

constexpr int kMaxIndent = 64, kMaxTabs = 16;

const CharacterRanges kEscaped = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};

CharacterRanges without(CharacterRanges ranges, const CharacterRanges& others) {
  CharacterRanges all = inverted(std::move(ranges));
  all.insert(all.end(), others.begin(), others.end());
  return inverted(std::move(all));
}

Expression any_of(std::string_view bytes) {
  std::vector<Expression> all;
  for (const char byte : bytes) all.push_back(text(std::string_view(&byte, 1)));
  return choice(std::move(all));
}

Expression digit() { return byte_range('0', '9'); }
Expression hex_digit() {
  return choice({byte_range('0', '9'), byte_range('a', 'f'), byte_range('A', 'F')});
}

// "\u" and four digits, of a character or of both halves of one.
Expression code_unit() {
  const Expression hex = hex_digit(), d = any_of("dD");
  const Expression no_surrogate =
      choice({sequence({choice({byte_range('0', '9'), byte_range('a', 'c'), byte_range('e', 'f'),
                                byte_range('A', 'C'), byte_range('E', 'F')}),
                        hex, hex, hex}),
              sequence({d, byte_range('0', '7'), hex, hex})});
  const Expression pair =
      sequence({d, any_of("89abAB"), hex, hex, text("\\u"), d,
                choice({byte_range('c', 'f'), byte_range('C', 'F')}), hex, hex});
  return sequence({text("\\u"), choice({no_surrogate, pair})});
}

std::string escaped(char32_t c) {
  constexpr std::string_view kMeanings = "\b\f\n\r\t\"\\", kLetters = "bfnrt\"\\";
  const size_t found = kMeanings.find(static_cast<char>(c));
  if (found != std::string_view::npos) return {'\\', kLetters[found]};
  return fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
}

Expression usual_space() {
  return optional(choice({text(" "), sequence({text("\n"), repeat(text(" "), 0, kMaxIndent)}),
                          sequence({text("\n"), repeat(text("\t"), 1, kMaxTabs)})}));
}

// Texts by their first characters.
struct NameTrie {
  std::map<char32_t, NameTrie> next;
  bool ends = false;
};

// What may follow a beginning of names so that it is none of them.
Expression other_than(const NameTrie& names) {
  const Expression rest = repeat(characters(inverted(kEscaped)), 0, kNoMax);
  CharacterRanges known = kEscaped;
  std::vector<Expression> all;
  for (const auto& [c, names_behind] : names.next) {
    known.push_back({c, c});
    all.push_back(sequence({characters({{c, c}}), other_than(names_behind)}));
  }
  all.push_back(sequence({characters(inverted(known)), rest}));
  if (!names.ends) all.push_back(text(""));
  return choice(std::move(all));
}

}  // namespace

JsonStyle compact_json() { return {.space = text("")}; }

JsonText::JsonText(Rules* rules, JsonStyle style)
    : rules_(rules),
      space_(call(rules->add("space", style.space ? std::move(style.space) : usual_space()))) {}

int JsonText::rule(int* number, const char* name, Expression (JsonText::*body)()) {
  if (*number < 0) {
    *number = rules_->add(name);  // before its body, which may call it
    rules_->define(*number, (this->*body)());
  }
  return *number;
}

Expression JsonText::string() { return call(rule(&string_, "string", &JsonText::string_body)); }
Expression JsonText::integer() { return call(rule(&integer_, "integer", &JsonText::integer_body)); }
Expression JsonText::number() { return call(rule(&number_, "number", &JsonText::number_body)); }
Expression JsonText::any_object() { return call(rule(&object_, "object", &JsonText::object_body)); }
Expression JsonText::any_array() { return call(rule(&array_, "array", &JsonText::array_body)); }
Expression JsonText::any_value() { return call(rule(&value_, "value", &JsonText::value_body)); }
Expression JsonText::boolean() const { return choice({text("true"), text("false")}); }
Expression JsonText::null() const { return text("null"); }

Expression JsonText::quoted(Expression inside) {
  return sequence({text("\""), std::move(inside), text("\"")});
}

Expression JsonText::character_body() {
  return choice({grammar::characters(inverted(kEscaped)),
                 sequence({text("\\"), any_of("\"\\/bfnrt")}), code_unit()});
}

Expression JsonText::string_body() { return quoted(repeat(character_body(), 0, kNoMax)); }

Expression JsonText::integer_body() {
  return sequence(
      {optional(text("-")),
       choice({text("0"), sequence({byte_range('1', '9'), repeat(digit(), 0, kNoMax)})})});
}

Expression JsonText::number_body() {
  const Expression fraction = sequence({text("."), repeat(digit(), 1, kNoMax)});
  // More digits would be no number of most programs.
  const Expression exponent =
      sequence({any_of("eE"), optional(any_of("+-")), repeat(digit(), 1, 2)});
  return sequence({integer_body(), optional(fraction), optional(exponent)});
}

Expression JsonText::object_body() {
  const Expression member = sequence({string(), text(":"), space_, any_value()});
  return list("{", member, "}", 0, kNoMax);
}

Expression JsonText::array_body() { return list("[", any_value(), "]", 0, kNoMax); }

Expression JsonText::value_body() {
  return choice({any_object(), any_array(), string(), number(), boolean(), null()});
}

Expression JsonText::key(std::string_view name) const {
  return sequence({text(formats::json_text(nlohmann::json(name)) + ":"), space_});
}

Expression JsonText::string_of(int min, int max) {
  return quoted(repeat(call(rule(&character_, "character", &JsonText::character_body)), min, max));
}

Expression JsonText::string_other_than(const std::vector<std::string>& texts) const {
  NameTrie names;
  for (std::string_view rest : texts) {
    NameTrie* at = &names;
    while (!rest.empty()) {
      const tokenizer::Utf8Unit unit = tokenizer::first_unit(rest);
      at = &at->next[tokenizer::first_code_point(rest.substr(0, unit.bytes))];
      rest.remove_prefix(unit.bytes);
    }
    at->ends = true;
  }
  // Characters with escapes are in none of the strings.
  const auto drop_escaped = [](const auto& self, NameTrie* at) -> void {
    std::erase_if(at->next, [](const auto& each) {
      return each.first < 0x20 || each.first == '"' || each.first == '\\';
    });
    for (auto& [c, behind] : at->next) self(self, &behind);
  };
  drop_escaped(drop_escaped, &names);
  return quoted(other_than(names));
}

Expression JsonText::characters(const CharacterRanges& ranges) {
  std::vector<Expression> all = {grammar::characters(without(ranges, kEscaped))};
  for (const CharacterRange& each : without(ranges, inverted(kEscaped))) {
    for (char32_t c = each.first; c <= each.last; ++c) all.push_back(text(escaped(c)));
  }
  return choice(std::move(all));
}

Expression JsonText::separator() const { return sequence({text(","), space_}); }

Expression JsonText::list(std::string_view begin, Expression part, std::string_view end, int min,
                          int max) const {
  if (max == 0) return sequence({text(begin), space_, text(end)});
  const int more = std::max(min - 1, 0);
  Expression parts =
      sequence({part, repeat(sequence({separator(), part}), more, max == kNoMax ? kNoMax : max - 1),
                space_});
  if (min == 0) parts = optional(std::move(parts));
  return sequence({text(begin), space_, std::move(parts), text(end)});
}

}  // namespace wideep::grammar
