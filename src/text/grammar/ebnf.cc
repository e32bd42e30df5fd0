// SPDX-License-Identifier: Apache-2.0
//
// A recursive descent, with one function for each level of the notation. A rule has no mark at its
// end: whether a name is a part or begins the next rule is known from the ::= behind it, so
// at_rule() looks ahead. Rules are numbered when they are first named; what is never defined is an
// error at the end.
#include "grammar/ebnf.h"

#include <fmt/format.h>

#include <cctype>
#include <map>
#include <string>
#include <utility>

#include "base/try.h"
#include "grammar/text_reader.h"

namespace wideep::grammar {
namespace {

constexpr int kMaxDepth = 128;
constexpr int kMaxRepeats = 1'000'000;
constexpr size_t kMaxBytes = size_t{1} << 17;  // a class of four bytes may take 5 kB

bool is_name(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) != 0 || byte == '-' || byte == '_';
}

class Parser {
 public:
  Parser(std::string_view text, Rules* rules) : reader_(text), rules_(rules) {}

  Result<int> parse() {
    if (reader_.rest().size() > kMaxBytes) {
      return invalid_input(fmt::format("a grammar of more than {} bytes", kMaxBytes));
    }
    skip_space();
    while (!reader_.at_end()) WIDEEP_TRY(rule());
    const auto root = numbers_.find("root");
    if (root == numbers_.end()) return invalid_input("there is no rule 'root'");
    for (const auto& [name, number] : numbers_) {
      if ((*rules_)[number].body == nullptr) {
        return invalid_input(fmt::format("there is no rule '{}', which others name", name));
      }
    }
    return root->second;
  }

 private:
  Status error(std::string_view what) const { return reader_.error(what); }

  void skip_space() {
    while (!reader_.at_end()) {
      if (reader_.peek() == '#') {
        while (!reader_.at_end() && reader_.peek() != '\n') reader_.skip(1);
      } else if (std::isspace(static_cast<unsigned char>(reader_.peek())) != 0) {
        reader_.skip(1);
      } else {
        return;
      }
    }
  }

  std::string take_name() {
    std::string name;
    for (; !reader_.at_end() && is_name(reader_.peek()); reader_.skip(1)) name += reader_.peek();
    return name;
  }

  int number_of(const std::string& name) {
    const auto [found, is_new] = numbers_.try_emplace(name, 0);
    if (is_new) found->second = rules_->add(name);
    return found->second;
  }

  Status rule() {
    const std::string name = take_name();
    if (name.empty()) return error("expected the name of a rule");
    skip_space();
    if (!reader_.take("::=")) return error("expected ::=");
    const int number = number_of(name);
    if ((*rules_)[number].body != nullptr) return error(fmt::format("rule '{}' comes twice", name));
    WIDEEP_TRY_ASSIGN(Expression body, alternatives());
    rules_->define(number, std::move(body));
    return {};
  }

  Result<Expression> alternatives() {
    if (++depth_ > kMaxDepth) return error(fmt::format("nested more than {} deep", kMaxDepth));
    std::vector<Expression> found;
    do {
      WIDEEP_TRY_ASSIGN(Expression each, parts());
      found.push_back(std::move(each));
    } while (reader_.take('|'));
    --depth_;
    return choice(std::move(found));
  }

  // Whether the next name begins another rule.
  bool at_rule() const {
    TextReader ahead = reader_;
    while (!ahead.at_end() && is_name(ahead.peek())) ahead.skip(1);
    while (!ahead.at_end() && std::isspace(static_cast<unsigned char>(ahead.peek())) != 0) {
      ahead.skip(1);
    }
    return ahead.take("::=");
  }

