// SPDX-License-Identifier: Apache-2.0
//
// The protocol of layer updates, explored: every interleaving of 2 or 3 ranks' engines and
// updaters with the balancer, for 2 layers with a few updates each, where any copy may fail and any
// thread may be late without end. The steps below are those of WeightUpdater and OnlineBalancer;
// what ranks publish and decide comes from the code that they call (update_state.h).
//
// Shown for every reachable state:
//   - a rank that runs an iteration has, in every slot, the expert that its table says;
//   - all ranks run the same iteration with the same tables;
//   - records under way are never more than there are spares;
//   - from everywhere, all updates can still end (no deadlock), a shutdown in the middle included.
#include "online/update_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace wideep::online {
namespace {

constexpr int kLayers = 2;
constexpr int kMaxRanks = 3;
constexpr int kStatesPerRunOn = 8;  // every so many states: do all updates end from there?

// One layer on one rank. Versions stand for what a plan makes of a layer: version v is what the
// plan of generation v wants; a slot's content is the version it was copied for.
struct Layer {
  UpdateState state = UpdateState::kIdle;
  uint8_t generation = 0;  // last begun
  uint8_t table = 0;       // version that tokens are routed by
  uint8_t content = 0;     // version that the slots hold
  uint8_t spare = 0;       // version that the spare records hold
};

// The words that a rank has published for an agreement: the bits of its layers.
struct Told {
  uint8_t done = 0;
  uint8_t ready = 0;
};

struct Rank {
  std::array<Layer, kLayers> layers;
  uint8_t iteration = 0;           // agreements applied
  bool has_published = false;      // its words for the next iteration
  bool updater_ended = false;      // shutdown: copies end where they are
  std::array<Told, 2> words = {};  // of two agreements in turn, as the transport has
};

// Bytes throughout, so that equal worlds are equal bytes.
struct World {
  std::array<Rank, kMaxRanks> ranks = {};
  std::array<uint8_t, kLayers> posted = {};   // generation on the board
  std::array<uint8_t, kLayers> settled = {};  // generation that the balancer has seen end
  std::array<uint8_t, kLayers> outcome = {};  // generation that rank 0's engine has ended

  std::string key() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
};
static_assert(std::has_unique_object_representations_v<World>);

struct Limits {
  int ranks = 2;
  std::array<int, kLayers> generations = {2, 1};  // plans of each layer
  int spares = 2;      // of each rank: layers whose update may be under way
  int iterations = 5;  // explored; versions and iterations are small numbers then
  bool shutdown = false;
};

class Explorer {
 public:
  explicit Explorer(const Limits& limits) : limits_(limits) {}

  void explore() {
    visit(World());
    while (!open_.empty() && !testing::Test::HasFailure()) {
      const World world = open_.back();
      open_.pop_back();
      check(world);
      if (++looked_at_ % kStatesPerRunOn == 0) check_all_ends(world);
      if (!take_steps(world)) check_end(world);
    }
  }
  size_t num_states() const { return seen_.size(); }
  int num_ends() const { return ends_; }
  int num_published() const { return published_; }
  int num_cancelled() const { return cancelled_; }

 private:
  template <typename W>  // World, const or not
  auto ranks(W& world) const {
    return std::span(world.ranks).first(static_cast<size_t>(limits_.ranks));
  }

  // ---- what must hold ----

  void check(const World& world) {
    for (const Rank& rank : ranks(world)) {
      int under_way = 0;
      for (const Layer& layer : rank.layers) {
        ASSERT_EQ(layer.table, layer.content) << "a token would meet another expert";
        if (layer.state != UpdateState::kIdle) ++under_way;
      }
      ASSERT_LE(under_way, limits_.spares);
    }
    for (const Rank& a : ranks(world)) {
      for (const Rank& b : ranks(world)) {
        if (a.iteration != b.iteration) continue;
        for (int layer = 0; layer < kLayers; ++layer) {
          ASSERT_EQ(a.layers[layer].table, b.layers[layer].table) << "ranks differ in a table";
        }
      }
    }
  }

