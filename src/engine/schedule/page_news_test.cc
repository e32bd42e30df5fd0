// SPDX-License-Identifier: Apache-2.0
//
// Random work with a store beside the scheduler, as the engine has it: what the news say is kept is
// copied there, and pages of prompts are lent, filled from there and imported. Each place in a page
// stands for a hash of the salt and of all tokens up to it, so that a page of another text, of
// another salt, or one that nobody has filled, is found when it is attended to; and so is a copy
// that is not what its name says. The changes, replayed, are what the cache finds. A failure is an
// answer from another tenant's cache, a record with wrong bytes, or a page that is never free again.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "schedule/layout_testing.h"
#include "schedule/scheduler.h"

namespace wideep::engine {
namespace {

using kernels::kPageTokens;
using store::Name;

constexpr size_t kSumBytes = 64;  // of a state
const std::string kClass = "class";
const std::array<std::string, 3> kSalts = {"", "a", "b"};

uint64_t next_hash(uint64_t hash, int32_t token) {
  return hash * 1099511628211u + static_cast<uint64_t>(token) + 1;
}

uint64_t first_hash(const std::string& salt) { return salt.empty() ? 0 : 1000 + salt[0]; }

struct NewsCase {
  const char* name = "";
  int ranks = 1;
  bool roles_differ = false;
  CapacityPolicy policy = CapacityPolicy::kGuaranteedNoEvict;
  int state_slots = 0;
  int max_drafts = 0;
  int max_pages = 12;
};

// The ranks that share sequences, and what they have told.
class ToldWork {
 public:
  ToldWork(const NewsCase& param, uint32_t seed) : param_(param), rng_(seed) {
    const model::KvLayout kv = small_layout();
    page_bytes_ = kv.page_bytes();
    ContextPlace place{.size = param.ranks};
    for (int rank = 0; param.ranks > 1 && rank < param.ranks; ++rank) {
      place.caches.push_back(
          memory_.emplace_back(page_bytes_ * static_cast<size_t>(param.max_pages)).data());
    }
    const SchedulerLimits limits{.max_batch_size = 4,
                                 .max_num_tokens = 40 + below(150),
                                 .turn_pages = 1 + below(2),
                                 .max_pages = param.max_pages,
                                 .state_slots = param.state_slots,
                                 .draft_slots = param.state_slots * param.max_drafts,
                                 .policy = param.policy,
                                 .reuse_pages = true,
                                 .roles_differ = param.roles_differ,
                                 .record_class = kClass};
    for (; place.rank < param.ranks; ++place.rank) {
      ranks_.emplace_back(kv, limits, place, param.state_slots > 0 ? kSumBytes : 0);
    }
    for (const std::string& salt : kSalts) {
      contents_[store::root_name(kClass, salt)] = {first_hash(salt), 0, 0};
    }
    told_.resize(ranks_.size());
  }

  void run() {
    while (submitted_ < 30 || left_ > 0) {
      if (submitted_ < 30 && below(2) == 0) submit();
      if (submitted_ > 0 && below(25) == 0) cancel();
      if (below(3) == 0) lend();
      if (below(3) == 0) import(lent_.empty() || below(9) == 0 ? 12345 : any_ticket());
      if (below(60) == 0) take_back_lent();
      step();
      if (testing::Test::HasFatalFailure()) return;
      for (int i = 0; i < 3; ++i) compare_with_known(false);
    }
    check_the_end();
  }

  int64_t imported() const { return imported_; }
  int64_t copied() const { return copied_; }

 private:
  struct Text {
    std::vector<int32_t> tokens;
    std::string salt;
  };
  struct Content {
    uint64_t hash = 0;  // of the salt and all tokens
    uint64_t sum = 0;   // of the tokens: what a state has
    int pages = 0;
  };

  int below(int bound) { return static_cast<int>(rng_() % static_cast<uint32_t>(bound)); }

