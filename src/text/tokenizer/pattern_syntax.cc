// SPDX-License-Identifier: Apache-2.0
//
// One pass from left to right, which copies each element of the expression to the output,
// translates it, or refuses it. The state is what the rules need: the element before (for
// quantifiers), the stack of open groups, and in (?i:..) the letter before (for pairs that fold to
// one character).
#include "tokenizer/pattern_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/printable.h"
#include "base/try.h"
#include "tokenizer/character_set.h"
#include "tokenizer/unicode_newer.h"

namespace wideep::tokenizer {
namespace {

// Pairs of letters that Oniguruma also matches with one character when it ignores case: 'ss' with
// U+00DF, 'fi' with U+FB01, 'st' with U+FB06, ... (CaseFolding.txt, status F, ASCII only).
constexpr std::array<std::string_view, 5> kFoldingPairs = {"ss", "ff", "fi", "fl", "st"};

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_ascii_punctuation(char c) {
  return c > ' ' && c < 0x7F && !is_ascii_letter(c) && !is_digit(c);
}

// White space at the end of a piece or before a newline. A backtracking engine would need a time of
// n² for a run of n spaces: where one start fails, the others of the run do too, and are skipped.
constexpr std::string_view kSpaceAtEnd = "\\s+$";
constexpr std::string_view kSpaceAtEndTranslated =
    "\\p{White_Space}++\\z|\\p{White_Space}+(?=\\n)|\\p{White_Space}++(*SKIP)(*FAIL)";

// Words with spaces between them, of K-EXAONE. Each step of the match follows from the next
// character, so that a possessive form, which takes linear time, matches the same.
constexpr std::string_view kSeveralWords = R"((?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+)";
constexpr std::string_view kOneWord = R"(\p{L}[\p{L}\p{M}]*+)";

// Digits in threes from the right: each match looks to the end of a run. Only the first one needs
// to, so that a run takes linear time.
constexpr std::string_view kThreesFromRight = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";
constexpr std::string_view kFirstOrThree = "(?<!{0}){0}{{1,2}}(?=(?:{0}{{3}})*+(?!{0}))|{0}{{3}}";

// The newer code points of a category or of the script Han as items of a class,
// "\x{A7CB}-\x{A7CD}...", with adjacent ranges joined.
std::string newer_ranges(std::string_view category) {
  std::vector<CategoryRange> ranges;
  for (const CategoryRange& range : newer_categories()) {
    const bool is_member = category == "Han" ? range.category == "Lo" && range.first >= 0x20000
                                             : range.category.starts_with(category);
    if (!is_member) continue;
    if (!ranges.empty() && ranges.back().last + 1 == range.first) {
      ranges.back().last = range.last;
    } else {
      ranges.push_back(range);
    }
  }
  std::string out;
  for (const CategoryRange& range : ranges) {
    out += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<uint32_t>(range.first),
                       static_cast<uint32_t>(range.last));
  }
  return out;
}

class Translator {
 public:
  explicit Translator(std::string_view regex) : regex_(regex) {}

  Result<std::string> run() {
    while (!done()) WIDEEP_TRY(element());
    if (!groups_.empty()) return refuse("a group without ')'");
    return std::move(out_);
  }

 private:
  // The element that a following quantifier would apply to.
  enum class Last { kNothing, kCharacter, kGroup, kLookAhead };
  struct Group {
    bool ignores_case;  // the state outside the group, restored at its end
    bool look_ahead;
  };

  bool done() const { return at_ == regex_.size(); }
  std::string_view rest() const { return regex_.substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }

  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }

  Status refuse(std::string_view what) const {
    return invalid_input(fmt::format("{} at byte {} of the pattern '{}' is not supported", what,
                                     at_, base::printable(regex_, 200)));
  }

  Status element() {
    switch (regex_[at_]) {
      case '\\':
        return escape_outside_class();
      case '[':
        return character_class();
      case '(':
        return is_several_words() ? several_words() : open_group();
      case ')':
        return close_group();
      case '|':
        return alternative();
      case '?':
      case '*':
      case '+':
      case '{':
        return quantifier();
      case '^':
      case '$':
        return refuse(fmt::format("the anchor '{}'", regex_[at_]));
      default:
        return literal();
    }
  }

  // At the end of an alternative: what follows could ask for a shorter match.
  bool is_several_words() const {
    const std::string_view after = rest().substr(std::min(kSeveralWords.size(), rest().size()));
    return groups_.empty() && next_is(kSeveralWords) && (after.empty() || after.starts_with('|'));
  }

  Status several_words() {
    at_ += kSeveralWords.size();
    WIDEEP_TRY_ASSIGN(const std::string word, Translator(kOneWord).run());
    out_ += fmt::format("{0}(?: {0})*+", word);
    last_ = Last::kNothing;
    return {};
  }

