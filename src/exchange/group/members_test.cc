// SPDX-License-Identifier: Apache-2.0
//
// How a keeper and its ranks agree about their members, explored: every interleaving of the keeper
// with 2 to 4 ranks of which any may crash at any step, hang, return, be added or retired, the
// serving process may die, and a stop signal may come, after which everything goes on until the
// serving process says that nothing is left to do (Note::Kind::kStop). Some of
// them may be on a second node: what the keeper tells its ranks, and the flags between the nodes,
// arrive later, one by one; and the node may be cut off at any step, whose ranks go on until it
// notices that itself. What the keeper decides comes from the code that it runs (members.h); the
// steps of ranks are those of KeptSeat and of Engine::agree, those of the node of NodeClient.
//
// Shown for every reachable state:
//   - ranks that compute are members of the same epoch, and of the present one, or on a node that
//     is cut off;
//   - the memory that the members of a node share is cleared only while no rank there computes;
//   - members take the same decision after the same iteration: go on, or leave;
//   - from everywhere, if nothing more happens to them, all wanted ranks compute together; also
//     after a stop signal, as long as something is left to do;
//   - once nothing is, all ranks end.
#include "group/members.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string>
#include <unordered_set>

#include "base/sanitized.h"

namespace wideep::transport {
namespace {

using testing::ElementsAre;
using State = Membership::State;
using Place = Membership::Place;

constexpr int kModelledRanks = 4;
constexpr uint8_t kCycle = 4;  // iterations are counted modulo this, as flags are modulo 2³²

enum class Doing : uint8_t { kNothing, kLoading, kAsking, kComputing };

struct Rank {
  Doing doing = Doing::kNothing;
  bool hangs = false;
  bool crashed = false;  // the keeper has not noticed yet
  bool ends = false;     // it was told to
  uint8_t epoch = 0;     // that it was told last
  uint8_t members = 0;   // bits
  uint8_t iteration = 0;
  uint8_t asked_to_go = 0;  // notes from the keeper: the epoch to join, 0: none
  uint8_t joins_members = 0;
  bool said_ready = false, said_left = false;  // notes to the keeper
  uint8_t left_epoch = 0;
};

// What the ranks of a node share: the control page, the flags, and the words of agreements (the
// wish to leave), of which there are two sets in turn. Those of ranks of the other node are images.
struct Memory {
  uint8_t epoch = 0;
  uint8_t broken_epoch = 0;
  bool change_requested = false, stop_requested = false;
  std::array<uint8_t, kModelledRanks> flags =
      {};  // agreements for which a rank has raised its flag
  std::array<std::array<uint8_t, kModelledRanks>, 2> words = {};
};

// From the keeper to the second node, in order.
struct ToNode {
  enum class Kind : uint8_t { kClosing, kBroken, kEpoch, kStart } kind = Kind::kClosing;
  uint8_t epoch = 0;    // kStart: the rank
  uint8_t members = 0;  // bits
};

struct World {
  explicit World(int num_ranks, int wanted, int min) : keeper(num_ranks, wanted, min) {}

  Membership keeper;
  std::array<Rank, kModelledRanks> ranks = {};
  std::array<Memory, 2> memories = {};
  std::array<ToNode, 12> messages = {};
  uint8_t num_messages = 0;
  bool is_cut = false;  // the second node; its ranks may still run
  // What the keeper has told the ranks of the present epoch.
  bool said_closing = false, said_broken = false;
  bool ending = false;  // Keeper::ending_
  uint8_t crashes = 0, hangs = 0, wishes = 0, cuts = 0, fronts = 0, stops = 0;