  Text text() {
    Text made = texts_.empty() ? Text{} : texts_[static_cast<size_t>(below(int(texts_.size())))];
    made.tokens.resize(std::min<size_t>(made.tokens.size(), 300));
    for (int i = 1 + below(90); i > 0; --i) made.tokens.push_back(below(2));
    made.salt = kSalts[static_cast<size_t>(below(3))];
    return made;
  }

  void submit() {
    const Text made = text();
    texts_.push_back(made);
    const Request request{.index = submitted_++,
                          .prompt = made.tokens,
                          .max_tokens = 1 + below(120),
                          .salt = made.salt,
                          .turn_begin = below(int(made.tokens.size()))};
    for (Scheduler& rank : ranks_) {
      ASSERT_TRUE(rank.submit(request).ok());
    }
    ++left_;
  }

  void cancel() {
    const int index = below(submitted_);
    int ended = 0;
    for (Scheduler& rank : ranks_) ended += rank.cancel(index) ? 1 : 0;
    ASSERT_TRUE(ended == 0 || ended == int(ranks_.size()));
    // Whoever has ended before is not known any more.
    left_ = ranks_[0].num_requests();
  }

  std::vector<Name> names_of(const Text& text) const {
    std::vector<Name> names = {store::root_name(kClass, text.salt)};
    for (size_t end = kPageTokens; end < text.tokens.size(); end += kPageTokens) {
      const std::span<const int32_t, kPageTokens> tokens(&text.tokens[end - kPageTokens],
                                                         kPageTokens);
      names.push_back(store::page_name(names.back(), 0, tokens));
    }
    return names;
  }

  // Finds what is kept of a prompt beyond the cache, and has it filled in at once: it counts only
  // when it is imported.
  void lend() {
    const Text made =
        texts_.empty() ? text() : texts_[static_cast<size_t>(below(int(texts_.size())))];
    const std::vector<Name> names = names_of(made);
    const Scheduler::KnownPrefix known = ranks_[0].known(made.tokens, made.salt);
    int found = known.pages;
    while (found + 1 < int(names.size()) && pages_.contains(names[size_t(found) + 1])) ++found;
    while (param_.state_slots > 0 && found > 0 && !states_.contains(names[size_t(found)])) --found;
    const uint64_t ticket = ++last_ticket_;
    std::vector<std::optional<Scheduler::Lent>> all;
    const auto awaits_peer = below(2) == 0 ? std::optional(below(submitted_ + 1)) : std::nullopt;
    for (Scheduler& rank : ranks_) {
      all.push_back(rank.lend(ticket, made.tokens, made.salt, found, awaits_peer));
    }
    for (const auto& lent : all) {
      ASSERT_EQ(lent.has_value(), all[0].has_value());
      // All of the pages may be known, but not the state there.
      const bool lacks_state =
          param_.state_slots > 0 && std::ranges::find(known.states, found) == known.states.end();
      ASSERT_TRUE(!lent || found > known.pages || lacks_state);
      ASSERT_TRUE(!lent || lent->first == std::min(found, known.pages));
    }
    if (!all[0]) return;
    lent_[ticket] = found;
    for (int page = known.pages; page < found; ++page) {
      int owners = 0;
      for (const auto& lent : all) {
        std::byte* bytes = lent->pages.at(static_cast<size_t>(page - known.pages));
        if (bytes == nullptr) continue;
        ++owners;
        const auto& record = pages_.at(names[static_cast<size_t>(page) + 1]);
        std::memcpy(bytes, record.data(), record.size());
      }
      ASSERT_EQ(owners, 1);
    }
    ASSERT_EQ(all[0]->state != nullptr, param_.state_slots > 0);
    if (all[0]->state == nullptr) return;
    const auto& record = states_.at(names[static_cast<size_t>(found)]);
    std::memcpy(all[0]->state, record.data(), record.size());
  }

  uint64_t any_ticket() {
    auto lent = lent_.begin();
    std::advance(lent, below(int(lent_.size())));
    return lent->first;
  }