  // If every thread runs again and again from here on, every posted update ends, and its records
  // become spares.
  void check_all_ends(World w) {
    for (const Rank& rank : ranks(w)) {
      if (rank.updater_ended) return;
    }
    constexpr int kRounds = 3;  // take back what is over; begin, finish, agree; take back
    for (int round = 0; round < kRounds; ++round) {
      for (int r = 0; r < limits_.ranks; ++r) run_updater(w, r);
      for (int r = 0; r < limits_.ranks; ++r) publish_words(w, r, /*more_iterations=*/2 * kRounds);
      // A rank that is an iteration behind goes first.
      for (int turn = 0; turn < 2; ++turn) {
        for (int r = 0; r < limits_.ranks; ++r) apply(w, r);
        for (int r = 0; r < limits_.ranks; ++r) publish_words(w, r, 2 * kRounds);
      }
      for (int layer = 0; layer < kLayers; ++layer) settle(w, layer);
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      ASSERT_EQ(w.settled[layer], w.posted[layer]) << "an update never ends";
    }
  }
  void run_updater(World& w, int r) {
    for (int layer = 0; layer < kLayers; ++layer) {
      finish(w, r, layer, true);
      take_back(w, r, layer);
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      begin(w, r, layer);
      finish(w, r, layer, true);
    }
  }

  // Nothing can happen any more: out of iterations, all that was posted in time has ended.
  void check_end(const World& world) {
    ++ends_;
    if (world.ranks[0].iteration < limits_.iterations) {
      ADD_FAILURE() << "stuck before the last iteration";
    }
  }

  // ---- what can happen: every thread's next step, in any order ----

  // True if any step is possible.
  bool take_steps(const World& world) {
    bool any = false;
    const auto step = [&](auto change) {
      World after = world;
      if (!change(after)) return;
      any = true;
      visit(after);
    };
    for (int layer = 0; layer < kLayers; ++layer) {
      step([&](World& w) { return post(w, layer); });
      step([&](World& w) { return settle(w, layer); });
    }
    for (int r = 0; r < limits_.ranks; ++r) {
      step([&](World& w) { return publish_words(w, r); });
      step([&](World& w) { return apply(w, r); });
      if (limits_.shutdown) step([&](World& w) { return end_updater(w, r); });
      if (world.ranks[r].updater_ended) continue;
      for (int layer = 0; layer < kLayers; ++layer) {
        step([&](World& w) { return begin(w, r, layer); });
        step([&](World& w) { return finish(w, r, layer, true); });
        step([&](World& w) { return finish(w, r, layer, false); });
        step([&](World& w) { return take_back(w, r, layer); });
      }
    }
    return any;
  }
  void visit(const World& world) {
    if (seen_.insert(world.key()).second) open_.push_back(world);
  }

  // OnlineBalancer::post_step: one plan of a layer at a time, as many as there are spares.
  bool post(World& w, int layer) const {
    if (w.posted[layer] != w.settled[layer] || w.posted[layer] == limits_.generations[layer])
      return false;
    int under_way = 0;
    for (int each = 0; each < kLayers; ++each) under_way += w.posted[each] - w.settled[each];
    if (under_way == limits_.spares) return false;
    ++w.posted[layer];
    return true;
  }
  // OnlineBalancer::settle_step.
  static bool settle(World& w, int layer) {
    if (w.settled[layer] == w.posted[layer] || w.outcome[layer] != w.posted[layer]) return false;
    w.settled[layer] = w.posted[layer];
    return true;
  }

  // WeightUpdater::look and begin: the engine of this rank may still owe records.
  bool begin(World& w, int r, int layer) const {
    Layer& mine = w.ranks[r].layers[layer];
    if (mine.state != UpdateState::kIdle || mine.generation == w.posted[layer]) return false;
    const auto& layers = w.ranks[r].layers;
    const auto under_way = std::count_if(layers.begin(), layers.end(), [](const Layer& each) {
      return each.state != UpdateState::kIdle;
    });
    if (under_way == limits_.spares) return false;
    mine.state = UpdateState::kCopying;
    mine.generation = w.posted[layer];
    return true;
  }
  static bool finish(World& w, int r, int layer, bool ok) {
    Layer& mine = w.ranks[r].layers[layer];
    if (mine.state != UpdateState::kCopying) return false;
    mine.state = ok ? UpdateState::kReady : UpdateState::kFailed;
    mine.spare = ok ? mine.generation : uint8_t{0xee};
    return true;
  }
  static bool take_back(World& w, int r, int layer) {
    Layer& mine = w.ranks[r].layers[layer];
    if (mine.state != UpdateState::kPublished && mine.state != UpdateState::kCancelled)
      return false;
    mine.state = UpdateState::kIdle;
    mine.spare = 0;
    return true;
  }
  static bool end_updater(World& w, int r) {
    if (w.ranks[r].updater_ended) return false;
    w.ranks[r].updater_ended = true;
    return true;
  }