  std::string key(int num_ranks) const {
    std::string text;
    for (int r = 0; r < num_ranks; ++r) {
      text.append(reinterpret_cast<const char*>(&ranks[size_t(r)]), sizeof(Rank));
      text += char(keeper.place(r));
    }
    uint8_t bits = 0;
    for (const int r : keeper.members().ranks) bits |= uint8_t(1 << r);
    text += char(keeper.state());
    text += char(keeper.members().epoch);
    text += char(keeper.wanted());
    text += char(bits);
    text.append(reinterpret_cast<const char*>(memories.data()), sizeof(memories));
    for (size_t i = 0; i < num_messages; ++i) {
      text.append(reinterpret_cast<const char*>(&messages[i]), sizeof(ToNode));
    }
    text += char(is_cut);
    text += char(said_closing);
    text += char(said_broken);
    text += char(ending);
    text += char(fronts);
    text += char(stops);
    text += char(crashes);
    text += char(hangs);
    text += char(wishes);
    text += char(cuts);
    return text;
  }
};

struct Limits {
  int ranks = 2;
  int min = 1;
  int first_wanted = 2;
  int crashes = 1;
  int hangs = 0;
  std::vector<int> wishes = {};  // numbers of ranks that are wanted one after the other
  int epochs = 4;
  int second_node = kModelledRanks;  // ranks from here on are on another node than the keeper
  int cuts = 0;
  int fronts = 0;  // that die
  int stops = 0;   // 1: nothing is left to do at some time
};

class Explorer {
 public:
  explicit Explorer(const Limits& limits) : limits_(limits) {}

  void explore() {
    visit(World(limits_.ranks, limits_.first_wanted, limits_.min));
    while (!open_.empty() && !testing::Test::HasFailure()) {
      const World world = std::move(open_.back());
      open_.pop_back();
      check(world);
      if (++looked_at_ % 7 == 0) check_comes_together(world);
      for_each_step(world, [this](const World& after) { visit(after); });
    }
  }
  size_t num_states() const { return seen_.size(); }
  int max_epochs() const { return max_epochs_; }

 private:
  // ---- what must hold ----

  void check(const World& world) {
    for (int r = 0; r < limits_.ranks; ++r) {
      const Rank& rank = world.ranks[size_t(r)];
      if (rank.doing != Doing::kComputing || is_cut_off(world, r)) continue;
      ASSERT_EQ(rank.epoch, world.keeper.members().epoch) << "an epoch outlives its successor";
      ASSERT_TRUE(rank.members >> r & 1);
      for (int other = 0; other < limits_.ranks; ++other) {
        const Rank& peer = world.ranks[size_t(other)];
        if (peer.doing != Doing::kComputing || is_cut_off(world, other)) continue;
        ASSERT_EQ(rank.epoch, peer.epoch);
        ASSERT_EQ(rank.members, peer.members) << "members differ about who they are";
      }
    }
    max_epochs_ = std::max(max_epochs_, int(world.keeper.members().epoch));
  }

  // Without further crashes, hangs and wishes, the wanted ranks end up together.
  void check_comes_together(const World& start) {
    World world = start;
    for (int turn = 0; turn < 60; ++turn) {
      bool stepped = end_cut_off(world);
      stepped |= connect_again(world);
      stepped |= deliver(world);
      for (int r = 0; r < limits_.ranks; ++r) {
        stepped |= kill_late(world, r);
        stepped |= obey(world, r);
        stepped |= reap(world, r);
        stepped |= take_note(world, r);
        stepped |= load(world, r);
        stepped |= join(world, r);
        stepped |= leave_broken(world, r);
        stepped |= raise(world, r);
        stepped |= cross(world, r);
        stepped |= take_stop(world, r);
        stepped |= decide(world, r);
        stepped |= give_up_waiting(world, r);
      }
      stepped |= act(world);
      if (!stepped) break;
    }
    int computing = 0;
    for (int r = 0; r < limits_.ranks; ++r) {
      const Rank& rank = world.ranks[size_t(r)];
      computing += rank.doing == Doing::kComputing && !rank.hangs ? 1 : 0;
    }
    const bool at_the_end = world.keeper.members().epoch >= uint32_t(limits_.epochs);
    if (world.ending) {
      for (int r = 0; r < limits_.ranks; ++r) {
        if (is_cut_off(world, r)) continue;
        ASSERT_EQ(world.ranks[size_t(r)].doing, Doing::kNothing) << describe(world);
      }
      return;
    }
    if (at_the_end) return;  // not explored further
    ASSERT_EQ(world.keeper.state(), State::kIntact) << describe(world);
    ASSERT_EQ(computing, world.keeper.wanted());
  }

