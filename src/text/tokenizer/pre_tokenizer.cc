// SPDX-License-Identifier: Apache-2.0
//
// Steps are applied one after the other to all pieces; a step is a way to find stretches, and its
// behavior says how these become pieces. Pieces stay views into the text, until a step changes
// characters: then they are views into changed_, which never moves.
//
// Whether a piece is at the start of the whole text matters to Metaspace only, but every step
// before it may have cut the start away, so it is followed from step to step.
#include "tokenizer/pre_tokenizer.h"

#include <utility>

#include "tokenizer/char_kinds.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

// Calls use(character, code point) for each character of a text.
template <typename Use>
void for_each_character(std::string_view text, Use use) {
  while (!text.empty()) {
    const size_t bytes = first_unit(text).bytes;
    use(text.substr(0, bytes), first_code_point(text));
    text.remove_prefix(bytes);
  }
}

// Appends a stretch, or makes the last one longer.
void extend(std::string_view text, bool matches, bool longer, std::vector<Stretch>* stretches) {
  if (longer && !stretches->empty()) {
    std::string_view& last = stretches->back().text;
    last = {last.data(), last.size() + text.size()};
  } else {
    stretches->push_back({text, matches});
  }
}

void find_characters(std::string_view text, bool (*is_match)(char32_t),
                     std::vector<Stretch>* stretches) {
  bool between = false;
  for_each_character(text, [&](std::string_view character, char32_t c) {
    const bool matches = is_match(c);
    extend(character, matches, between && !matches, stretches);
    between = !matches;
  });
}

// White space is the match, to be removed.
void find_words(std::string_view text, std::vector<Stretch>* stretches) {
  enum class Kind { kNone, kSpace, kWord, kOther } previous = Kind::kNone;
  for_each_character(text, [&](std::string_view character, char32_t c) {
    const Kind kind = is_word_character(c) ? Kind::kWord
                      : is_white_space(c)  ? Kind::kSpace
                                           : Kind::kOther;
    extend(character, kind == Kind::kSpace, kind == previous, stretches);
    previous = kind;
  });
}

void find_literal(std::string_view text, std::string_view literal,
                  std::vector<Stretch>* stretches) {
  while (!text.empty()) {
    const size_t at = std::min(text.find(literal), text.size());
    if (at > 0) stretches->push_back({text.substr(0, at), false});
    text.remove_prefix(at);
    if (text.empty()) return;
    stretches->push_back({text.substr(0, literal.size()), true});
    text.remove_prefix(literal.size());
  }
}

// The text of a piece for a Metaspace step.
std::string with_metaspace(std::string_view piece, const MetaspaceStep& step, bool starts) {
  std::string text;
  for (const char c : piece) {
    if (c == ' ') {
      text += step.replacement;
    } else {
      text += c;
    }
  }
  const bool prepends =
      step.prepend == PrependScheme::kAlways || (step.prepend == PrependScheme::kFirst && starts);
  if (prepends && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  return text;
}

}  // namespace

Result<Pattern> PreTokenizer::gpt2_pattern() {
  return Pattern::from_regex(
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
}

const std::vector<std::string_view>& PreTokenizer::split(std::string_view text, bool starts,
                                                         PreTokenizerScratch* scratch) const {
  auto& pieces = scratch->pieces_;
  auto& next = scratch->next_;
  auto& stretches = scratch->stretches_;
  pieces.clear();
  scratch->changed_.clear();
  if (!text.empty()) pieces.push_back(text);
  // Cuts one piece by the stretches that find(&stretches) appends.
  const auto cut = [&](SplitBehavior behavior, const auto& find) {
    stretches.clear();
    find(&stretches);
    append_pieces(stretches, behavior, &next);
  };
  struct Visitor {
    const decltype(cut)& cut_by;
    PreTokenizerScratch& memory;
    std::string_view piece;
    bool starts;

    void operator()(const SplitStep& step) const {
      if (step.behavior == SplitBehavior::kIsolated) {
        step.pattern.split(piece, &memory.match_, &memory.next_);
        return;
      }
      cut_by(step.behavior, [&](auto* found) {
        step.pattern.find_all(piece, step.invert, &memory.match_, found);
      });
    }
    void operator()(const CharacterSplitStep& step) const {
      cut_by(step.behavior, [&](auto* found) { find_characters(piece, step.is_match, found); });
    }
    void operator()(const WordsStep&) const {
      cut_by(SplitBehavior::kRemoved, [&](auto* found) { find_words(piece, found); });
    }
    void operator()(const PrefixSpaceStep&) const {
      if (piece.starts_with(' ')) {
        memory.next_.push_back(piece);
      } else {
        memory.next_.push_back(memory.changed_.emplace_back(" ").append(piece));
      }
    }
    void operator()(const MetaspaceStep& step) const {
      const std::string_view changed =
          memory.changed_.emplace_back(with_metaspace(piece, step, starts));
      if (!step.split) {
        memory.next_.push_back(changed);
        return;
      }
      cut_by(SplitBehavior::kMergedWithNext,
             [&](auto* found) { find_literal(changed, step.replacement, found); });
    }
  };
  for (const PreTokenizerStep& step : steps_) {
    next.clear();
    bool still_starts = starts;  // whether the first piece is the start of the whole text
    for (size_t i = 0; i < pieces.size(); ++i) {
      const size_t before = next.size();
      std::visit(Visitor{cut, *scratch, pieces[i], starts && i == 0}, step);
      // A step that removes the start leaves no piece that begins there.
      const bool cuts = std::holds_alternative<SplitStep>(step) ||
                        std::holds_alternative<CharacterSplitStep>(step) ||
                        std::holds_alternative<WordsStep>(step);
      if (i == 0 && cuts && (before == next.size() || next[0].data() != pieces[0].data())) {
        still_starts = false;
      }
    }
    starts = still_starts;
    std::swap(pieces, next);
  }
  return pieces;
}

}  // namespace wideep::tokenizer