  // Engine::agree, in two steps: a rank raises its flag, and goes on when it has seen all others'.
  bool publish_words(World& w, int r, int more_iterations = 0) const {
    Rank& rank = w.ranks[r];
    if (rank.has_published || rank.iteration >= limits_.iterations + more_iterations) return false;
    transport::AgreedWords words = {};
    for (int layer = 0; layer < kLayers; ++layer) add_state(rank.layers[layer].state, layer, words);
    rank.words[rank.iteration % 2] = {static_cast<uint8_t>(words[kFirstDoneWord]),
                                      static_cast<uint8_t>(words[kFirstReadyWord])};
    rank.has_published = true;
    return true;
  }
  bool apply(World& w, int r) {
    Rank& rank = w.ranks[r];
    if (!rank.has_published) return false;
    std::vector<transport::AgreedWords> all;
    for (const Rank& other : ranks(w)) {
      const bool raised = other.iteration > rank.iteration ||
                          (other.iteration == rank.iteration && other.has_published);
      if (!raised) return false;
      transport::AgreedWords& words = all.emplace_back();
      words[kFirstDoneWord] = other.words[rank.iteration % 2].done;
      words[kFirstReadyWord] = other.words[rank.iteration % 2].ready;
    }
    const Decision decision = decide(all);
    for (int layer = 0; layer < kLayers; ++layer) {
      Layer& mine = rank.layers[layer];
      if (has(decision.publish, layer)) {
        EXPECT_EQ(mine.state, UpdateState::kReady);
        EXPECT_EQ(mine.spare, mine.generation);
        std::swap(mine.content, mine.spare);
        mine.table = mine.generation;
        mine.state = UpdateState::kPublished;
        ++published_;
      } else if (has(decision.cancel, layer)) {
        EXPECT_TRUE(mine.state == UpdateState::kReady || mine.state == UpdateState::kFailed);
        mine.state = UpdateState::kCancelled;
        ++cancelled_;
      } else {
        continue;
      }
      if (r == 0) w.outcome[layer] = mine.generation;
    }
    rank.has_published = false;
    ++rank.iteration;
    forget_words(w, rank.iteration - 1);
    return true;
  }

  // Words that all have read make no difference any more.
  void forget_words(World& w, int iteration) const {
    for (const Rank& rank : ranks(w)) {
      if (rank.iteration <= iteration) return;
    }
    for (Rank& rank : ranks(w)) rank.words[iteration % 2] = {};
  }

  Limits limits_;
  std::unordered_set<std::string> seen_;
  std::vector<World> open_;
  int64_t looked_at_ = 0;
  int ends_ = 0;
  int published_ = 0;
  int cancelled_ = 0;
};

void expect_sound(const Limits& limits) {
  Explorer explorer(limits);
  explorer.explore();
  EXPECT_GT(explorer.num_published(), 0);
  EXPECT_GT(explorer.num_cancelled(), 0);
  EXPECT_GT(explorer.num_ends(), 0);
  std::printf("  %d ranks: %zu states\n", limits.ranks, explorer.num_states());
}

TEST(UpdateProtocol, TwoRanks) { expect_sound({.iterations = 3}); }

TEST(UpdateProtocol, OneSpareForTwoLayers) {
  expect_sound({.generations = {2, 2}, .spares = 1, .iterations = 4});
}

TEST(UpdateProtocol, ThreeRanks) {
  expect_sound({.ranks = 3, .generations = {2, 0}, .iterations = 3});
}

TEST(UpdateProtocol, ThreeRanksAndTwoLayers) {
  expect_sound({.ranks = 3, .generations = {1, 1}, .spares = 1, .iterations = 2});
}

TEST(UpdateProtocol, ShutdownInTheMiddle) {
  expect_sound({.generations = {1, 1}, .iterations = 2, .shutdown = true});
}

}  // namespace
}  // namespace wideep::online