  std::string describe(const World& w) const {
    std::string text = "epoch " + std::to_string(w.keeper.members().epoch);
    text += w.is_cut ? ", cut" : "";
    text += ", messages " + std::to_string(w.num_messages);
    for (int r = 0; r < limits_.ranks; ++r) {
      const Rank& rank = w.ranks[size_t(r)];
      text += "; rank " + std::to_string(r) + " place " + std::to_string(int(w.keeper.place(r))) +
              " doing " + std::to_string(int(rank.doing)) + " epoch " + std::to_string(rank.epoch) +
              " members " + std::to_string(rank.members) + " iteration " +
              std::to_string(rank.iteration) + (rank.hangs ? " hangs" : "") +
              (rank.crashed ? " crashed" : "");
    }
    for (const Memory& each : w.memories) {
      text += "; memory of epoch " + std::to_string(each.epoch) + ", broken " +
              std::to_string(each.broken_epoch) + (each.change_requested ? ", change" : "") +
              ", flags";
      for (const uint8_t flag : each.flags) text += " " + std::to_string(flag);
    }
    return text;
  }

  // ---- what can happen ----

  template <typename Visit>
  void for_each_step(const World& world, Visit visit_world) {
    const auto step = [&](auto change) {
      World after = world;
      if (change(after)) visit_world(after);
    };
    for (int r = 0; r < limits_.ranks; ++r) {
      step([&](World& w) { return load(w, r); });
      step([&](World& w) { return join(w, r); });
      step([&](World& w) { return leave_broken(w, r); });
      step([&](World& w) { return give_up_waiting(w, r); });
      step([&](World& w) { return raise(w, r); });
      step([&](World& w) { return cross(w, r); });
      step([&](World& w) { return take_stop(w, r); });
      step([&](World& w) { return decide(w, r); });
      step([&](World& w) { return crash(w, r); });
      step([&](World& w) { return hang(w, r); });
      step([&](World& w) { return reap(w, r); });
      step([&](World& w) { return take_note(w, r); });
      step([&](World& w) { return kill_late(w, r); });
      step([&](World& w) { return obey(w, r); });
    }
    step([&](World& w) { return act(w); });
    step([&](World& w) { return wish(w); });
    step([&](World& w) { return front_dies(w); });
    step([&](World& w) { return stop(w); });
    step([&](World& w) { return deliver(w); });
    step([&](World& w) { return cut(w); });
    step([&](World& w) { return end_cut_off(w); });
    step([&](World& w) { return connect_again(w); });
  }
  void visit(const World& world) {
    if (seen_.insert(world.key(limits_.ranks)).second) open_.push_back(world);
  }

  int node_of(int rank) const { return rank >= limits_.second_node ? 1 : 0; }
  bool is_cut_off(const World& w, int rank) const { return w.is_cut && node_of(rank) == 1; }
  Memory& memory_of(World& w, int rank) const { return w.memories[size_t(node_of(rank))]; }
  const Memory& memory_of(const World& w, int rank) const {
    return w.memories[size_t(node_of(rank))];
  }

  static bool runs(const Rank& rank) {
    return rank.doing != Doing::kNothing && !rank.hangs && !rank.crashed;
  }

  // ---- steps of a rank ----

