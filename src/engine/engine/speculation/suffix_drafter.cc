// SPDX-License-Identifier: Apache-2.0
//
// Each running text has an automaton of its own, and a place in those of earlier texts. The longer
// match of the two drafts; the own text wins ties.
//
// An automaton cannot forget a text. So earlier texts are in two of them, an old and a young one,
// and the memory is kept by dropping the old one as a whole. A place in the young one stays valid
// when that becomes the old one (generation_); older places begin at the root.
//
// Indexing is bounded per step, so that a long prompt delays no other request's tokens; until it is
// done, the request has no drafts.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "engine/speculation/drafter.h"
#include "engine/speculation/suffix_automaton.h"

namespace wideep::engine {
namespace {

// What is indexed of a text in one step, and of a text that has ended: about a millisecond's work.
constexpr size_t kMaxAtOnce = 4096;

// The ends of earlier texts, prompts and answers: two automata, of which the younger grows. When it
// has half of the memory, the older one goes.
class EarlierTexts {
 public:
  explicit EarlierTexts(size_t max_bytes) : half_bytes_(max_bytes / 2) {}

  struct Place {
    uint64_t generation = 0;
    SuffixAutomaton::Cursor young, old;
  };

  void advance(Place& place, int32_t token) const {
    catch_up(place);
    young_->advance(place.young, token);
    if (old_ != nullptr) old_->advance(place.old, token);
  }

  void expect(const Place& place, int32_t token, bool late) const {
    if (place.generation != generation_) return;
    for (const auto& [texts, cursor] :
         {std::pair(young_.get(), place.young), {old_.get(), place.old}}) {
      if (texts == nullptr) continue;
      texts->expect(cursor.state, token, late);
      if (cursor.state != SuffixAutomaton::kRoot)
        texts->expect(SuffixAutomaton::kRoot, token, late);
    }
  }

  // What follows the place's longest known end; its length in tokens.
  std::pair<std::span<const int32_t>, int> continuation(Place& place, int max) const {
    catch_up(place);
    const bool in_old = old_ != nullptr && place.old.length > place.young.length;
    const SuffixAutomaton::Cursor& cursor = in_old ? place.old : place.young;
    if (cursor.state == SuffixAutomaton::kRoot) return {};
    return {(in_old ? *old_ : *young_).continuation(cursor.state, max), cursor.length};
  }

  void add(std::span<const int32_t> text) {
    if (half_bytes_ == 0) return;
    young_->begin_text();
    for (const int32_t token : text.last(std::min(text.size(), kMaxAtOnce))) {
      young_->append(token);
      if (young_->bytes() < half_bytes_) continue;
      old_ = std::exchange(young_, std::make_unique<SuffixAutomaton>());
      ++generation_;
    }
  }

  size_t bytes() const { return young_->bytes() + (old_ != nullptr ? old_->bytes() : 0); }

 private:
  void catch_up(Place& place) const {
    if (place.generation == generation_) return;
    place.old = place.generation + 1 == generation_ ? place.young : SuffixAutomaton::Cursor();
    place.young = {};
    place.generation = generation_;
  }

  size_t half_bytes_;
  std::unique_ptr<SuffixAutomaton> young_ = std::make_unique<SuffixAutomaton>(), old_;
  uint64_t generation_ = 0;
};

// Beyond the end of the text a repetition goes on repeating.
std::vector<int32_t> repeated(std::span<const int32_t> tokens, int max) {
  std::vector<int32_t> draft(tokens.begin(), tokens.end());
  while (!tokens.empty() && static_cast<int>(draft.size()) < max) {
    draft.push_back(draft[draft.size() - tokens.size()]);
  }
  return draft;
}

class SuffixDrafter : public Drafter {
 public:
  explicit SuffixDrafter(size_t max_bytes) : earlier_(max_bytes) {}

  Draft draft(int request, std::span<const int32_t> more, int max) override {
    Text& text = texts_[request];
    text.tokens.insert(text.tokens.end(), more.begin(), more.end());
    // The index of a long prompt is made over several steps.
    const size_t end = std::min(text.tokens.size(), text.indexed + kMaxAtOnce);
    for (; text.indexed < end; ++text.indexed) {
      text.own.append(text.tokens[text.indexed]);
      earlier_.advance(text.place, text.tokens[text.indexed]);
    }
    if (max <= 0 || text.indexed < text.tokens.size()) return {};
    const SuffixAutomaton::State own = text.own.repeated();
    const auto [others, length] = earlier_.continuation(text.place, max);
    const int own_length = own == SuffixAutomaton::kRoot ? 0 : text.own.length(own);
    if (own_length > 0 && (own_length >= length || others.empty())) {
      return {repeated(text.own.continuation(own, max), max), own_length};
    }
    return {{others.begin(), others.end()}, length};
  }

  void expect(int request, int32_t token, bool late) const override {
    const auto text = texts_.find(request);
    if (text == texts_.end()) return;
    text->second.own.expect(text->second.own.present(), token, late);
    earlier_.expect(text->second.place, token, late);
  }

  void end(int request) override {
    const auto text = texts_.find(request);
    if (text == texts_.end()) return;
    earlier_.add(text->second.tokens);
    texts_.erase(text);
  }

  size_t bytes() const override {
    size_t sum = earlier_.bytes();
    for (const auto& [request, text] : texts_) {
      sum += text.own.bytes() + text.tokens.size() * sizeof(int32_t);
    }
    return sum;
  }

 private:
  struct Text {
    SuffixAutomaton own;
    EarlierTexts::Place place;
    std::vector<int32_t> tokens;
    size_t indexed = 0;  // of these
  };
  EarlierTexts earlier_;
  std::unordered_map<int, Text> texts_;  // by request
};

}  // namespace

std::unique_ptr<Drafter> suffix_drafter(size_t max_bytes) {
  return std::make_unique<SuffixDrafter>(max_bytes);
}

}  // namespace wideep::engine
