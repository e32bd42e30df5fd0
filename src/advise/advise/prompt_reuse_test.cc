// SPDX-License-Identifier: Apache-2.0
#include "advise/prompt_reuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>
#include <vector>

namespace wideep::advise {
namespace {

// A cache of so many pages, each told by all tokens up to its end.
class SlowCache {
 public:
  explicit SlowCache(size_t room) : room_(room) {}
  int64_t add(const std::vector<int32_t>& prompt) {
    const size_t pages = (prompt.size() - 1) / store::kPageTokens;
    size_t found = 0;
    while (found < pages && std::ranges::find(kept_, page(prompt, found)) != kept_.end()) ++found;
    for (size_t i = pages; i-- > 0;) {
      kept_.remove(page(prompt, i));
      kept_.push_back(page(prompt, i));
    }
    while (kept_.size() > room_) kept_.pop_front();
    return static_cast<int64_t>(found * store::kPageTokens);
  }

 private:
  static std::vector<int32_t> page(const std::vector<int32_t>& prompt, size_t number) {
    const auto end = static_cast<std::ptrdiff_t>((number + 1) * store::kPageTokens);
    return {prompt.begin(), prompt.begin() + end};
  }
  size_t room_;
  std::list<std::vector<int32_t>> kept_;
};

TEST(PromptReuse, FindsWhatACacheOfThatSizeFinds) {
  std::mt19937 random(3);
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 120; ++i) {
    std::vector<int32_t> prompt;
    if (!prompts.empty() && random() % 4 != 0) {
      prompt = prompts[random() % prompts.size()];
      prompt.resize(random() % prompt.size() + 1);
    }
    prompt.resize(prompt.size() + random() % 200 + 1, static_cast<int32_t>(random() % 5));
    prompts.push_back(prompt);
  }
  PromptReuse reuse;
  int64_t tokens = 0;
  for (const auto& prompt : prompts) {
    reuse.add(prompt);
    tokens += static_cast<int64_t>(prompt.size());
  }
  EXPECT_EQ(reuse.tokens(), tokens);
  for (const int64_t room : {0, 1, 3, 10, 40, 100, 1'000}) {
    SlowCache cache(static_cast<size_t>(room));
    int64_t found = 0;
    for (const auto& prompt : prompts) found += cache.add(prompt);
    EXPECT_EQ(reuse.found_tokens(room), found) << room;
  }
  EXPECT_EQ(reuse.found_tokens(reuse.num_pages()), reuse.found_tokens(1 << 30));
}

TEST(PromptReuse, ThePageOfTheLastTokenIsComputed) {
  PromptReuse reuse;
  reuse.add(std::vector<int32_t>(64, 1));
  reuse.add(std::vector<int32_t>(64, 1));
  EXPECT_EQ(reuse.num_pages(), 0);
  reuse.add(std::vector<int32_t>(65, 1));
  reuse.add(std::vector<int32_t>(65, 1));
  EXPECT_EQ(reuse.found_tokens(1), 64);
}

TEST(PromptReuse, RowsEndWhereAllHasRoom) {
  PromptReuse reuse;
  reuse.add(std::vector<int32_t>(641, 1));
  reuse.add(std::vector<int32_t>(641, 1));
  const auto rows = reuse_rows(reuse, 100'000'000, 0.5);  // 10 pages: 1 GB
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].bytes, 250'000'000u);
  EXPECT_DOUBLE_EQ(rows[0].share, 128.0 / 1282.0);  // the first two pages
  EXPECT_EQ(rows[2].bytes, 1'000'000'000u);
  EXPECT_DOUBLE_EQ(rows[2].share, 640.0 / 1282.0);
  EXPECT_DOUBLE_EQ(rows[2].seconds, 320.0);
  EXPECT_NE(reuse_text(rows).find("320.0 s a GB"), std::string::npos);
}

}  // namespace
}  // namespace wideep::advise