  static bool load(World& w, int r) {
    Rank& rank = w.ranks[size_t(r)];
    if (!runs(rank) || rank.doing != Doing::kLoading) return false;
    rank.doing = Doing::kAsking;
    rank.said_ready = true;
    return true;
  }
  // It ends as it was told to.
  static bool obey(World& w, int r) {
    Rank& rank = w.ranks[size_t(r)];
    return runs(rank) && rank.ends && !std::exchange(rank.crashed, true);
  }
  static bool join(World& w, int r) {
    Rank& rank = w.ranks[size_t(r)];
    if (!runs(rank) || rank.doing != Doing::kAsking || rank.asked_to_go == 0) return false;
    rank.epoch = rank.asked_to_go;
    rank.members = rank.joins_members;
    rank.asked_to_go = rank.joins_members = 0;
    rank.doing = Doing::kComputing;
    rank.iteration = 0;
    return true;
  }
  static void leave(Rank& rank) {
    rank.doing = Doing::kAsking;
    rank.said_left = true;
    rank.left_epoch = rank.epoch;
    rank.iteration = 0;
    rank.members = 0;
  }
  bool leave_broken(World& w, int r) const {
    Rank& rank = w.ranks[size_t(r)];
    if (!runs(rank) || rank.doing != Doing::kComputing ||
        memory_of(w, r).broken_epoch != rank.epoch) {
      return false;
    }
    leave(rank);
    return true;
  }
  // Whether `rank` has raised its flag for the agreement before this iteration, or for the next
  // one, as `viewer` sees it.
  bool has_raised(const World& w, int viewer, int rank, uint8_t iteration) const {
    const uint8_t flag = memory_of(w, viewer).flags[size_t(rank)];
    const auto ahead = uint8_t((flag + kCycle - iteration) % kCycle);
    return ahead == 1 || ahead == 2;
  }
  // The deadline of a wait: some member does not raise its flag, and never will.
  bool give_up_waiting(World& w, int r) const {
    Rank& rank = w.ranks[size_t(r)];
    if (!runs(rank) || rank.doing != Doing::kComputing || !has_raised(w, r, r, rank.iteration)) {
      return false;
    }
    for (int other = 0; other < limits_.ranks; ++other) {
      if ((rank.members >> other & 1) == 0 || has_raised(w, r, other, rank.iteration)) continue;
      // One that is cut off, or was replaced after that, will not be heard again.
      const Rank& peer = w.ranks[size_t(other)];
      const bool is_heard =
          node_of(other) == node_of(r) ||
          (!w.is_cut && (w.num_messages > 0 || w.memories[0].epoch == w.memories[1].epoch));
      if (peer.hangs || peer.crashed || !is_heard) {
        leave(rank);
        return true;
      }
    }
    return false;
  }
  // Endpoint::agree: the words, with the wish to leave if the control page has it.
  bool raise(World& w, int r) const {
    Rank& rank = w.ranks[size_t(r)];
    if (!runs(rank) || rank.doing != Doing::kComputing || has_raised(w, r, r, rank.iteration)) {
      return false;
    }
    Memory& memory = memory_of(w, r);
    memory.words[rank.iteration % 2][size_t(r)] =
        uint8_t((memory.change_requested ? kLeaves : 0) | (memory.stop_requested ? kStops : 0));
    memory.flags[size_t(r)] = uint8_t((rank.iteration + 1) % kCycle);
    return true;
  }
  // The rank's flag and word arrive on the other node, where a rank of the same epoch takes them:
  // links are of one epoch.
  bool cross(World& w, int r) const {
    const Memory& from = memory_of(w, r);
    Memory& to = w.memories[size_t(1 - node_of(r))];
    uint8_t& image = to.flags[size_t(r)];
    if (limits_.second_node >= limits_.ranks || from.epoch != to.epoch ||
        image == from.flags[size_t(r)]) {
      return false;
    }
    bool is_taken = false;
    for (int other = 0; other < limits_.ranks; ++other) {
      const Rank& proxy = w.ranks[size_t(other)];
      is_taken |= node_of(other) != node_of(r) && runs(proxy) && proxy.doing == Doing::kComputing &&
                  proxy.epoch == to.epoch;
    }
    if (!is_taken) return false;
    to.words[image % 2][size_t(r)] = from.words[image % 2][size_t(r)];
    image = uint8_t((image + 1) % kCycle);
    return true;
  }
  bool decide(World& w, int r) const {
    Rank& rank = w.ranks[size_t(r)];
    if (!runs(rank) || rank.doing != Doing::kComputing || !has_raised(w, r, r, rank.iteration)) {
      return false;
    }
    uint8_t any = 0;
    for (int other = 0; other < limits_.ranks; ++other) {
      if ((rank.members >> other & 1) == 0) continue;
      if (!has_raised(w, r, other, rank.iteration)) return false;
      any |= memory_of(w, r).words[rank.iteration % 2][size_t(other)];
    }
    if ((any & kStops) != 0) {
      rank.crashed = true;  // it ends
    } else if (any != 0) {
      leave(rank);
    } else {
      rank.iteration = uint8_t((rank.iteration + 1) % kCycle);
    }
    return true;
  }
  // The command that nothing is left to do; a rank that joins later gets it, too.
  bool take_stop(World& w, int r) const {
    Memory& memory = memory_of(w, r);
    const Rank& rank = w.ranks[size_t(r)];
    const bool hears = w.ending && runs(rank) && rank.doing == Doing::kComputing;
    return hears && !std::exchange(memory.stop_requested, true);
  }
  bool crash(World& w, int r) const {
    Rank& rank = w.ranks[size_t(r)];
    if (rank.doing == Doing::kNothing || rank.crashed || w.crashes == limits_.crashes) return false;
    ++w.crashes;
    rank.crashed = true;
    return true;
  }
  bool hang(World& w, int r) const {
    Rank& rank = w.ranks[size_t(r)];
    if (!runs(rank) || rank.doing == Doing::kLoading || w.hangs == limits_.hangs) return false;
    ++w.hangs;
    rank.hangs = true;
    return true;
  }