  Status literal() {
    const char c = regex_[at_];
    WIDEEP_TRY(check_ignoring_case(c));
    out_ += c;
    ++at_;
    last_ = Last::kCharacter;
    return {};
  }

  // Checks one byte of a literal. Outside (?i:..) all bytes are allowed.
  Status check_ignoring_case(char c) {
    if (!ignores_case_) return {};
    if (static_cast<unsigned char>(c) >= 0x80) return refuse("a character beyond ASCII in (?i:..)");
    const std::array<char, 2> pair = {previous_letter_, lower(c)};
    previous_letter_ = lower(c);
    const std::string_view folded(pair.data(), pair.size());
    if (std::find(kFoldingPairs.begin(), kFoldingPairs.end(), folded) != kFoldingPairs.end()) {
      return refuse(fmt::format("the letter pair '{}' in (?i:..)", folded));
    }
    return {};
  }

  Status escape_outside_class() {
    WIDEEP_TRY_ASSIGN(const Escape escape, read_escape());
    last_ = Last::kCharacter;
    if (escape.newer.empty()) {
      out_ += escape.text;
    } else {
      out_ += fmt::format("[{}{}{}]", escape.negated ? "^" : "", escape.text, escape.newer);
    }
    return {};
  }

  struct Escape {
    std::string text;        // the class or character; not negated if `newer` is set
    std::string newer = {};  // newer code points of \p{..} and \P{..}, as items of a class
    bool negated = false;
    bool is_class = false;
  };

  Result<Escape> read_escape() {
    if (take("\\s")) return Escape{.text = "\\p{White_Space}", .is_class = true};
    if (take("\\S")) return Escape{.text = "\\P{White_Space}", .is_class = true};
    if (take("\\d")) {
      if (ignores_case_) return refuse("a property in (?i:..)");
      return Escape{.text = "\\p{Nd}", .newer = newer_ranges("Nd"), .is_class = true};
    }
    if (next_is("\\p{") || next_is("\\P{")) return read_property();
    const char c = rest().size() > 1 ? regex_[at_ + 1] : '\0';
    if (!is_ascii_punctuation(c) && std::string_view("rntf").find(c) == std::string_view::npos) {
      return refuse(fmt::format("the escape '{}'", base::printable(rest().substr(0, 2))));
    }
    WIDEEP_TRY(check_ignoring_case(c));
    at_ += 2;
    return Escape{.text = {'\\', c}};
  }

  Result<Escape> read_property() {
    const size_t close = rest().find('}');
    const std::string_view name = rest().substr(3, close == std::string_view::npos ? 0 : close - 3);
    if (!is_known_property(name)) {
      return refuse(fmt::format("the property '{}'", base::printable(rest().substr(0, close + 1))));
    }
    if (ignores_case_) return refuse("a property in (?i:..)");
    // "\p{Han}" would also be characters that other scripts share with it, as in Perl.
    const std::string_view script = name == "Han" ? "sc:" : "";
    Escape escape{.text = fmt::format("\\p{{{}{}}}", script, name),
                  .newer = newer_ranges(name),
                  .negated = regex_[at_ + 1] == 'P',
                  .is_class = true};
    if (escape.negated && escape.newer.empty()) escape.text[1] = 'P';
    at_ += close + 1;
    return escape;
  }

  // Whether the class at at_ needs class_as_ranges().
  bool is_nested_class() const {
    bool first = true;
    for (size_t i = at_ + 1; i < regex_.size() && regex_[i] != ']'; ++i) {
      if (regex_[i] == '\\') {
        ++i;
        if (i < regex_.size() && regex_[i] == 'P') return true;
      } else if (regex_[i] == '[' || (!first && regex_.substr(i).starts_with("&&"))) {
        return true;
      }
      first = false;
    }
    return false;
  }

  Status nested_class() {
    if (ignores_case_) return refuse("a nested class in (?i:..)");
    size_t bytes = 0;
    const Result<std::string> ranges = class_as_ranges(rest(), &bytes);
    if (!ranges.ok()) return refuse(ranges.status().message());
    out_ += *ranges;
    at_ += bytes;
    last_ = Last::kCharacter;
    return {};
  }

  Status character_class() {
    if (is_nested_class()) return nested_class();
    ++at_;
    out_ += '[';
    if (take("^")) {
      if (ignores_case_) return refuse("a negated class in (?i:..)");
      out_ += '^';
    }
    if (next_is("]")) return refuse("an empty class or unescaped ']'");
    bool after_class =
        false;  // whether the item before is \s or \p{..}, which cannot start a range
    while (!done() && !next_is("]")) {
      previous_letter_ = '\0';  // neighbours in a class are alternatives, not a pair
      WIDEEP_TRY(class_item(&after_class));
    }
    if (!take("]")) return refuse("a class without ']'");
    out_ += ']';
    last_ = Last::kCharacter;
    previous_letter_ = '\0';
    return {};
  }

