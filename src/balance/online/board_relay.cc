// SPDX-License-Identifier: Apache-2.0
//
// A notice is a header and a body, copied as they lie in memory: all nodes run the same program.
// It repeats whole counters instead of what was added to them, so one that is lost or late needs
// no repair. Every length and index is compared with the board before anything is written, for a
// wrong plan would be served. A rank with the balancer sends one notice per node, not per rank.
#include "online/board_relay.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/cpu_time.h"

namespace wideep::online {
namespace {

using transport::Bytes;

enum class Kind : int32_t { kPlan, kUpdater, kBalancer };

struct NoticeHeader {
  Kind kind;
  int32_t group;
  int32_t index;       // kPlan: the layer; kUpdater: the rank
  int32_t num_shares;  // kPlan
};

// Clocks of nodes differ, so times are sent as ages.
struct UpdaterNotice {
  int64_t heartbeat_age_ns, copied_experts, copied_bytes, copy_ns, cpu_ns, hash_failures;
  int64_t lent_copies, refused_loans, lender_cpu_ns;
};
struct BalancerNotice {
  int64_t heartbeat_age_ns, plan_age_ns;  // plan_age_ns −1: no plan yet
  int64_t plans, published, cancelled, refused, moves, bytes;
  int64_t expected_ns, saved_ns, lost_ns, paid_ns, rests;
};

template <typename T>
void append(Bytes& bytes, std::span<const T> values) {
  const auto added = std::as_bytes(values);
  bytes.insert(bytes.end(), added.begin(), added.end());
}
template <typename T>
void append(Bytes& bytes, const T& value) {
  append(bytes, std::span(&value, 1));
}

// nullopt: there are fewer bytes.
template <typename T>
std::optional<T> read(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// False: the board has no such layer, or other slots.
bool post_plan(const NoticeHeader& header, std::span<const std::byte> body, UpdateBoard& board) {
  const BoardShape& shape = board.shape();
  const auto num_slots = static_cast<size_t>(shape.num_slots);
  const auto num_shares = static_cast<size_t>(header.num_shares);
  if (header.index < 0 || header.index >= shape.num_layers ||
      (num_shares != 0 && num_shares != num_slots) ||
      body.size() != num_slots * sizeof(int32_t) + num_shares * sizeof(double)) {
    return false;
  }
  std::vector<int32_t> slots(num_slots);
  std::vector<double> shares(num_shares);
  std::memcpy(slots.data(), body.data(), num_slots * sizeof(int32_t));
  if (num_shares > 0) {
    std::memcpy(shares.data(), body.data() + num_slots * sizeof(int32_t),
                num_shares * sizeof(double));
  }
  board.post(header.index, slots, shares);
  return true;
}

void store_updater_counters(const UpdaterNotice& received, UpdaterCounters& counters) {
  counters.heartbeat_ns = base::wall_ns() - received.heartbeat_age_ns;
  counters.copied_experts = received.copied_experts;
  counters.copied_bytes = received.copied_bytes;
  counters.copy_ns = received.copy_ns;
  counters.cpu_ns = received.cpu_ns;
  counters.hash_failures = received.hash_failures;
  counters.lent_copies = received.lent_copies;
  counters.refused_loans = received.refused_loans;
  counters.lender_cpu_ns = received.lender_cpu_ns;
}

void store_balancer_counters(const BalancerNotice& received, BalancerCounters& counters) {
  counters.heartbeat_ns = base::wall_ns() - received.heartbeat_age_ns;
  if (received.plan_age_ns >= 0) counters.last_plan_ns = base::wall_ns() - received.plan_age_ns;
  counters.plans = received.plans;
  counters.published = received.published;
  counters.cancelled = received.cancelled;
  counters.refused = received.refused;
  counters.moves = received.moves;
  counters.bytes = received.bytes;
  counters.expected_ns = received.expected_ns;
  counters.saved_ns = received.saved_ns;
  counters.lost_ns = received.lost_ns;
  counters.paid_ns = received.paid_ns;
  counters.rests = received.rests != 0;
}

int first_member(const transport::NodeMap& nodes) {
  int rank = 0;
  while (nodes.node_of(rank) == transport::NodeMap::kAbsent) ++rank;
  return rank;
}

}  // namespace

BoardRelay::BoardRelay(transport::Bridge& bridge, const UpdateBoard& board, int group,
                       std::span<const int> ranks, int rank)
    : bridge_(bridge),
      board_(board),
      group_(group),
      rank_(rank),
      home_(bridge.nodes().node_of(first_member(bridge.nodes()))) {
  for (const int each : ranks) {
    WIDEEP_CHECK_NE(bridge.nodes().node_of(each), transport::NodeMap::kAbsent);
    if (!bridge.is_on_this_node(each)) others_.push_back(bridge.nodes().node_of(each));
  }
  // One message per node, not per rank.
  std::sort(others_.begin(), others_.end());
  others_.erase(std::unique(others_.begin(), others_.end()), others_.end());
}

void BoardRelay::send_plan(int layer) const {
  if (others_.empty()) return;
  const std::span<const double> shares = board_.shares(layer);
  Bytes notice;
  append(notice, NoticeHeader{.kind = Kind::kPlan,
                              .group = group_,
                              .index = layer,
                              .num_shares = static_cast<int32_t>(shares.size())});
  append(notice, board_.slot_to_expert(layer));
  append(notice, shares);
  for (const int node : others_) bridge_.notify(node, notice);
}

void BoardRelay::send_updater_counters() const {
  if (is_home()) return;
  const UpdaterCounters& counters = board_.updater(rank_);
  Bytes notice;
  append(notice,
         NoticeHeader{.kind = Kind::kUpdater, .group = group_, .index = rank_, .num_shares = 0});
  append(notice, UpdaterNotice{.heartbeat_age_ns = base::wall_ns() - counters.heartbeat_ns,
                               .copied_experts = counters.copied_experts,
                               .copied_bytes = counters.copied_bytes,
                               .copy_ns = counters.copy_ns,
                               .cpu_ns = counters.cpu_ns,
                               .hash_failures = counters.hash_failures,
                               .lent_copies = counters.lent_copies,
                               .refused_loans = counters.refused_loans,
                               .lender_cpu_ns = counters.lender_cpu_ns});
  bridge_.notify(home_, std::move(notice));
}

void BoardRelay::send_balancer_counters() const {
  if (is_home()) return;
  const BalancerCounters& counters = board_.balancer();
  const int64_t now_ns = base::wall_ns(), last_plan_ns = counters.last_plan_ns;
  Bytes notice;
  append(notice,
         NoticeHeader{.kind = Kind::kBalancer, .group = group_, .index = 0, .num_shares = 0});
  append(notice, BalancerNotice{.heartbeat_age_ns = now_ns - counters.heartbeat_ns,
                                .plan_age_ns = last_plan_ns > 0 ? now_ns - last_plan_ns : -1,
                                .plans = counters.plans,
                                .published = counters.published,
                                .cancelled = counters.cancelled,
                                .refused = counters.refused,
                                .moves = counters.moves,
                                .bytes = counters.bytes,
                                .expected_ns = counters.expected_ns,
                                .saved_ns = counters.saved_ns,
                                .lost_ns = counters.lost_ns,
                                .paid_ns = counters.paid_ns,
                                .rests = counters.rests ? 1 : 0});
  bridge_.notify(home_, std::move(notice));
}

bool apply_notice(std::span<const std::byte> notice, std::span<UpdateBoard* const> boards) {
  const auto header = read<NoticeHeader>(notice);
  if (!header || header->group < 0 || static_cast<size_t>(header->group) >= boards.size()) {
    return false;
  }
  const std::span<const std::byte> body = notice.subspan(sizeof(*header));
  UpdateBoard* board = boards[static_cast<size_t>(header->group)];
  // A proxy serves all groups of its peer node; this node may have no rank of this one.
  if (board == nullptr) return true;
  switch (header->kind) {
    case Kind::kPlan:
      return post_plan(*header, body, *board);
    case Kind::kUpdater: {
      const auto counters = read<UpdaterNotice>(body);
      const bool is_right =
          counters && header->index >= 0 && header->index < board->shape().num_ranks;
      if (is_right) store_updater_counters(*counters, board->updater(header->index));
      return is_right;
    }
    case Kind::kBalancer: {
      const auto counters = read<BalancerNotice>(body);
      if (counters) store_balancer_counters(*counters, board->balancer());
      return counters.has_value();
    }
  }
  return false;
}

}  // namespace wideep::online