  // ---- steps of the keeper ----

  bool reap(World& w, int r) const {
    Rank& rank = w.ranks[size_t(r)];
    if (!rank.crashed || is_cut_off(w, r)) return false;
    // As Keeper::rank_ended: first what it has said last.
    while (take_note(w, r)) {
    }
    rank = Rank();
    w.keeper.died(r);
    return true;
  }
  bool take_note(World& w, int r) const {
    Rank& rank = w.ranks[size_t(r)];
    if (is_cut_off(w, r)) return false;
    if (std::exchange(rank.said_ready, false)) {
      w.keeper.ready(r);
      return true;
    }
    if (std::exchange(rank.said_left, false)) {
      w.keeper.left(r, std::exchange(rank.left_epoch, uint8_t{0}));
      return true;
    }
    return false;
  }
  // The roll call: who does not leave is killed. Ranks that wait to join may hang as well; they are
  // found when they have joined.
  bool kill_late(World& w, int r) const {
    Rank& rank = w.ranks[size_t(r)];
    const State state = w.keeper.state();
    // What is left when the service ends has the time of grace.
    const bool called = state == State::kBroken || state == State::kClosing || w.ending;
    const bool is_late =
        w.keeper.place(r) == Place::kEnding || (called && w.keeper.place(r) == Place::kMember);
    if (!is_late || is_cut_off(w, r) || !rank.hangs || rank.crashed) return false;
    rank.crashed = true;
    return true;
  }
  // Keeper::step, as a whole: the keeper has one thread.
  bool act(World& w) const {
    const World before = w;
    for (const int r : w.keeper.surplus()) {
      if (w.keeper.place(r) == Place::kWaiting) retire(w, r);
    }
    if (w.ending) {
      for (const int r : w.keeper.waiting()) retire(w, r);
      if (w.keeper.members().epoch > 0) {
        for (const int r : w.keeper.starting()) end(w, r);
      }
    }
    for (const int r : w.keeper.missing()) {
      if (w.ending || is_cut_off(w, r)) continue;
      w.keeper.started(r);
      tell(w, {ToNode::Kind::kStart, uint8_t(r), 0}, node_of(r));
    }
    if (!w.ending) w.keeper.close();
    const auto epoch = uint8_t(w.keeper.members().epoch);
    if (w.keeper.state() == State::kClosing && !std::exchange(w.said_closing, true)) {
      tell(w, {ToNode::Kind::kClosing, epoch, 0});
    }
    if (w.keeper.state() == State::kBroken && !std::exchange(w.said_broken, true)) {
      tell(w, {ToNode::Kind::kBroken, epoch, 0});
    }
    if (epoch < limits_.epochs && !w.ending) {
      if (const auto members = w.keeper.form()) {
        uint8_t bits = 0;
        for (const int r : members->ranks) bits |= uint8_t(1 << r);
        w.said_closing = w.said_broken = false;
        tell(w, {ToNode::Kind::kEpoch, uint8_t(members->epoch), bits});
      }
    }
    return w.key(limits_.ranks) != before.key(limits_.ranks);
  }
  static void retire(World& w, int r) {
    w.keeper.retired(r);
    w.ranks[size_t(r)].ends = true;
  }
  // Killed and reaped. What was on its way to it on the other node finds nobody.
  void end(World& w, int r) const {
    w.ranks[size_t(r)] = Rank();
    w.keeper.died(r);
    const auto starts_it = [r](const ToNode& each) {
      return each.kind == ToNode::Kind::kStart && each.epoch == r;
    };
    const auto last = w.messages.begin() + w.num_messages;
    const auto kept = std::remove_if(w.messages.begin(), last, starts_it);
    std::fill(kept, last, ToNode());
    w.num_messages = uint8_t(kept - w.messages.begin());
  }
  // To the ranks of the keeper's node at once, to the others by a message. node: only to that.
  void tell(World& w, const ToNode& message, std::optional<int> node = std::nullopt) const {
    if (node != 1) apply(w, 0, message);
    if (node == 0) return;
    if (limits_.second_node >= limits_.ranks || w.is_cut) return;
    ASSERT_LT(w.num_messages, w.messages.size());
    w.messages[w.num_messages++] = message;
  }
  // As RankHost does.
  void apply(World& w, int node, const ToNode& message) const {
    Memory& memory = w.memories[size_t(node)];
    if (message.kind == ToNode::Kind::kStart) {
      w.ranks[message.epoch] = Rank();
      w.ranks[message.epoch].doing = Doing::kLoading;
    }
    if (message.kind == ToNode::Kind::kClosing) memory.change_requested = true;
    if (message.kind == ToNode::Kind::kBroken) memory.broken_epoch = message.epoch;
    if (message.kind != ToNode::Kind::kEpoch) return;
    memory = {.epoch = message.epoch,
              .broken_epoch = memory.broken_epoch,
              .stop_requested = memory.stop_requested};
    for (int r = 0; r < limits_.ranks; ++r) {
      Rank& rank = w.ranks[size_t(r)];
      if (node_of(r) != node) continue;
      EXPECT_NE(rank.doing, Doing::kComputing) << "cleared while a rank computes";
      if ((message.members >> r & 1) == 0 || rank.doing == Doing::kNothing) continue;
      rank.asked_to_go = message.epoch;
      rank.joins_members = message.members;
    }
  }