  Status class_item(bool* after_class) {
    if (next_is("&&")) return refuse("the class operation '&&' without a class before it");
    if (next_is("-")) return class_hyphen(*after_class);
    *after_class = false;
    if (!next_is("\\")) return class_literal();
    WIDEEP_TRY_ASSIGN(const Escape escape, read_escape());
    out_ += escape.text + escape.newer;
    *after_class = escape.is_class;
    return {};
  }

  Status class_literal() {
    WIDEEP_TRY(check_ignoring_case(regex_[at_]));
    out_ += regex_[at_++];
    return {};
  }

  // '-' is a literal at either end of a class and makes a range between two characters. It is
  // written as "\-" where it is a literal, so that PCRE2 cannot take it for a range.
  Status class_hyphen(bool after_class) {
    const bool first = out_.ends_with("[") || out_.ends_with("[^");
    const bool last = rest().size() > 1 && regex_[at_ + 1] == ']';
    const bool before_class = next_is("-\\s") || next_is("-\\S") || next_is("-\\p") ||
                              next_is("-\\P") || next_is("-\\d") || next_is("-[") || next_is("--");
    if (!first && !last && (after_class || before_class)) {
      return refuse("a '-' that makes no range of characters");
    }
    out_ += first || last ? "\\-" : "-";
    ++at_;
    return {};
  }

  Status open_group() {
    const bool ignores_case = next_is("(?i:");
    const bool look_ahead = next_is("(?=") || next_is("(?!");
    if (!ignores_case && !look_ahead && !next_is("(?:") && (next_is("(?") || next_is("(*"))) {
      return refuse(fmt::format("the group '{}'", base::printable(rest().substr(0, 4))));
    }
    groups_.push_back({ignores_case_, look_ahead});
    ignores_case_ = ignores_case_ || ignores_case;
    const size_t bytes = ignores_case ? 4 : next_is("(?") ? 3 : 1;
    out_ += rest().substr(0, bytes);
    at_ += bytes;
    last_ = Last::kNothing;
    previous_letter_ = '\0';
    return {};
  }

  Status close_group() {
    if (groups_.empty()) return refuse("an unescaped ')'");
    ignores_case_ = groups_.back().ignores_case;
    last_ = groups_.back().look_ahead ? Last::kLookAhead : Last::kGroup;
    groups_.pop_back();
    return copy_boundary(')');
  }

  Status alternative() {
    last_ = Last::kNothing;
    return copy_boundary('|');
  }

  Status copy_boundary(char c) {
    out_ += c;
    ++at_;
    previous_letter_ = '\0';
    return {};
  }

  Status quantifier() {
    if (last_ == Last::kNothing || last_ == Last::kLookAhead) {
      return refuse(fmt::format("the quantifier '{}' without a character before it", regex_[at_]));
    }
    // Nested repetition such as (a+)+ is what takes exponential time or deep recursion.
    if (last_ == Last::kGroup && regex_[at_] != '?') return refuse("a repeated group");
    last_ = Last::kNothing;
    previous_letter_ = '\0';
    if (next_is("{")) return interval();
    const size_t bytes = rest().size() > 1 && (regex_[at_ + 1] == '?' || regex_[at_ + 1] == '+');
    out_ += rest().substr(0, 1 + bytes);
    at_ += 1 + bytes;
    return {};
  }

  // {n}, {n,} or {n,m}. A '?' or '+' after it has another meaning in Oniguruma than in PCRE2.
  Status interval() {
    size_t end = 1;
    const auto digits = [this, &end] {
      const size_t start = end;
      while (end < rest().size() && is_digit(rest()[end])) ++end;
      return end > start && end - start <= 4;  // both accept four digits
    };
    bool ok = digits();
    if (ok && end < rest().size() && rest()[end] == ',') {
      ++end;
      ok = (end < rest().size() && rest()[end] == '}') || digits();
    }
    if (!ok || end >= rest().size() || rest()[end] != '}') return refuse("an unescaped '{'");
    ++end;
    if (rest().substr(end).starts_with("?") || rest().substr(end).starts_with("+")) {
      return refuse("a lazy or possessive {n,m}");
    }
    out_ += rest().substr(0, end);
    at_ += end;
    return {};
  }

  std::string_view regex_;
  size_t at_ = 0;
  std::string out_;
  std::vector<Group> groups_;
  bool ignores_case_ = false;
  Last last_ = Last::kNothing;
  char previous_letter_ = '\0';  // in lower case; only used in (?i:..)
};

}  // namespace

Result<std::string> to_pcre2_syntax(std::string_view regex) {
  if (regex == kSpaceAtEnd) return std::string(kSpaceAtEndTranslated);
  if (regex == kThreesFromRight) {
    return fmt::format(kFirstOrThree, fmt::format("[\\p{{N}}{}]", newer_ranges("N")));
  }
  return Translator(regex).run();
}

}  // namespace wideep::tokenizer