  void import(uint64_t ticket) {
    const auto lent = lent_.find(ticket);
    int pages = lent == lent_.end() ? 3 : lent->second;
    if (below(4) == 0) pages = below(pages + 1);
    for (Scheduler& rank : ranks_) rank.import(ticket, pages);
    if (lent == lent_.end()) return;
    lent_.erase(lent);
    imported_ += pages;
  }

  void take_back_lent() {
    for (Scheduler& rank : ranks_) rank.take_back_lent();
    lent_.clear();
  }

  void step() {
    std::vector<Scheduler::Step*> steps;
    for (Scheduler& rank : ranks_) steps.push_back(&rank.schedule());
    for (size_t i = 1; i < ranks_.size(); ++i) {
      ASSERT_EQ(ranks_[i].record(), ranks_[0].record());
      ASSERT_EQ(steps[i]->num_tokens, steps[0]->num_tokens);
    }
    // Running requests have what they were promised, whatever is lent.
    const bool waits = param_.policy == CapacityPolicy::kMaxUtilization && !lent_.empty();
    if (ranks_[0].record().running > 0 && !waits) {
      ASSERT_GT(steps[0]->num_tokens, 0);
    }
    if (below(7) == 0) {
      std::vector<int> ended;
      for (Scheduler& rank : ranks_) ended = rank.give_up_step();
      left_ -= int(ended.size());
    } else {
      compute(steps);
      if (testing::Test::HasFatalFailure()) return;
      for (size_t i = 0; i < ranks_.size(); ++i) follow_up(i, *steps[i]);
      left_ = ranks_[0].num_requests();
    }
    replay();
  }

  // The tokens of all ranks are written, then each sees all before it.
  void compute(const std::vector<Scheduler::Step*>& steps) {
    std::map<const Sequence*, std::vector<uint64_t>> hashes;
    for (const Scheduler::Step* step : steps) {
      for (int t = step->batch.num_tokens() - 1; t >= 0; --t) {
        const Sequence* sequence = step->owners[static_cast<size_t>(t)];
        const int position = step->batch.positions[t];
        std::vector<uint64_t>& all = hashes[sequence];
        if (all.empty()) all = hashes_of(*sequence, position + 1);
        slot(sequence->pages, position) = all[static_cast<size_t>(position)];
      }
      for (int t = 0; param_.state_slots > 0 && t < step->batch.num_tokens(); ++t) {
        advance(*step, t);
      }
    }
    for (const auto& [sequence, all] : hashes) {
      for (size_t p = 0; p < all.size(); ++p) {
        ASSERT_EQ(slot(sequence->pages, int(p)), all[p]) << sequence->request.index << " at " << p;
      }
    }
  }

  std::vector<uint64_t> hashes_of(const Sequence& sequence, int end) const {
    std::vector<uint64_t> hashes;
    uint64_t hash = first_hash(sequence.request.salt);
    for (int p = 0; p < end; ++p) {
      const bool has_role = param_.roles_differ && p >= sequence.prompt_length();
      hash = next_hash(hash, sequence.token_at(p) + (has_role ? 100 : 0));
      hashes.push_back(hash);
    }
    return hashes;
  }

  static uint64_t& slot(const model::PageList& pages, int position) {
    return reinterpret_cast<uint64_t*>(
        pages[static_cast<size_t>(position / kPageTokens)])[position % kPageTokens];
  }

  static void advance(const Scheduler::Step& step, int t) {
    auto* state = reinterpret_cast<uint64_t*>(step.batch.states[t]);
    ASSERT_EQ(state[1], static_cast<uint64_t>(step.batch.positions[t]));
    uint64_t sum = 0;
    for (int p = 0; p < step.batch.positions[t]; ++p) {
      sum = next_hash(sum, step.owners[t]->token_at(p));
    }
    ASSERT_EQ(state[0], sum);
    state[0] = next_hash(sum, step.batch.ids[t]);
    ++state[1];
    if (step.batch.saved_states[t] == nullptr) return;
    std::memcpy(step.batch.saved_states[t], state, kSumBytes);
  }