  // ---- steps of the second node ----

  bool deliver(World& w) const {
    if (w.num_messages == 0 || w.is_cut) return false;
    apply(w, 1, w.messages[0]);
    std::copy(w.messages.begin() + 1, w.messages.end(), w.messages.begin());
    w.messages[--w.num_messages] = {};
    return true;
  }
  // The keeper finds it silent: its ranks have died. They may go on for a while.
  bool cut(World& w) const {
    if (w.is_cut || w.cuts == limits_.cuts || w.keeper.members().epoch == 0) return false;
    ++w.cuts;
    w.is_cut = true;
    w.messages = {};
    w.num_messages = 0;
    for (int r = limits_.second_node; r < limits_.ranks; ++r) {
      if (w.keeper.place(r) != Place::kAbsent) w.keeper.died(r);
      Rank& rank = w.ranks[size_t(r)];
      rank.said_ready = rank.said_left = false;
    }
    return true;
  }
  // It finds the keeper silent.
  bool end_cut_off(World& w) const {
    if (!w.is_cut) return false;
    bool had_ranks = false;
    for (int r = limits_.second_node; r < limits_.ranks; ++r) {
      had_ranks |= w.ranks[size_t(r)].doing != Doing::kNothing;
      w.ranks[size_t(r)] = Rank();
    }
    return had_ranks;
  }
  bool connect_again(World& w) const {
    if (!w.is_cut) return false;
    for (int r = limits_.second_node; r < limits_.ranks; ++r) {
      if (w.ranks[size_t(r)].doing != Doing::kNothing) return false;
    }
    w.is_cut = false;
    w.memories[1] = {};
    return true;
  }

  bool wish(World& w) const {
    if (w.wishes == limits_.wishes.size() || w.keeper.members().epoch == 0) return false;
    w.keeper.want(limits_.wishes[w.wishes++]);
    return true;
  }

  // Keeper::replace_front: all ranks begin anew with another one.
  bool front_dies(World& w) const {
    if (w.fronts == limits_.fronts || w.ending || w.keeper.members().epoch == 0) return false;
    ++w.fronts;
    w.keeper.break_up();
    return true;
  }
  // After a stop signal the last request has ended.
  bool stop(World& w) const {
    if (w.stops == limits_.stops || w.keeper.members().epoch == 0) return false;
    ++w.stops;
    w.ending = true;
    w.memories[0].stop_requested = true;  // by the front, which shares it
    return true;
  }

  // Of the words of an agreement.
  static constexpr uint8_t kLeaves = 1, kStops = 2;

