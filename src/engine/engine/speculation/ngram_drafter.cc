// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>

#include "engine/speculation/drafter.h"

namespace wideep::engine {
namespace {

// What is added in one step for a request, so that a long prompt delays nobody: about a
// millisecond.
constexpr size_t kMaxPatterns = 8192;

class NgramDrafter : public Drafter {
 public:
  NgramDrafter(const NgramOptions& options, bool is_public, int max_running)
      : options_(options), shared_(options), is_public_(is_public) {
    if (!is_public) options_.max_bytes /= static_cast<size_t>(std::max(1, max_running));
  }

  Draft draft(int request, std::span<const int32_t> more, int max) override {
    Text& text = texts_[request];
    text.tokens.insert(text.tokens.end(), more.begin(), more.end());
    if (max <= 0) return {};
    if (!is_public_ && text.pool == nullptr) text.pool = std::make_unique<NgramPool>(options_);
    NgramPool& pool = is_public_ ? shared_ : *text.pool;
    // The next add() begins where matches were cut short by the end of the text.
    const auto open =
        static_cast<size_t>(options_.max_draft_len + options_.max_matching_ngram_size - 1);
    const size_t max_at_once = open + kMaxPatterns / options_.max_matching_ngram_size;
    const size_t end = std::min(text.tokens.size(), text.start + max_at_once);
    pool.add(std::span(text.tokens).subspan(text.start, end - text.start));
    text.start = end - std::min(open, end);
    if (end < text.tokens.size()) return {};
    const NgramPool::Found found = pool.find(text.tokens);
    const auto count = std::min(found.tokens.size(), static_cast<size_t>(max));
    return {{found.tokens.begin(), found.tokens.begin() + static_cast<std::ptrdiff_t>(count)},
            found.pattern_size};
  }

  void end(int request) override { texts_.erase(request); }

  size_t bytes() const override {
    size_t sum = shared_.bytes();
    for (const auto& [request, text] : texts_) {
      sum += text.tokens.size() * sizeof(int32_t);
      if (text.pool != nullptr) sum += text.pool->bytes();
    }
    return sum;
  }

 private:
  struct Text {
    std::vector<int32_t> tokens;
    size_t start = 0;                 // what is before it has been added whole
    std::unique_ptr<NgramPool> pool;  // if pools are private
  };
  NgramOptions options_;  // of private pools
  NgramPool shared_;
  bool is_public_;
  std::unordered_map<int, Text> texts_;  // by request
};

}  // namespace

std::unique_ptr<Drafter> ngram_drafter(const NgramOptions& options, bool is_public,
                                       int max_running) {
  return std::make_unique<NgramDrafter>(options, is_public, max_running);
}

}  // namespace wideep::engine
