// SPDX-License-Identifier: Apache-2.0
#include "run/prompt_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/scratch_directory.h"
#include "base/shared_bytes.h"
#include "store/directory.h"
#include "store/host_tier.h"
#include "store/page_peer.h"
#include "store/page_server.h"

namespace wideep::run {
namespace {

using std::chrono::milliseconds;
using store::kPageTokens;

constexpr uint64_t kPageBytes = 512, kStateBytes = 128;

// Collects what is sent to the front.
class Inbox : public transport::Messenger {
 public:
  Status send(std::string_view message) const override {
    const std::lock_guard lock(mutex_);
    events_.push_back(decode(message));
    came_.notify_all();
    return {};
  }
  // The next event of the kind; those of others stay.
  template <typename T>
  std::optional<T> next(milliseconds at_most = milliseconds(10'000)) {
    std::unique_lock lock(mutex_);
    std::optional<T> found;
    came_.wait_for(lock, at_most, [&] {
      const auto place = std::ranges::find_if(
          events_, [](const RankEvent& each) { return std::holds_alternative<T>(each); });
      if (place == events_.end()) return false;
      found = std::get<T>(*place);
      events_.erase(place);
      return true;
    });
    return found;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable came_;
  mutable std::vector<RankEvent> events_;
};

// Holds every call until it is opened.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    is_reached_ = true;
    opened_.notify_all();
    opened_.wait(lock, [this] { return is_open_; });
  }
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return is_reached_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false, is_reached_ = false;
};

class GatedPlace : public store::Place {
 public:
  GatedPlace(std::unique_ptr<store::Place> place, Gate* finds, Gate* fetches)
      : place_(std::move(place)), finds_(finds), fetches_(fetches) {}
  std::string_view label() const override { return place_->label(); }
  std::vector<bool> find(std::span<const store::Head> heads) override {
    if (finds_ != nullptr) finds_->pass();
    return place_->find(heads);
  }
  Status fetch(std::span<const store::FetchOrder> orders,
               const std::function<bool(size_t, store::FetchResult)>& done) override {
    if (fetches_ != nullptr) fetches_->pass();
    return place_->fetch(orders, done);
  }
  store::OfferResult offer(const store::Head& head, std::span<const std::byte> payload,
                           double seconds, const std::function<bool()>& is_intact) override {
    return place_->offer(head, payload, seconds, is_intact);
  }
  void forget(const store::Name& name, store::Kind kind) override { place_->forget(name, kind); }
  store::PlaceCounts counts() const override { return place_->counts(); }
  store::PlaceSize size() override { return place_->size(); }