  Limits limits_;
  std::vector<World> open_;
  std::unordered_set<std::string> seen_;
  size_t looked_at_ = 0;
  int max_epochs_ = 0;
};

void explore(const Limits& limits) {
  Explorer explorer(limits);
  explorer.explore();
  EXPECT_EQ(explorer.max_epochs(), limits.epochs);
  testing::Test::RecordProperty("states", int(explorer.num_states()));
  std::printf("%zu states\n", explorer.num_states());
}

// The larger spaces take a sanitizer minutes, and run the same code.
#define WIDEEP_SKIP_IF_SANITIZED() \
  if (base::kSanitized) GTEST_SKIP() << "the sanitizers look at the smaller models"

TEST(MembersModelTest, TwoRanksCrashTwice) { explore({.ranks = 2, .crashes = 2}); }

TEST(MembersModelTest, ThreeRanksCrashAndHang) {
  WIDEEP_SKIP_IF_SANITIZED();
  explore({.ranks = 3, .first_wanted = 3, .crashes = 1, .hangs = 1, .epochs = 3});
}

TEST(MembersModelTest, FourRanksCrash) {
  WIDEEP_SKIP_IF_SANITIZED();
  explore({.ranks = 4, .first_wanted = 4, .crashes = 1, .epochs = 3});
}

// The others wait for the return of the one that they need.
TEST(MembersModelTest, AllAreNeeded) {
  explore({.ranks = 3, .min = 3, .first_wanted = 3, .crashes = 2, .epochs = 3});
}

TEST(MembersModelTest, GrowAndShrinkWhileOneCrashes) {
  WIDEEP_SKIP_IF_SANITIZED();
  explore({.ranks = 3, .first_wanted = 2, .crashes = 1, .wishes = {3, 1}, .epochs = 4});
}

TEST(MembersModelTest, TwoNodesWhoseRanksCrash) {
  WIDEEP_SKIP_IF_SANITIZED();
  explore({.ranks = 3, .first_wanted = 3, .crashes = 1, .epochs = 3, .second_node = 2});
}

TEST(MembersModelTest, ANodeIsCutOff) {
  explore({.ranks = 3, .first_wanted = 3, .crashes = 0, .epochs = 3, .second_node = 1, .cuts = 1});
}

TEST(MembersModelTest, ANodeIsCutOffWhileARankCrashes) {
  explore({.ranks = 2, .crashes = 1, .epochs = 4, .second_node = 1, .cuts = 1});
}

TEST(MembersModelTest, TwoNodesGrowAndShrinkWhileOneIsCutOff) {
  WIDEEP_SKIP_IF_SANITIZED();
  explore({.ranks = 3,
           .first_wanted = 2,
           .crashes = 0,
           .wishes = {3, 1},
           .epochs = 4,
           .second_node = 2,
           .cuts = 1});
}

TEST(MembersModelTest, AFrontDiesAndARankCrashes) {
  explore({.ranks = 2, .crashes = 1, .epochs = 4, .fronts = 1});
}

// Each of them before, while and after the others.
TEST(MembersModelTest, TheServiceEndsWhileRanksAndTheFrontDieAndTheNumberChanges) {
  WIDEEP_SKIP_IF_SANITIZED();
  explore({.ranks = 3,
           .first_wanted = 2,
           .crashes = 1,
           .wishes = {3},
           .epochs = 4,
           .fronts = 1,
           .stops = 1});
}

TEST(MembersModelTest, TheServiceEndsWhileARankHangsOrCrashes) {
  explore({.ranks = 2, .crashes = 1, .hangs = 1, .epochs = 3, .stops = 1});
}

TEST(MembersModelTest, TheServiceEndsWhereAllAreNeeded) {
  explore({.ranks = 3, .min = 3, .first_wanted = 3, .crashes = 1, .epochs = 2, .stops = 1});
}

TEST(MembersModelTest, TwoNodesEndWhileOneIsCutOffOrARankCrashes) {
  WIDEEP_SKIP_IF_SANITIZED();
  explore({.ranks = 2,
           .crashes = 1,
           .epochs = 3,
           .second_node = 1,
           .cuts = 1,
           .fronts = 1,
           .stops = 1});
}

// ---- single rules ----

Membership started(int wanted, int min = 1) {
  Membership members(wanted, wanted, min);
  for (int rank = 0; rank < wanted; ++rank) {
    members.started(rank);
    members.ready(rank);
  }
  return members;
}

TEST(MembershipTest, TheFirstEpochNeedsAllThatAreWanted) {
  Membership members(3, 3, 1);
  members.started(0);
  members.ready(0);
  EXPECT_FALSE(members.form());
  for (const int rank : {1, 2}) {
    members.started(rank);
    members.ready(rank);
  }
  EXPECT_THAT(members.form()->ranks, ElementsAre(0, 1, 2));
}

TEST(MembershipTest, ADeathBreaksTheEpochAndTheNextOneWaitsForAllToLeave) {
  Membership members = started(3);
  ASSERT_TRUE(members.form());
  members.died(1);
  EXPECT_EQ(members.state(), State::kBroken);
  members.left(0, 1);
  EXPECT_FALSE(members.form());
  EXPECT_THAT(members.inside(), ElementsAre(2));
  members.left(2, 1);
  EXPECT_THAT(members.form()->ranks, ElementsAre(0, 2));
  EXPECT_THAT(members.missing(), ElementsAre(1));
}

TEST(MembershipTest, LeavingAnEpochThatIsOverHasNoEffect) {
  Membership members = started(2);
  ASSERT_TRUE(members.form());
  members.left(0, 7);
  EXPECT_EQ(members.state(), State::kIntact);
}

TEST(MembershipTest, AReturnClosesTheEpochOnceNoOtherRankStarts) {
  Membership members = started(3);
  ASSERT_TRUE(members.form());
  for (const int rank : {0, 1}) members.died(rank);
  members.left(2, 1);
  ASSERT_TRUE(members.form());
  for (const int rank : {0, 1}) members.started(rank);
  members.ready(0);
  EXPECT_FALSE(members.close());
  members.ready(1);
  EXPECT_TRUE(members.close());
  members.left(2, 2);
  EXPECT_THAT(members.form()->ranks, ElementsAre(0, 1, 2));
}

TEST(MembershipTest, FewerThanTheLeastFormNothing) {
  Membership members = started(3, 3);
  ASSERT_TRUE(members.form());
  members.died(0);
  for (const int rank : {1, 2}) members.left(rank, 1);
  EXPECT_FALSE(members.form());
  members.started(0);
  members.ready(0);
  EXPECT_TRUE(members.form());
}

TEST(MembershipTest, RanksThatAreNotWantedAreSurplusWhenTheyHaveLeft) {
  Membership members = started(3);
  ASSERT_TRUE(members.form());
  members.want(2);
  EXPECT_TRUE(members.surplus().empty());
  EXPECT_TRUE(members.close());
  for (const int rank : {0, 1, 2}) members.left(rank, 1);
  EXPECT_THAT(members.surplus(), ElementsAre(2));
  EXPECT_THAT(members.form()->ranks, ElementsAre(0, 1));
}

// Of three ranks, of which the last has left the others' group.
Membership shrunk_to_two() {
  Membership members = started(3);
  EXPECT_TRUE(members.form());
  members.want(2);
  EXPECT_TRUE(members.close());
  for (const int rank : {0, 1, 2}) members.left(rank, 1);
  EXPECT_TRUE(members.form());
  return members;
}

// Not even if it is wanted again: another one takes its place when it has ended.
TEST(MembershipTest, ARankThatEndsIsNotTakenInAgain) {
  Membership members = shrunk_to_two();
  members.retired(2);
  EXPECT_TRUE(members.surplus().empty());
  members.want(3);
  EXPECT_FALSE(members.close());
  EXPECT_TRUE(members.missing().empty());
  members.died(2);
  EXPECT_EQ(members.state(), State::kIntact);
  EXPECT_THAT(members.missing(), ElementsAre(2));
}

// One that was told to end may take a while.
TEST(MembershipTest, ARankThatIsNotWantedAnyMoreNeitherJoinsNorHoldsUpOthers) {
  Membership members = shrunk_to_two();
  EXPECT_FALSE(members.close()) << "rank 2 is still there";
  members.died(1);
  members.left(0, 2);
  ASSERT_TRUE(members.form());
  members.started(1);
  members.ready(1);
  EXPECT_TRUE(members.close());
}

TEST(MembershipTest, SetsOfRanksHaveRoomForSoMany) {
  EXPECT_TRUE(check_max_ranks(kMaxRanks).ok());
  EXPECT_THAT(check_max_ranks(kMaxRanks + 1).message(),
              testing::HasSubstr("expected at most 1024 ranks, found 1025"));
}

}  // namespace
}  // namespace wideep::transport