  Result<Expression> parts() {
    std::vector<Expression> found;
    skip_space();
    while (!reader_.at_end() && reader_.peek() != '|' && reader_.peek() != ')') {
      if (is_name(reader_.peek()) && at_rule()) break;
      WIDEEP_TRY_ASSIGN(Expression each, atom());
      WIDEEP_TRY_ASSIGN(each, repeated(std::move(each)));
      found.push_back(std::move(each));
      skip_space();
    }
    if (reader_.rest().starts_with(')') && depth_ == 1) return error("a ) without its (");
    return sequence(std::move(found));
  }

  Result<Expression> repeated(Expression part) {
    for (int levels = 0;; ++levels) {
      if (levels > 4) return error("more than four repeats of repeats");
      if (reader_.take('*')) {
        part = repeat(std::move(part), 0, kNoMax);
      } else if (reader_.take('+')) {
        part = repeat(std::move(part), 1, kNoMax);
      } else if (reader_.take('?')) {
        part = optional(std::move(part));
      } else if (reader_.begins_bounds()) {
        WIDEEP_TRY_ASSIGN(const TextReader::Bounds bounds, reader_.take_bounds());
        if (bounds.max != kNoMax && bounds.min > bounds.max) {
          return error("expected {m,n} with m not above n");
        }
        if (bounds.min > kMaxRepeats || bounds.max > kMaxRepeats) {
          return error(fmt::format("more than {} repeats", kMaxRepeats));
        }
        part = repeat(std::move(part), bounds.min, bounds.max);
      } else {
        return part;
      }
    }
  }

  Result<Expression> atom() {
    if (reader_.take('"')) return literal();
    if (reader_.take('[')) return bracket();
    if (reader_.take('.')) return characters({{0, kLastCharacter}});
    if (reader_.take('(')) {
      WIDEEP_TRY_ASSIGN(Expression group, alternatives());
      if (!reader_.take(')')) return error("expected )");
      return group;
    }
    if (!is_name(reader_.peek())) return error("expected a literal, a class, a group or a name");
    return call(number_of(take_name()));
  }

  Result<Expression> literal() {
    std::vector<Expression> parts;
    std::string plain;
    while (!reader_.take('"')) {
      if (reader_.at_end() || reader_.peek() == '\n') return error("a literal without its end");
      if (reader_.peek() != '\\') {
        const size_t before = reader_.rest().size();
        const std::string_view rest = reader_.rest();
        WIDEEP_TRY(reader_.character().status());
        plain += rest.substr(0, before - reader_.rest().size());
        continue;
      }
      WIDEEP_TRY_ASSIGN(const char32_t c, member());
      parts.push_back(text(std::exchange(plain, std::string())));
      parts.push_back(characters({{c, c}}));
    }
    parts.push_back(text(plain));
    return sequence(std::move(parts));
  }

  Result<Expression> bracket() {
    const bool is_inverted = reader_.take('^');
    CharacterRanges ranges;
    if (reader_.rest().starts_with("]")) return error("a class that begins with ]: write \\]");
    while (!reader_.take(']')) {
      if (reader_.at_end()) return error("a [ without its ]");
      WIDEEP_TRY_ASSIGN(const char32_t first, member());
      const bool is_range = reader_.rest().starts_with("-") && !reader_.rest().starts_with("-]");
      char32_t last = first;
      if (is_range) {
        reader_.skip(1);
        if (reader_.at_end()) return error("a [ without its ]");
        WIDEEP_TRY_ASSIGN(last, member());
      }
      if (first > last) return error("expected a range from a character to a later one");
      ranges.push_back({first, last});
    }
    return characters(is_inverted ? inverted(ranges) : ranges);
  }

  Result<char32_t> member() {
    return reader_.take('\\') ? reader_.escaped_character() : reader_.character();
  }

  TextReader reader_;
  Rules* rules_;
  std::map<std::string, int> numbers_;
  int depth_ = 0;
};

}  // namespace

Result<int> parse_ebnf(std::string_view text, Rules* rules) { return Parser(text, rules).parse(); }

}  // namespace wideep::grammar