  static int32_t token_after(const Sequence& sequence, int ahead) {
    return (sequence.tokens[0] + (sequence.num_generated() + ahead) / 5) % 2;
  }

  // The right ones of its drafts and one token more, alike on all ranks; then new drafts, of which
  // some are wrong.
  void follow_up(size_t rank, const Scheduler::Step& step) {
    for (Sequence* sequence : std::vector(step.sampled)) {
      const int most = sequence->request.max_tokens - sequence->num_generated();
      std::vector<int32_t> tokens = {token_after(*sequence, 0)};
      for (int i = 0; i < sequence->num_verifying && int(tokens.size()) < most; ++i) {
        if (sequence->cancelled || tokens.back() != sequence->drafts[size_t(i)]) break;
        tokens.push_back(token_after(*sequence, i + 1));
      }
      const auto count = static_cast<int>(tokens.size());
      std::vector<int32_t> drafts;
      for (int i = 0; i < std::min(most - count - 1, param_.max_drafts); ++i) {
        const bool is_wrong = (sequence->request.index + sequence->num_generated() + i) % 9 == 0;
        drafts.push_back(token_after(*sequence, count + i) + (is_wrong ? 1 : 0));
      }
      ranks_[rank].append(*sequence, tokens, drafts);
      if (count < most && !sequence->cancelled) continue;
      if (rank == 0) texts_.push_back({sequence->tokens, sequence->request.salt});
      ranks_[rank].finish(sequence);
    }
  }

  // Copies what is kept, and follows the changes.
  void replay() {
    std::vector<PageNews> all;
    for (Scheduler& rank : ranks_) all.push_back(rank.take_news());
    std::set<Name> kept;  // over all ranks each page once
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      ASSERT_EQ(all[rank].changes.size(), all[0].changes.size());
      for (size_t i = 0; i < all[rank].changes.size(); ++i) {
        ASSERT_EQ(all[rank].changes[i].name, all[0].changes[i].name);
        ASSERT_EQ(all[rank].changes[i].is_known, all[0].changes[i].is_known);
      }
      for (const PageChange& change : all[rank].changes) follow(change, told_[rank]);
      for (const KeptBytes& each : all[rank].kept) {
        if (each.head.kind == store::Kind::kPage) {
          ASSERT_TRUE(kept.insert(each.head.name).second);
        }
        copy(each);
      }
    }
  }

  void follow(const PageChange& change, std::set<Name>& told) {
    if (!change.is_known) {
      ASSERT_EQ(told.erase(change.name), 1u);
      return;
    }
    ASSERT_TRUE(told.insert(change.name).second);
    ASSERT_TRUE(change.page == 0 || told.contains(change.before));
    Content content = contents_.at(change.before);
    ASSERT_EQ(content.pages, change.page);
    ASSERT_EQ(change.is_salted, is_salted_.contains(change.before) ||
                                    change.before == store::root_name(kClass, "a") ||
                                    change.before == store::root_name(kClass, "b"));
    if (change.is_salted) is_salted_.insert(change.name);
    for (const int32_t token : change.tokens) {
      content.hash = next_hash(content.hash, token);
      content.sum = next_hash(content.sum, token);
    }
    ++content.pages;
    contents_[change.name] = content;
  }

  void copy(const KeptBytes& kept) {
    const bool is_page = kept.head.kind == store::Kind::kPage;
    std::vector<std::byte> bytes(is_page ? page_bytes_ : kSumBytes);
    std::memcpy(bytes.data(), kept.bytes, bytes.size());
    if (!kept.is_intact()) return;
    // A snapshot may come before its page is told: the state is kept at once.
    Content content = contents_.at(kept.head.before);
    for (const int32_t token : kept.head.tokens) {
      content.hash = next_hash(content.hash, token);
      content.sum = next_hash(content.sum, token);
    }
    ASSERT_EQ(kept.head.name, store::page_name(kept.head.before, 0, kept.head.tokens));
    ASSERT_EQ(kept.head.page, static_cast<uint32_t>(content.pages));
    const auto* words = reinterpret_cast<const uint64_t*>(bytes.data());
    ASSERT_EQ(is_page ? words[kPageTokens - 1] : words[0], is_page ? content.hash : content.sum);
    if (!is_page) {
      ASSERT_EQ(words[1], uint64_t(content.pages + 1) * kPageTokens);
    }
    (is_page ? pages_ : states_)[kept.head.name] = std::move(bytes);
    ++copied_;
  }