 private:
  std::unique_ptr<store::Place> place_;
  Gate* finds_;
  Gate* fetches_;
};

// Takes 10 ms for each offer.
class SlowPlace final : public GatedPlace {
 public:
  explicit SlowPlace(std::unique_ptr<store::Place> place)
      : GatedPlace(std::move(place), nullptr, nullptr) {}
  store::OfferResult offer(const store::Head& head, std::span<const std::byte> payload,
                           double seconds, const std::function<bool()>& is_intact) override {
    std::this_thread::sleep_for(milliseconds(10));
    return GatedPlace::offer(head, payload, seconds, is_intact);
  }
};

std::vector<int32_t> tokens_of(int pages) {
  std::vector<int32_t> tokens(static_cast<size_t>(pages) * kPageTokens + 1);
  std::iota(tokens.begin(), tokens.end(), 7);
  return tokens;
}

// Pages of the engine's cache for a prompt, with names, as the scheduler has them.
struct Cache {
  explicit Cache(const std::vector<int32_t>& tokens, const std::string& salt = "") {
    store::PageWalk walk("class", salt, tokens);
    while (const auto head = walk.next()) heads.push_back(*head);
    bytes.resize(heads.size(), std::vector<std::byte>(kPageBytes));
    states.resize(heads.size(), std::vector<std::byte>(kStateBytes));
  }
  void fill() {
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::memset(bytes[i].data(), static_cast<int>(i) + 1, kPageBytes);
      std::memset(states[i].data(), static_cast<int>(i) + 101, kStateBytes);
    }
  }
  std::vector<engine::KeptBytes> kept() {
    std::vector<engine::KeptBytes> all;
    for (size_t i = 0; i < heads.size(); ++i) {
      all.push_back({.head = heads[i], .bytes = bytes[i].data(), .version = &version});
    }
    return all;
  }
  engine::KeptBytes kept_state(size_t page) {
    store::Head head = heads[page];
    head.kind = store::Kind::kState;
    return {.head = head, .bytes = states[page].data(), .version = &version};
  }
  engine::PageFetch fetch(uint64_t ticket, int first, int end, bool with_state = false) {
    engine::PageFetch fetch{.ticket = ticket, .first = first, .pages = {}};
    for (int i = first; i < end; ++i) fetch.pages.push_back(bytes[static_cast<size_t>(i)].data());
    if (with_state) fetch.state = states[static_cast<size_t>(end) - 1].data();
    return fetch;
  }
  std::vector<store::Head> heads;
  std::vector<std::vector<std::byte>> bytes, states;
  engine::Version version;
};

std::unique_ptr<store::Place> place_on_disk(const std::string& path) {
  auto directory = store::Directory::open(
      {.path = path, .max_bytes = uint64_t{16} << 20, .record_class = "class"});
  EXPECT_TRUE(directory.ok()) << directory.status().message();
  return std::move(directory).value();
}

class PromptStoreTest : public ::testing::Test {
 protected:
  PromptStoreTest() {
    auto memory = store::HostTier::create_memory(uint64_t{16} << 20);
    EXPECT_TRUE(memory.ok());
    memory_ = std::move(memory).value();
  }
  // Another rank of the same node, say.
  std::unique_ptr<PromptStore> open(bool keeps_states = false, Gate* finds = nullptr,
                                    Gate* fetches = nullptr, bool keeps_pages = true,
                                    PromptStore::Share of_pages = {}) {
    auto tier = store::HostTier::open(memory_);
    EXPECT_TRUE(tier.ok());
    return open_over(std::make_unique<GatedPlace>(std::move(tier).value(), finds, fetches),
                     keeps_states, keeps_pages, of_pages);
  }
  std::unique_ptr<PromptStore> open_over(std::unique_ptr<store::Place> place,
                                         bool keeps_states = false, bool keeps_pages = true,
                                         PromptStore::Share of_pages = {}) {
    std::vector<store::ListedPlace> places;
    places.push_back(
        {.place = std::move(place), .expected = store::kHostPrice, .takes_hits = takes_hits_});
    PageGeometry geometry{.record_class = "class",
                          .page_bytes = page_bytes_,
                          .page = keeps_pages ? store::Part::whole(page_bytes_) : store::Part(),
                          .state = {}};
    if (keeps_states) {
      geometry.state_bytes = kStateBytes;
      geometry.state = store::Part::whole(kStateBytes);
    }
    return std::make_unique<PromptStore>(
        PromptStore::Parts{.rank = 3,
                           .keeps_states = keeps_states,
                           .geometry = geometry,
                           .places = store::Places(std::move(places)),
                           .processors = {},
                           .of_pages = of_pages,
                           .sends_pages = is_apart_,
                           .sends_states = is_apart_},
        inbox_);
  }
  // Until all that is offered is kept or refused.
  static void keep(PromptStore& store, std::vector<engine::KeptBytes> offered) {
    store.offer(std::move(offered), 1e-3);
    EXPECT_EQ(store.flush(milliseconds(10'000)), 0u);
  }
  PagesFound look(PromptStore& store, uint64_t ticket, const std::vector<int32_t>& tokens,
                  int known = 0, std::vector<int32_t> states = {}, const std::string& peer = "") {
    store.look({.ticket = ticket,
                .prompt = engine::SharedTokens(tokens),
                .salt = "",
                .peer = peer,
                .known = known,
                .states = std::move(states)});
    const auto found = inbox_.next<PagesFound>();
    EXPECT_TRUE(found);
    return found.value_or(PagesFound());
  }

  Inbox inbox_;
  base::SharedBytes memory_;
  // Of those that are opened.
  bool is_apart_ = false;  // from the front's node
  bool takes_hits_ = false;
  uint64_t page_bytes_ = kPageBytes;
};

TEST_F(PromptStoreTest, WhatWasOfferedIsFoundAndFetched) {
  const std::vector<int32_t> tokens = tokens_of(5);
  Cache written(tokens);
  written.fill();
  const auto store = open();
  EXPECT_EQ(look(*store, 1, tokens).found, 0);
  keep(*store, written.kept());

  const auto other = open();
  const PagesFound found = look(*other, 2, tokens);
  EXPECT_EQ(found.ticket, 2u);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.known, 0);
  EXPECT_EQ(found.found, 5);
  EXPECT_TRUE(found.is_stateless);
  EXPECT_GT(found.seconds, 0.0);

  Cache read(tokens);
  other->fetch(read.fetch(2, 0, 5));
  const auto fetched = inbox_.next<PagesFetched>();
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->pages, 5);
  EXPECT_EQ(fetched->bytes, 5 * kPageBytes);
  EXPECT_EQ(read.bytes, written.bytes);
}

TEST_F(PromptStoreTest, WhatTheCacheHasIsNotFetched) {
  const std::vector<int32_t> tokens = tokens_of(5);
  Cache written(tokens);
  written.fill();
  const auto store = open();
  keep(*store, written.kept());
  const PagesFound found = look(*store, 1, tokens, 2);
  EXPECT_EQ(found.known, 2);
  EXPECT_EQ(found.found, 5);
  Cache read(tokens);
  engine::PageFetch fetch = read.fetch(1, 2, 5);
  fetch.pages[1] = nullptr;  // lies on another rank
  store->fetch(fetch);
  EXPECT_EQ(inbox_.next<PagesFetched>()->pages, 5);
  EXPECT_EQ(read.bytes[2], written.bytes[2]);
  EXPECT_EQ(read.bytes[3], std::vector<std::byte>(kPageBytes));
  EXPECT_EQ(read.bytes[4], written.bytes[4]);
}

TEST_F(PromptStoreTest, RanksWithTheSameBytesShareTheOffers) {
  constexpr uint32_t kRow = PromptStore::kPagesInRow;
  const std::vector<int32_t> tokens = tokens_of(2 * kRow);
  Cache written(tokens);
  for (int index = 0; index < 2; ++index) {
    const auto store = open(false, nullptr, nullptr, true, {.index = index, .count = 2});
    keep(*store, written.kept());
    uint64_t taken = 0;
    while (taken < kRow) {
      const auto state = inbox_.next<StoreState>();
      ASSERT_TRUE(state);
      taken = state->tiers[0].counts.taken;
    }
    EXPECT_EQ(taken, kRow);
    EXPECT_EQ(look(*store, 1, tokens).found, static_cast<int>(kRow) * (index + 1));
  }
}

TEST_F(PromptStoreTest, OtherSaltsAndOtherTokensFindNothing) {
  const std::vector<int32_t> tokens = tokens_of(2);
  Cache salted(tokens, "a tenant");
  const auto store = open();
  keep(*store, salted.kept());
  EXPECT_EQ(look(*store, 1, tokens).found, 0);
  store->look({.ticket = 2, .prompt = engine::SharedTokens(tokens), .salt = "a tenant"});
  EXPECT_EQ(inbox_.next<PagesFound>()->found, 2);
}

// A page that has changed before it could be offered is not kept.
TEST_F(PromptStoreTest, ChangedBytesAreNotKept) {
  const std::vector<int32_t> tokens = tokens_of(2);
  Cache written(tokens);
  std::vector<engine::KeptBytes> kept = written.kept();
  written.version.change();
  const auto store = open();
  keep(*store, std::move(kept));
  EXPECT_EQ(look(*store, 1, tokens).found, 0);
}

// By an engine that needs the memory for other pages.
TEST_F(PromptStoreTest, ThreadsKeepNothingThatIsOverwritten) {
  constexpr int kRounds = 100, kPages = 4;
  const auto tokens_of_round = [](int round) {
    std::vector<int32_t> tokens = tokens_of(kPages);
    tokens[0] = 10'000 + round;
    return tokens;
  };
  const base::ScratchDirectory scratch;
  for (const bool is_on_disk : {false, true}) {
    SCOPED_TRACE(is_on_disk ? "disk" : "host");
    std::deque<Cache> caches;  // outlive the store
    const auto store = is_on_disk ? open_over(place_on_disk(scratch.path())) : open();
    for (int round = 0; round < kRounds; ++round) {
      Cache& written = caches.emplace_back(tokens_of_round(round));
      written.fill();
      store->offer(written.kept(), 1e-3);
      if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
      if (round == 1) EXPECT_EQ(store->flush(milliseconds(10'000)), 0u);  // of one, all is kept
      written.version.change();
      for (auto& bytes : written.bytes) std::memset(bytes.data(), 0xee, bytes.size());
    }
    EXPECT_EQ(store->flush(milliseconds(10'000)), 0u);
    int num_kept = 0;
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<int32_t> tokens = tokens_of_round(round);
      Cache expected(tokens), read(tokens);
      expected.fill();
      const auto ticket = static_cast<uint64_t>(round) + 1;
      look(*store, ticket, tokens);
      store->fetch(read.fetch(ticket, 0, kPages));
      const int pages = inbox_.next<PagesFetched>()->pages;
      for (size_t i = 0; i < static_cast<size_t>(pages); ++i) {
        EXPECT_EQ(read.bytes[i], expected.bytes[i]) << "round " << round;
      }
      num_kept += pages;
    }
    EXPECT_GT(num_kept, 0);
  }
}

// It is there already, and nearer places that take it there are none.
TEST_F(PromptStoreTest, WhatCameFromAPlaceIsNotOfferedToIt) {
  const std::vector<int32_t> tokens = tokens_of(2);
  Cache written(tokens);
  std::vector<engine::KeptBytes> kept = written.kept();
  for (engine::KeptBytes& each : kept) each.is_imported = true;
  const auto store = open();
  keep(*store, std::move(kept));
  EXPECT_EQ(look(*store, 1, tokens).found, 0);
}

// A server that generates takes its time for the copies; on others somebody waits for them.
TEST_F(PromptStoreTest, WhatCameFromElsewhereWaitsWhereTokensAreWaitedFor) {
  constexpr int kPages = 40;
  takes_hits_ = true;
  Cache written(tokens_of(kPages));
  const auto seconds_with = [&](engine::Role role) {
    memory_ = store::HostTier::create_memory(uint64_t{16} << 20).value();
    const auto store = open();
    store->prefer(role);
    std::vector<engine::KeptBytes> kept = written.kept();
    for (engine::KeptBytes& each : kept) each.is_imported = true;
    const auto tier = store::HostTier::open(memory_).value();
    store::Head last = written.heads.back();
    last.canonical_bytes = kPageBytes;
    last.part = store::Part::whole(kPageBytes);
    const auto begun = std::chrono::steady_clock::now();
    store->offer(std::move(kept), 1e-3);
    std::chrono::duration<double> passed{};
    while (!tier->find(std::span(&last, 1))[0] && passed < std::chrono::seconds(20)) {
      std::this_thread::sleep_for(milliseconds(2));
      passed = std::chrono::steady_clock::now() - begun;
    }
    return passed.count();
  };
  EXPECT_LT(seconds_with(engine::Role::kPrefill), 1.2);
  EXPECT_LT(seconds_with(engine::Role::kBoth), 1.2);
  EXPECT_GT(seconds_with(engine::Role::kDecode), 1.2);
}

TEST_F(PromptStoreTest, StatesAreFetchedWithTheirPages) {
  const std::vector<int32_t> tokens = tokens_of(4);
  Cache written(tokens);
  written.fill();
  const auto store = open(/*keeps_states=*/true);
  keep(*store, written.kept());
  keep(*store, {written.kept_state(2)});

  // The cache has one more page than it has a state for.
  const PagesFound found = look(*store, 1, tokens, 2, {1});
  EXPECT_EQ(found.known, 1);
  EXPECT_EQ(found.found, 4);
  EXPECT_FALSE(found.is_stateless);
  EXPECT_EQ(found.states, (std::vector<int32_t>{1, 3}));
  Cache read(tokens);
  store->fetch(read.fetch(1, 2, 3, true));
  EXPECT_EQ(inbox_.next<PagesFetched>()->pages, 3);
  EXPECT_EQ(read.bytes[2], written.bytes[2]);
  EXPECT_EQ(read.states[2], written.states[2]);

  // Without its state a fetch is of no use.
  look(*store, 2, tokens);
  store->fetch(read.fetch(2, 0, 4, true));
  EXPECT_EQ(inbox_.next<PagesFetched>()->pages, 0);
}

// A stage of a pipeline may have layers with states alone.
TEST_F(PromptStoreTest, ARankWithoutKeysAndValuesLacksNoPages) {
  const std::vector<int32_t> tokens = tokens_of(4);
  Cache written(tokens);
  written.fill();
  const auto store = open(/*keeps_states=*/true, nullptr, nullptr, /*keeps_pages=*/false);
  keep(*store, written.kept());
  keep(*store, {written.kept_state(2)});
  const PagesFound found = look(*store, 1, tokens);
  EXPECT_EQ(found.found, 4);
  EXPECT_EQ(found.states, (std::vector<int32_t>{3}));
  Cache read(tokens);
  engine::PageFetch fetch = read.fetch(1, 0, 3, true);
  std::ranges::fill(fetch.pages, nullptr);
  store->fetch(fetch);
  EXPECT_EQ(inbox_.next<PagesFetched>()->pages, 3);
  EXPECT_EQ(read.states[2], written.states[2]);
}

TEST_F(PromptStoreTest, AStateHasItsPrice) {
  const std::vector<int32_t> tokens = tokens_of(3);
  Cache written(tokens);
  const auto store = open(/*keeps_states=*/true);
  keep(*store, written.kept());
  const double without = look(*store, 1, tokens).seconds;
  keep(*store, {written.kept_state(2)});
  EXPECT_GT(look(*store, 2, tokens).seconds, without);
  EXPECT_GT(look(*store, 3, tokens, 3).seconds, 0.0);  // it is all that is missing
}

// Between a look and its fetch, the cache may drop what it had.
TEST_F(PromptStoreTest, WhatTheCacheHasDroppedSinceIsFetched) {
  const std::vector<int32_t> tokens = tokens_of(4);
  Cache written(tokens);
  written.fill();
  const auto store = open();
  keep(*store, written.kept());
  look(*store, 1, tokens, 2);
  Cache read(tokens);
  store->fetch(read.fetch(1, 1, 4));
  EXPECT_EQ(inbox_.next<PagesFetched>()->pages, 4);
  EXPECT_EQ(read.bytes[1], written.bytes[1]);
}

TEST_F(PromptStoreTest, WhatIsNotKnownIsAnsweredToo) {
  const auto store = open();
  Cache read(tokens_of(2));
  store->fetch(read.fetch(77, 0, 2));  // nobody has looked for it
  EXPECT_EQ(inbox_.next<PagesFetched>()->pages, 0);
  store->refuse(78);
  const auto refused = inbox_.next<PagesFetched>();
  EXPECT_EQ(refused->ticket, 78u);
  EXPECT_FALSE(refused->has_room);
  store->abandon(79);
}

TEST_F(PromptStoreTest, AFetchThatIsAbandonedEnds) {
  const std::vector<int32_t> tokens = tokens_of(3);
  Cache written(tokens);
  const auto writer = open();
  keep(*writer, written.kept());
  Gate gate;
  const auto store = open(false, nullptr, &gate);
  look(*store, 1, tokens);
  Cache read(tokens);
  store->fetch(read.fetch(1, 0, 3));
  gate.wait_until_reached();
  store->abandon(1);
  gate.open();
  const auto fetched = inbox_.next<PagesFetched>();
  ASSERT_TRUE(fetched);
  EXPECT_LT(fetched->pages, 3);
}

// Whoever ends the fetches may free the memory, and hears no more of them.
TEST_F(PromptStoreTest, NothingIsTouchedOrToldAfterTheEnd) {
  const std::vector<int32_t> tokens = tokens_of(3);
  Cache written(tokens);
  written.fill();
  const auto writer = open();
  keep(*writer, written.kept());
  Gate gate;
  const auto store = open(false, nullptr, &gate);
  look(*store, 1, tokens);
  auto read = std::make_unique<Cache>(tokens);
  store->fetch(read->fetch(1, 0, 3));
  gate.wait_until_reached();
  EXPECT_FALSE(store->end_fetches(milliseconds(20)).ok());  // it hangs
  gate.open();
  ASSERT_TRUE(store->end_fetches(milliseconds(10'000)).ok());
  read.reset();
  EXPECT_FALSE(inbox_.next<PagesFetched>(milliseconds(50)));
  // It works as before.
  EXPECT_EQ(look(*store, 2, tokens).found, 3);
}

TEST_F(PromptStoreTest, ALookBeyondTheBoundFindsWhatTheCacheHas) {
  Gate gate;
  const auto store = open(false, &gate, nullptr);
  const engine::SharedTokens tokens(tokens_of(2));
  for (size_t i = 0; i < PromptStore::kMaxAsked + 2; ++i) {
    store->look({.ticket = i + 1, .prompt = tokens, .salt = "", .known = 1});
  }
  const auto found = inbox_.next<PagesFound>();
  ASSERT_TRUE(found);
  EXPECT_GT(found->ticket, PromptStore::kMaxAsked);
  EXPECT_EQ(found->found, 1);
  gate.open();
}

TEST_F(PromptStoreTest, TheStateOfThePlacesIsTold) {
  const std::vector<int32_t> tokens = tokens_of(2);
  Cache written(tokens);
  const auto store = open();
  keep(*store, written.kept());
  for (int i = 0; i < 10; ++i) {
    const auto state = inbox_.next<StoreState>();
    ASSERT_TRUE(state);
    ASSERT_EQ(state->tiers.size(), 1u);
    EXPECT_EQ(state->tiers[0].name(), "host");
    EXPECT_EQ(state->rank, 3);
    if (state->tiers[0].counts.taken < 2) continue;
    EXPECT_EQ(state->tiers[0].size.records, 2u);
    return;
  }
  FAIL() << "the offers were never told";
}

// What it counts is what is added to this.
TEST_F(PromptStoreTest, AnotherFrontIsToldTheStateBeforeAnythingIsAdded) {
  Cache first(tokens_of(2)), second(tokens_of(3));
  const auto store = open();
  keep(*store, first.kept());
  for (std::optional<StoreState> state; !state || state->tiers[0].counts.taken < 2;) {
    state = inbox_.next<StoreState>();
    ASSERT_TRUE(state);
  }
  ASSERT_TRUE(store->end_fetches(milliseconds(10'000)).ok());
  keep(*store, second.kept());
  const auto state = inbox_.next<StoreState>();
  ASSERT_TRUE(state);
  EXPECT_EQ(state->tiers[0].counts.taken, 2u);
  const auto later = inbox_.next<StoreState>();
  ASSERT_TRUE(later);
  EXPECT_GT(later->tiers[0].counts.taken, 2u);
}

// ---- from a peer ----

using store::RequestState;
using testing::HasSubstr;

// Another server of the same process, with a memory of its own.
class PromptStoreFromPeerTest : public PromptStoreTest {
 protected:
  void SetUp() override {
    auto memory = store::HostTier::create_memory(uint64_t{16} << 20);
    ASSERT_TRUE(memory.ok());
    peer_memory_ = std::move(memory).value();
    auto server =
        store::PageServer::start({.address = transport::resolve("127.0.0.1", 0).value(),
                                  .token = "secret",
                                  .record_class = "class",
                                  .state_of =
                                      [this](std::string_view request) {
                                        return store::RequestStatus{.state = state_of(request)};
                                      },
                                  .counts = &counts_},
                                 peer_memory_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }
  // The peer has computed these pages, and states, if any.
  void compute(Cache& cache, size_t first, size_t end, const std::vector<size_t>& states = {}) {
    auto tier = store::HostTier::open(peer_memory_);
    ASSERT_TRUE(tier.ok());
    const auto peer = open_over(std::move(tier).value(), !states.empty());
    std::vector<engine::KeptBytes> kept = cache.kept();
    kept.erase(kept.begin() + static_cast<ptrdiff_t>(end), kept.end());
    kept.erase(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(first));
    for (const size_t page : states) kept.push_back(cache.kept_state(page));
    keep(*peer, std::move(kept));
  }
  void set(const std::string& request, RequestState state) {
    const std::lock_guard lock(mutex_);
    states_[request] = state;
  }
  std::string peer(const std::string& request = "r", const std::string& record_class = "class") {
    return store::text_of({.host = {"127.0.0.1", server_->address().port},
                           .token = "secret",
                           .record_class = record_class,
                           .request = request});
  }
  // Until the front has heard that so many pages have arrived.
  void wait_for_arriving(int pages) {
    for (int i = 0; i < 40; ++i) {
      const auto arriving = inbox_.next<PagesArriving>();
      ASSERT_TRUE(arriving);
      if (arriving->pages == pages) return;
    }
    FAIL() << "they do not arrive";
  }

  base::SharedBytes peer_memory_;
  store::PageServerCounts counts_;  // of what it was asked

 private:
  RequestState state_of(std::string_view request) {
    const std::lock_guard lock(mutex_);
    const auto found = states_.find(std::string(request));
    return found == states_.end() ? RequestState::kUnknown : found->second;
  }
  std::mutex mutex_;
  std::map<std::string, RequestState> states_;

 protected:
  std::unique_ptr<store::PageServer> server_;  // asks the above
};

TEST_F(PromptStoreFromPeerTest, PagesComeWhileThePeerComputesThem) {
  const std::vector<int32_t> tokens = tokens_of(5);
  Cache written(tokens);
  written.fill();
  set("r", RequestState::kComputes);
  const auto store = open();
  const PagesFound found = look(*store, 1, tokens, 1, {}, peer());
  EXPECT_TRUE(found.is_promised);
  EXPECT_EQ(found.known, 1);
  EXPECT_EQ(found.found, 5);
  Cache read(tokens);
  store->fetch(read.fetch(1, 1, 5));
  wait_for_arriving(1);
  compute(written, 0, 3);
  wait_for_arriving(3);
  // Others are served meanwhile.
  Cache other(std::vector<int32_t>(2 * kPageTokens + 1, 3));
  keep(*store, other.kept());
  EXPECT_EQ(look(*store, 2, std::vector<int32_t>(2 * kPageTokens + 1, 3)).found, 2);
  EXPECT_FALSE(inbox_.next<PagesFetched>(milliseconds(20)));
  compute(written, 3, 5);
  const auto fetched = inbox_.next<PagesFetched>();
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->ticket, 1u);
  EXPECT_EQ(fetched->pages, 5);
  EXPECT_EQ(fetched->bytes, 4 * kPageBytes);
  EXPECT_EQ(fetched->from_peer.pages, 4);
  EXPECT_EQ(fetched->from_peer.bytes, 4 * kPageBytes);
  EXPECT_GT(fetched->from_peer.seconds, 0.5);
  EXPECT_GT(fetched->from_peer.transfer_seconds, 0.0);
  EXPECT_LT(fetched->from_peer.exposed_seconds, fetched->from_peer.seconds);
  EXPECT_EQ(fetched->from_peer.trouble, "");
  EXPECT_EQ(read.bytes[0], std::vector<std::byte>(kPageBytes));
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(read.bytes[i], written.bytes[i]) << i;
}

TEST_F(PromptStoreFromPeerTest, WhatPlacesHaveIsNotTakenFromThePeer) {
  const std::vector<int32_t> tokens = tokens_of(5);
  Cache written(tokens);
  written.fill();
  const auto store = open();
  std::vector<engine::KeptBytes> kept = written.kept();
  kept.resize(2);
  keep(*store, std::move(kept));
  compute(written, 0, 5);
  look(*store, 1, tokens, 0, {}, peer());
  Cache read(tokens);
  engine::PageFetch fetch = read.fetch(1, 0, 5);
  fetch.pages[3] = nullptr;  // lies on another rank
  store->fetch(fetch);
  const auto fetched = inbox_.next<PagesFetched>();
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->pages, 5);
  EXPECT_EQ(fetched->bytes, 4 * kPageBytes);
  EXPECT_EQ(fetched->from_peer.pages, 2);
  for (const size_t i : {0, 1, 2, 4}) EXPECT_EQ(read.bytes[i], written.bytes[i]) << i;
}

TEST_F(PromptStoreFromPeerTest, OfAPeerThatDiesTheLeadingPagesCount) {
  const std::vector<int32_t> tokens = tokens_of(5);
  Cache written(tokens);
  written.fill();
  set("r", RequestState::kComputes);
  compute(written, 0, 2);
  const auto store = open();
  look(*store, 1, tokens, 0, {}, peer());
  Cache read(tokens);
  engine::PageFetch fetch = read.fetch(1, 0, 5);
  fetch.pages[2] = nullptr;
  store->fetch(fetch);
  wait_for_arriving(3);  // behind the one of another rank
  server_.reset();
  const auto fetched = inbox_.next<PagesFetched>();
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->pages, 3);
  EXPECT_EQ(fetched->from_peer.pages, 2);
  EXPECT_THAT(fetched->from_peer.trouble, HasSubstr("127.0.0.1"));
  EXPECT_EQ(read.bytes[1], written.bytes[1]);
}

TEST_F(PromptStoreFromPeerTest, WhatThePeerDoesNotKnowOrHasEndedIsNotWaitedFor) {
  const std::vector<int32_t> tokens = tokens_of(3);
  Cache written(tokens);
  compute(written, 0, 1);
  set("ended", RequestState::kEnded);
  const auto store = open();
  look(*store, 1, tokens, 0, {}, peer("unknown"));
  look(*store, 2, tokens, 0, {}, peer("ended"));
  Cache one(tokens), two(tokens);
  store->fetch(one.fetch(1, 0, 3));
  store->fetch(two.fetch(2, 0, 3));
  const auto ended = inbox_.next<PagesFetched>();
  EXPECT_EQ(ended->ticket, 2u);
  EXPECT_EQ(ended->pages, 1);
  EXPECT_THAT(ended->from_peer.trouble, HasSubstr("has ended the request"));
  const auto unknown = inbox_.next<PagesFetched>();
  EXPECT_EQ(unknown->ticket, 1u);
  EXPECT_EQ(unknown->pages, 1);
  EXPECT_THAT(unknown->from_peer.trouble, HasSubstr("does not know the request"));
}

// A second turn: who has answered the first one has most of the prompt.
TEST_F(PromptStoreFromPeerTest, OfAPeerThatComputesNothingComesWhatItHas) {
  const std::vector<int32_t> tokens = tokens_of(5);
  Cache written(tokens);
  written.fill();
  const auto store = open();
  std::vector<engine::KeptBytes> kept = written.kept();
  kept.resize(1);
  keep(*store, std::move(kept));
  PagesFound found = look(*store, 1, tokens, 0, {}, peer(""));
  EXPECT_EQ(found.found, 1);  // as without it
  EXPECT_FALSE(found.is_promised);
  compute(written, 1, 3);
  compute(written, 4, 5);  // behind a gap
  found = look(*store, 2, tokens, 0, {}, peer(""));
  EXPECT_EQ(found.found, 3);
  EXPECT_TRUE(found.is_promised);
  Cache read(tokens);
  store->fetch(read.fetch(2, 0, 3));
  const auto fetched = inbox_.next<PagesFetched>();
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->pages, 3);
  EXPECT_EQ(fetched->from_peer.pages, 2);
  EXPECT_EQ(fetched->from_peer.trouble, "");
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(read.bytes[i], written.bytes[i]) << i;
  // It may have evicted them meanwhile.
  look(*store, 3, tokens, 0, {}, peer(""));
  Cache again(tokens);
  store->fetch(again.fetch(3, 0, 4));
  const auto part = inbox_.next<PagesFetched>();
  EXPECT_EQ(part->pages, 3);
  EXPECT_EQ(part->from_peer.kind, PeerTrouble::kMissing);
}

// It keeps for a while what it is asked for, which is little of it: what can be used.
TEST_F(PromptStoreFromPeerTest, APeerIsAskedForWhatCanBeUsed) {
  constexpr size_t kAtOnce = store::PageServerLimits::kMaxHeads;
  const std::vector<int32_t> tokens = tokens_of(2 * kAtOnce);
  Cache written(tokens);
  const auto store = open(/*keeps_states=*/true);
  PagesFound found = look(*store, 1, tokens, 0, {}, peer(""));
  EXPECT_EQ(found.found, 0);
  EXPECT_EQ(counts_.looks.load(), 1u);
  compute(written, 0, kAtOnce + 1, {3, 7, kAtOnce});
  compute(written, kAtOnce + 2, 2 * kAtOnce);
  counts_.looks = 0;
  found = look(*store, 2, tokens, 0, {}, peer(""));
  EXPECT_EQ(found.found, static_cast<int>(kAtOnce) + 1);
  EXPECT_EQ(found.states, (std::vector<int32_t>{4, 8, kAtOnce + 1}));
  EXPECT_EQ(counts_.looks.load(), 3u);  // 2 for pages, 1 for the last states
}

TEST_F(PromptStoreFromPeerTest, APeerThatIsGoneIsOnePlaceLess) {
  const std::vector<int32_t> tokens = tokens_of(3);
  const auto store = open();
  const std::string text = peer("");
  server_.reset();
  for (uint64_t ticket = 1; ticket <= 2; ++ticket) {
    const PagesFound found = look(*store, ticket, tokens, 1, {}, text);
    EXPECT_FALSE(found.is_promised);
    EXPECT_EQ(found.found, 1);
    EXPECT_EQ(found.peer_kind, PeerTrouble::kGone);
    EXPECT_THAT(found.peer_trouble, HasSubstr("127.0.0.1"));
  }
}

TEST_F(PromptStoreFromPeerTest, APeerThatCannotHelpIsNone) {
  const std::vector<int32_t> tokens = tokens_of(3);
  const auto store = open();
  for (const std::string& text : {peer("r", "other"), peer(""), std::string("nonsense")}) {
    const PagesFound found = look(*store, 1, tokens, 1, {}, text);
    EXPECT_FALSE(found.is_promised);
    EXPECT_EQ(found.found, 1);
  }
}

TEST_F(PromptStoreFromPeerTest, WhatIsAbandonedIsGivenBackAtOnce) {
  const std::vector<int32_t> tokens = tokens_of(5);
  Cache written(tokens);
  written.fill();
  set("r", RequestState::kComputes);
  compute(written, 0, 2);
  const auto store = open();
  look(*store, 1, tokens, 0, {}, peer());
  Cache read(tokens);
  store->fetch(read.fetch(1, 0, 5));
  wait_for_arriving(2);
  const auto begun = std::chrono::steady_clock::now();
  store->abandon(1);
  const auto fetched = inbox_.next<PagesFetched>();
  ASSERT_TRUE(fetched);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(1000));
  EXPECT_EQ(fetched->pages, 2);
  EXPECT_EQ(fetched->from_peer.trouble, "other requests needed the room of its pages");
  compute(written, 2, 5);
  store->abandon(1);
  EXPECT_FALSE(inbox_.next<PagesFetched>(milliseconds(50)));
  EXPECT_EQ(read.bytes[2], std::vector<std::byte>(kPageBytes));
}

TEST_F(PromptStoreFromPeerTest, NothingOfAPeerIsTouchedOrToldAfterTheEnd) {
  const std::vector<int32_t> tokens = tokens_of(5);
  Cache written(tokens);
  written.fill();
  set("r", RequestState::kComputes);
  compute(written, 0, 2);
  const auto store = open();
  look(*store, 1, tokens, 0, {}, peer());
  auto read = std::make_unique<Cache>(tokens);
  store->fetch(read->fetch(1, 0, 5));
  wait_for_arriving(2);
  ASSERT_TRUE(store->end_fetches(milliseconds(10'000)).ok());
  read.reset();
  compute(written, 2, 5);
  EXPECT_FALSE(inbox_.next<PagesFetched>(milliseconds(100)));
  // It works as before.
  EXPECT_EQ(look(*store, 2, tokens, 0, {}, peer()).found, 5);
  Cache again(tokens);
  store->fetch(again.fetch(2, 0, 5));
  EXPECT_EQ(inbox_.next<PagesFetched>()->pages, 5);
  EXPECT_EQ(again.bytes, written.bytes);
  // Nor does what waits hold up the store's end.
  const std::vector<int32_t> others(2 * kPageTokens + 1, 5);
  look(*store, 3, others, 0, {}, peer());
  store->fetch(again.fetch(3, 0, 2));
}

TEST_F(PromptStoreFromPeerTest, AStateComesWithThePagesOrNothingIsOfUse) {
  const std::vector<int32_t> tokens = tokens_of(4);
  Cache written(tokens);
  written.fill();
  set("r", RequestState::kComputes);
  const auto store = open(/*keeps_states=*/true);
  const PagesFound found = look(*store, 1, tokens, 2, {1}, peer());
  EXPECT_EQ(found.known, 1);
  EXPECT_EQ(found.found, 4);
  EXPECT_EQ(found.states, (std::vector<int32_t>{1, 4}));
  Cache read(tokens);
  store->fetch(read.fetch(1, 1, 4, true));
  compute(written, 0, 4);
  EXPECT_FALSE(inbox_.next<PagesFetched>(milliseconds(100)));
  compute(written, 4, 4, {3});
  const auto fetched = inbox_.next<PagesFetched>();
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->pages, 4);
  EXPECT_EQ(read.states[3], written.states[3]);
  EXPECT_EQ(read.bytes[3], written.bytes[3]);

  const std::vector<int32_t> others(2 * kPageTokens + 1, 5);
  Cache without(others);
  compute(without, 0, 2);
  set("r", RequestState::kEnded);
  EXPECT_EQ(look(*store, 2, others, 0, {}, peer()).states, (std::vector<int32_t>{2}));
  store->fetch(without.fetch(2, 0, 2, true));
  const auto lacking = inbox_.next<PagesFetched>();
  ASSERT_TRUE(lacking);
  EXPECT_EQ(lacking->pages, 0);
  EXPECT_EQ(lacking->from_peer.pages, 2);
}

// The last one behind which it has the state, too.
TEST_F(PromptStoreFromPeerTest, OfAPeerThatComputesNothingComeStates) {
  const std::vector<int32_t> tokens = tokens_of(4);
  Cache written(tokens);
  written.fill();
  compute(written, 0, 4, {2});
  const auto store = open(/*keeps_states=*/true);
  const PagesFound found = look(*store, 1, tokens, 0, {}, peer(""));
  EXPECT_TRUE(found.is_promised);
  EXPECT_EQ(found.states, (std::vector<int32_t>{3}));
  Cache read(tokens);
  store->fetch(read.fetch(1, 0, 3, true));
  const auto fetched = inbox_.next<PagesFetched>();
  ASSERT_TRUE(fetched);
  EXPECT_EQ(fetched->pages, 3);
  EXPECT_EQ(read.bytes[2], written.bytes[2]);
}

// Of a server that keeps no prompts itself.
TEST_F(PromptStoreFromPeerTest, APlaceIsNotNeeded) {
  const std::vector<int32_t> tokens = tokens_of(3);
  Cache written(tokens);
  written.fill();
  compute(written, 0, 3);
  while (inbox_.next<StoreState>(milliseconds(10))) {
  }
  PromptStore store({.rank = 3,
                     .geometry = {.record_class = "class",
                                  .page_bytes = kPageBytes,
                                  .page = store::Part::whole(kPageBytes),
                                  .state = {}},
                     .places = store::Places({}),
                     .processors = {}},
                    inbox_);
  store.offer(written.kept(), 1e-3);
  EXPECT_EQ(store.flush(milliseconds(0)), 0u);  // nobody takes them
  EXPECT_EQ(look(store, 1, tokens).found, 0);
  EXPECT_EQ(look(store, 2, tokens, 0, {}, peer()).found, 3);
  Cache read(tokens);
  store.fetch(read.fetch(2, 0, 3));
  EXPECT_EQ(inbox_.next<PagesFetched>()->pages, 3);
  EXPECT_EQ(read.bytes, written.bytes);
  EXPECT_FALSE(inbox_.next<StoreState>(milliseconds(50)));
}

// ---- to the front's node ----

// The front is another process, whose memory is served to other servers.
class PromptStoreToFrontTest : public PromptStoreTest {
 protected:
  void SetUp() override {
    auto memory = store::HostTier::create_memory(uint64_t{16} << 20);
    ASSERT_TRUE(memory.ok());
    front_memory_ = std::move(memory).value();
    start(0);
    is_apart_ = true;
  }
  void start(uint16_t port) {
    auto server =
        store::PageServer::start({.address = transport::resolve("127.0.0.1", port).value(),
                                  .token = "secret",
                                  .record_class = "class",
                                  .offering_token = "offers"},
                                 front_memory_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
    port_ = server_->address().port;
  }
  std::string front() const {
    return store::text_of(
        {.host = {"127.0.0.1", port_}, .token = "offers", .record_class = "class"});
  }
  std::unique_ptr<PromptStore> open_at_front(bool keeps_states = false) {
    auto tier = store::HostTier::open(front_memory_);
    EXPECT_TRUE(tier.ok());
    return open_over(std::move(tier).value(), keeps_states);
  }
  // How many leading pages are there; waits until they are so many.
  int pages_at_front(const std::vector<int32_t>& tokens, int expected, bool keeps_states = false) {
    const auto store = open_at_front(keeps_states);
    PagesFound found;
    for (int i = 0; i < 1000; ++i) {
      found = look(*store, 1, tokens);
      if (found.found == expected && (!keeps_states || !found.states.empty())) break;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return found.found;
  }
  // The next state that says of the front what is wanted; nullopt: it never does.
  std::optional<StoreState::Tier> wait_for_tier(
      const std::function<bool(const StoreState::Tier&)>& is_wanted) {
    for (int i = 0; i < 20; ++i) {
      const auto state = inbox_.next<StoreState>();
      if (!state) break;
      for (const StoreState::Tier& each : state->tiers) {
        if (each.name() == "front" && is_wanted(each)) return each;
      }
    }
    return std::nullopt;
  }

  base::SharedBytes front_memory_;
  std::unique_ptr<store::PageServer> server_;
  uint16_t port_ = 0;
};

TEST_F(PromptStoreToFrontTest, WhatIsComputedOnAnotherNodeIsThereToo) {
  const std::vector<int32_t> tokens = tokens_of(5);
  Cache written(tokens);
  written.fill();
  const auto store = open();
  store->offer_to(front());
  keep(*store, written.kept());
  EXPECT_EQ(look(*store, 1, tokens).found, 5);  // on the own node
  EXPECT_EQ(pages_at_front(tokens, 5), 5);
  const auto at_front = open_at_front();
  Cache read(tokens);
  EXPECT_EQ(look(*at_front, 2, tokens).found, 5);
  at_front->fetch(read.fetch(2, 0, 5));
  EXPECT_EQ(inbox_.next<PagesFetched>()->pages, 5);
  EXPECT_EQ(read.bytes, written.bytes);
  EXPECT_TRUE(wait_for_tier([](const StoreState::Tier& tier) { return tier.counts.taken == 5; }));
}

TEST_F(PromptStoreToFrontTest, StatesGoWithTheirPages) {
  const std::vector<int32_t> tokens = tokens_of(3);
  Cache written(tokens);
  written.fill();
  const auto store = open(true);
  store->offer_to(front());
  std::vector<engine::KeptBytes> kept = written.kept();
  kept.push_back(written.kept_state(2));
  keep(*store, std::move(kept));
  EXPECT_EQ(pages_at_front(tokens, 3, true), 3);
}

// What came from a place of the own node the front's may not have any more.
TEST_F(PromptStoreToFrontTest, WhatAPlaceHadIsOfferedWhereItIsNot) {
  const std::vector<int32_t> tokens = tokens_of(4);
  Cache written(tokens);
  std::vector<engine::KeptBytes> kept = written.kept();
  for (engine::KeptBytes& each : kept) each.is_imported = true;
  const auto store = open();
  store->offer_to(front());
  keep(*store, std::move(kept));
  EXPECT_EQ(pages_at_front(tokens, 4), 4);
}

TEST_F(PromptStoreToFrontTest, RanksOfItsNodeAndThoseThatAreToldNobodySendNothing) {
  const std::vector<int32_t> tokens = tokens_of(2);
  Cache written(tokens);
  is_apart_ = false;
  const auto beside = open();
  is_apart_ = true;
  const auto apart = open();
  beside->offer_to(front());
  apart->offer_to(front());
  apart->offer_to("");
  for (PromptStore* store : {&*beside, &*apart}) {
    keep(*store, written.kept());
    EXPECT_TRUE(store->end_fetches(milliseconds(10'000)).ok());
  }
  EXPECT_EQ(pages_at_front(tokens, 0), 0);
}

TEST_F(PromptStoreToFrontTest, WhoIsToldNobodyHasNoFront) {
  Cache written(tokens_of(4));
  server_.reset();
  const auto store = open();
  store->offer_to(front());
  keep(*store, written.kept());
  EXPECT_TRUE(wait_for_tier([](const StoreState::Tier& tier) { return tier.is_out; }));
  store->offer_to("");
  bool has_front = true;
  for (int i = 0; i < 5 && has_front; ++i) {
    const auto state = inbox_.next<StoreState>();
    ASSERT_TRUE(state);
    has_front = state->tiers.size() > 1;
  }
  EXPECT_FALSE(has_front);
}

// A place under steady load, that is slow: between its offers some go to the front.
TEST_F(PromptStoreToFrontTest, SteadyOffersToPlacesLeaveTheFrontItsTurn) {
  const std::vector<int32_t> tokens = tokens_of(150);
  Cache written(tokens);
  auto tier = store::HostTier::open(memory_);
  ASSERT_TRUE(tier.ok());
  const auto store = open_over(std::make_unique<SlowPlace>(std::move(tier).value()));
  store->offer_to(front());
  store->offer(written.kept(), 1e-3);
  const auto at_front = open_at_front();
  while (look(*at_front, 1, tokens).found < 5) std::this_thread::sleep_for(milliseconds(5));
  const auto own = store::HostTier::open(memory_).value();
  store::Head last = written.heads.back();
  last.canonical_bytes = kPageBytes;
  last.part = store::Part::whole(kPageBytes);
  EXPECT_FALSE(own->find(std::span(&last, 1))[0]);
}

// What is asked waits for one part of a page, and the page comes whole afterwards.
TEST_F(PromptStoreToFrontTest, APageOnItsWayKeepsNobodyWaiting) {
  page_bytes_ = uint64_t{40} << 20;  // 10 parts
  memory_ = store::HostTier::create_memory(uint64_t{96} << 20).value();
  front_memory_ = store::HostTier::create_memory(uint64_t{96} << 20).value();
  server_.reset();
  start(0);
  const std::vector<int32_t> tokens = tokens_of(1);
  Cache written(tokens);
  written.bytes[0].assign(page_bytes_, std::byte{7});
  const auto store = open();
  store->offer_to(front());
  store->offer(written.kept(), 1e-3);
  EXPECT_EQ(store->flush(milliseconds(20'000)), 0u);
  // Each while the page is on its way, or has come.
  for (uint64_t ticket = 1; ticket <= 20; ++ticket) look(*store, ticket, tokens_of(2));
  EXPECT_EQ(pages_at_front(tokens, 1), 1);
  EXPECT_TRUE(wait_for_tier([](const StoreState::Tier& tier) { return tier.counts.taken == 1; }));
  // Whoever ends all does not wait for it, either.
  Cache more(tokens, "salt");
  more.bytes[0].assign(page_bytes_, std::byte{9});
  store->offer(more.kept(), 1e-3);
  EXPECT_TRUE(store->end_fetches(milliseconds(10'000)).ok());
}

// The places of the own node get all, and what comes later goes to the next front.
TEST_F(PromptStoreToFrontTest, AFrontThatIsGoneKeepsNobodyWaitingAndMayComeBack) {
  const std::vector<int32_t> tokens = tokens_of(4);
  Cache written(tokens);
  server_.reset();
  const auto store = open();
  store->offer_to(front());
  keep(*store, written.kept());
  EXPECT_EQ(look(*store, 1, tokens).found, 4);
  EXPECT_TRUE(wait_for_tier([](const StoreState::Tier& tier) { return tier.is_out; }));
  EXPECT_EQ(pages_at_front(tokens, 0), 0);

  start(port_);
  store->offer_to(front());
  keep(*store, written.kept());
  EXPECT_EQ(pages_at_front(tokens, 4), 4);
  EXPECT_TRUE(wait_for_tier([](const StoreState::Tier& tier) { return !tier.is_out; }));
}

TEST_F(PromptStoreToFrontTest, WhatIsSentIsCountedOnFromFrontToFront) {
  Cache first(tokens_of(4), "first"), second(tokens_of(3), "second");
  const auto store = open();
  for (Cache* each : {&first, &second}) {
    store->offer_to(front());
    keep(*store, each->kept());
    EXPECT_TRUE(wait_for_tier([&](const StoreState::Tier& tier) {
      return tier.counts.taken == (each == &first ? 4 : 7);
    }));
  }
}

TEST_F(PromptStoreToFrontTest, AFrontThatHangsKeepsNobodyWaiting) {
  const std::vector<int32_t> tokens = tokens_of(4);
  Cache written(tokens);
  server_.reset();
  const auto address = transport::resolve("127.0.0.1", port_).value();
  const int silent = transport::listen_on(address).value();  // accepts nobody
  const auto store = open();
  store->offer_to(front());
  for (int i = 0; i < 3; ++i) {
    keep(*store, written.kept());
    EXPECT_EQ(look(*store, 1, tokens).found, 4);
  }
  EXPECT_TRUE(wait_for_tier([](const StoreState::Tier& tier) { return tier.is_out; }));
  EXPECT_TRUE(store->end_fetches(milliseconds(10'000)).ok());
  ::close(silent);
}

}  // namespace
}  // namespace wideep::run