  // What the present step enters is known, but not told yet.
  void compare_with_known(bool is_idle) {
    for (const Text& text : is_idle ? texts_ : std::vector{this->text()}) {
      const std::vector<Name> names = names_of(text);
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        const Scheduler::KnownPrefix known = ranks_[rank].known(text.tokens, text.salt);
        int told = 0;
        while (told + 1 < int(names.size()) && told_[rank].contains(names[size_t(told) + 1])) {
          ++told;
        }
        ASSERT_LE(told, known.pages);
        if (is_idle) {
          ASSERT_EQ(told, known.pages);
        }
        ASSERT_EQ(known.pages, ranks_[0].known(text.tokens, text.salt).pages);
      }
    }
  }

  void check_the_end() {
    take_back_lent();
    for (Scheduler& rank : ranks_) {
      rank.schedule();  // of nothing: it counts pages, and tells what was computed last
      EXPECT_EQ(rank.record().cache_pages, 0);
      EXPECT_EQ(rank.num_requests(), 0);
    }
    replay();
    compare_with_known(true);
    EXPECT_FALSE(told_[0].empty());
  }

  NewsCase param_;
  std::mt19937 rng_;
  size_t page_bytes_ = 0;
  std::deque<std::vector<std::byte>> memory_;
  std::deque<Scheduler> ranks_;
  std::vector<Text> texts_;
  int submitted_ = 0, left_ = 0;
  uint64_t last_ticket_ = 0;
  std::map<uint64_t, int> lent_;      // how many first pages each ticket may import
  std::vector<std::set<Name>> told_;  // [ranks] what is known, by the news
  std::map<Name, Content> contents_;
  std::set<Name> is_salted_;
  std::map<Name, std::vector<std::byte>> pages_, states_;  // what is kept elsewhere
  int64_t imported_ = 0, copied_ = 0;
};

class PageNewsWork : public testing::TestWithParam<NewsCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, PageNewsWork,
    testing::Values(
        NewsCase{.name = "guaranteed"},
        NewsCase{.name = "max_utilization", .policy = CapacityPolicy::kMaxUtilization},
        NewsCase{.name = "roles", .roles_differ = true, .policy = CapacityPolicy::kMaxUtilization},
        NewsCase{.name = "drafts", .max_drafts = 40},
        NewsCase{.name = "many_pages", .max_pages = 40},
        NewsCase{.name = "states", .state_slots = 6, .max_pages = 20},
        NewsCase{.name = "few_states_and_drafts",
                 .policy = CapacityPolicy::kMaxUtilization,
                 .state_slots = 3,
                 .max_drafts = 6},
        NewsCase{.name = "context_parallel", .ranks = 2, .max_pages = 8},
        NewsCase{.name = "context_parallel_pauses",
                 .ranks = 3,
                 .roles_differ = true,
                 .policy = CapacityPolicy::kMaxUtilization,
                 .max_pages = 7}),
    [](const auto& each) { return each.param.name; });

TEST_P(PageNewsWork, ReplayedIsWhatTheCacheHas) {
  int64_t imported = 0, copied = 0;
  for (uint32_t seed = 30; seed < 38; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ToldWork work(GetParam(), seed);
    work.run();
    if (HasFailure()) return;
    imported += work.imported();
    copied += work.copied();
  }
  EXPECT_GT(imported, 0);
  EXPECT_GT(copied, 100);
}

}  // namespace
}  // namespace wideep::engine
