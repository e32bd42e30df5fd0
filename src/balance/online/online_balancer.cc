// SPDX-License-Identifier: Apache-2.0
//
// One loop: settle what has ended, decide on new loads, post what fits. Ended steps come first,
// since they free records and layers for the decision that follows.
//
//   policy's update ─▶ steps that fit the spare records ─▶ board ─▶ outcome of rank 0 ─▶ next step
//
// Spare records are accounted for here and not asked of the ranks: every rank's record is taken
// when a step is posted and free when it ends. An update that does not fit waits, and no later one
// overtakes it, or one with many moves would never be posted. A balancer that rests still passes
// all loads to the policy, which is told that every layer is busy: its memory of loads goes on.
#include "online/online_balancer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/cpu_time.h"
#include "base/trace.h"
#include "online/background_thread.h"
#include "online/plan_steps.h"

namespace wideep::online {
namespace {

// Without updates the thread sleeps at least this many times as long as it worked: if ranks compute
// on every processor, its work slows one of them down.
constexpr int kSleepPerWork = 1000;
constexpr std::chrono::milliseconds kLongestSleep{50};
// To the node that reports them, so that it sees that the thread runs.
constexpr int64_t kSendIntervalNs = 1'000'000'000;

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

OnlineBalancer::OnlineBalancer(UpdateBoard& board, const weights::HostPool& pool,
                               const WeightUpdater& own, std::vector<balance::Placement> placements,
                               UpdatePolicy& policy,
                               std::function<void(const Rebalance&)> on_rebalance,
                               std::function<void(const TrustChange&)> on_trust_change,
                               BalancerOptions options, const BoardRelay* relay)
    : board_(board),
      pool_(pool),
      own_(own),
      placements_(std::move(placements)),
      policy_(policy),
      on_rebalance_(std::move(on_rebalance)),
      on_trust_change_(std::move(on_trust_change)),
      options_(std::move(options)),
      relay_(relay),
      mailbox_(pool.num_layers(), pool.num_experts()),
      paid_ns_of_ranks_(static_cast<size_t>(board.shape().num_ranks)),
      busy_(placements_.size()),
      all_busy_(placements_.size(), 1),
      free_records_(static_cast<size_t>(board.shape().owners()), options_.num_spares) {
  if (options_.ledger.trial_rows > 0) {
    options_.ledger.num_ranks = board.shape().owners();
    ledger_.emplace(placements_, options_.ledger);
  }
  thread_ = std::thread(
      [this, trace = base::trace_of_thread.on_lane(base::Lane::kBalancer, options_.layers)] {
        base::trace_of_thread = trace;
        run();
      });
}

OnlineBalancer::~OnlineBalancer() {
  stop_ = true;
  thread_.join();
}

void OnlineBalancer::run() {
  become_background_thread("wideep-balance", options_.processors);
  while (!stop_) {
    const int64_t start_ns = base::thread_cpu_ns();
    board_.balancer().heartbeat_ns = base::wall_ns();
    pay_for_threads();
    // Ended steps first: they free records and layers for the decision that follows.
    settle();
    if (const GroupLoads* loads = mailbox_.look(); loads != nullptr) {
      keep_ledger(*loads);
      decide(*loads);
      mailbox_.done();
    }
    post_what_fits();
    show_ledger();
    if (base::wall_ns() - counters_sent_ns_ > kSendIntervalNs) send_counters();
    std::this_thread::sleep_for(sleep_after(base::thread_cpu_ns() - start_ns));
  }
  pay_for_threads();
  show_ledger();
  send_counters();
}

void OnlineBalancer::send_counters() {
  if (relay_ != nullptr) relay_->send_balancer_counters();
  counters_sent_ns_ = base::wall_ns();
}

std::chrono::nanoseconds OnlineBalancer::sleep_after(int64_t work_ns) const {
  const std::chrono::nanoseconds shortest = options_.look_interval;
  if (!updates_.empty()) return shortest;
  const std::chrono::nanoseconds fair(work_ns * kSleepPerWork);
  return std::max(shortest, std::min<std::chrono::nanoseconds>(fair, kLongestSleep));
}

// ---- what moves have brought ----

// All that the group's background threads have done since the last call: this thread's planning,
// publishing and looking, and every rank's copying and hashing. A thread's own clock counts what it
// got of a processor, and nothing of what others did meanwhile.
void OnlineBalancer::pay_for_threads() {
  if (!ledger_) return;
  const int64_t own_ns = base::thread_cpu_ns();
  int64_t spent_ns = own_ns - std::exchange(paid_ns_, own_ns);
  for (size_t rank = 0; rank < paid_ns_of_ranks_.size(); ++rank) {
    const UpdaterCounters& updater = board_.updater(static_cast<int>(rank));
    const int64_t now_ns = updater.cpu_ns + updater.lender_cpu_ns;
    spent_ns += now_ns - std::exchange(paid_ns_of_ranks_[rank], now_ns);
  }
  ledger_->pay(1e-9 * static_cast<double>(spent_ns));
}

void OnlineBalancer::keep_ledger(const GroupLoads& loads) {
  if (!ledger_) return;
  const auto verdict = ledger_->add(loads, options_.top_k);
  if (!verdict) return;
  show_ledger();
  send_counters();
  if (on_trust_change_) {
    on_trust_change_({loads.first_iteration + loads.num_iterations, *verdict});
  }
}

void OnlineBalancer::show_ledger() {
  if (!ledger_) return;
  const LedgerSums& sums = ledger_->sums();
  BalancerCounters& counters = board_.balancer();
  counters.expected_ns = nanoseconds(sums.expected_seconds);
  counters.saved_ns = nanoseconds(sums.saved_seconds);
  counters.lost_ns = nanoseconds(sums.lost_seconds);
  counters.paid_ns = nanoseconds(sums.paid_seconds);
  counters.rests = ledger_->rests();
}

// ---- from loads to updates ----

void OnlineBalancer::decide(const GroupLoads& loads) {
  const base::TraceSpan span(base::Span::kDecide);
  const size_t num_experts = loads.tokens.size() / placements_.size();
  for (size_t layer = 0; layer < placements_.size(); ++layer) {
    policy_.add_counts(static_cast<int>(layer),
                       std::span(loads.tokens).subspan(layer * num_experts, num_experts));
  }
  // Sums of several iterations count as one iteration of the policy.
  const std::span<const LayerUpdate> updates =
      policy_.end_iteration(placements_, rests() ? all_busy_ : busy_);
  std::vector<const LayerUpdate*> sound;
  for (const LayerUpdate& update : updates) {
    if (!is_sound(update)) {
      ++board_.balancer().refused;
      continue;
    }
    busy_[update.layer_idx] = 1;
    sound.push_back(&update);
  }
  if (sound.empty()) return;
  const auto decision = std::make_shared<Decision>();
  decision->open = static_cast<int>(sound.size());
  decision->start_ns = base::wall_ns();
  decision->so_far.decided = loads.first_iteration + loads.num_iterations - 1;
  decision->before = copies();
  for (const LayerUpdate* update : sound) {
    decision->so_far.imbalance_before += update->imbalance_before / decision->open;
    decision->so_far.imbalance_after += update->imbalance_after / decision->open;
    updates_.push_back({.decision = decision,
                        .layer = update->layer_idx,
                        .gain = update->imbalance_before - update->imbalance_after,
                        .target = update->plan,
                        .urgent = update->urgent});
  }
  board_.balancer().plans += decision->open;
  board_.balancer().last_plan_ns = decision->start_ns;
}

// A policy may be anybody's. What is served stays a placement, whatever it returns.
bool OnlineBalancer::is_sound(const LayerUpdate& update) const {
  const auto layer = static_cast<size_t>(update.layer_idx);
  if (update.layer_idx < 0 || layer >= placements_.size() || busy_[layer] != 0) return false;
  const balance::Placement& now = placements_[layer];
  const balance::Placement& target = update.plan.placement;
  const std::vector<double>& shares = update.plan.shares;
  return target.num_experts == now.num_experts && target.ep_size == now.ep_size &&
         target.slot_to_expert.size() == now.slot_to_expert.size() &&
         balance::check_placement(target).ok() &&
         (shares.empty() || balance::check_shares(target, shares).ok());
}

// ---- from updates to placements ----

void OnlineBalancer::post_what_fits() {
  int posted = static_cast<int>(std::count_if(
      updates_.begin(), updates_.end(), [](const Update& each) { return each.generation != 0; }));
  for (Update& update : updates_) {
    if (update.generation != 0) continue;
    if (posted >= options_.layers_in_flight && !update.urgent) continue;
    if (post_step(update)) {
      ++posted;
    } else if (posted == 0) {
      cancel(update);  // all records are free, and still no step fits
    } else {
      break;  // wait for free records; a later update must not overtake this one
    }
  }
  std::erase_if(updates_, [](const Update& each) { return each.decision == nullptr; });
}

// False if no part of the update fits. An update without moves brings new shares: its step is the
// target. Shares belong to the target placement, so steps before it use equal ones.
bool OnlineBalancer::post_step(Update& update) {
  const std::vector<int32_t>& target = update.target.placement.slot_to_expert;
  const balance::Placement& now = placements_[update.layer];
  const std::vector<int32_t> step = next_step(now, target, free_records_);
  const bool arrives = step == target;
  if (!arrives && step == now.slot_to_expert) return false;
  update.records = changed_slots(now, step);
  for (size_t rank = 0; rank < free_records_.size(); ++rank) {
    free_records_[rank] -= update.records[rank];
  }
  const base::TraceSpan span(base::Span::kPost, update.layer);
  board_.post(update.layer, step,
              arrives ? std::span<const double>(update.target.shares) : std::span<const double>());
  update.generation = board_.generation(update.layer);
  if (relay_ != nullptr) relay_->send_plan(update.layer);
  return true;
}

// Removes updates whose last step has ended, and lets the others post their next step.
void OnlineBalancer::settle() {
  std::erase_if(updates_,
                [this](Update& update) { return update.generation != 0 && settle_step(update); });
}

// Returns true if the update has ended. Rank 0's outcome stands for all ranks: they decide from the
// same words before the same iteration.
bool OnlineBalancer::settle_step(Update& update) {
  const Outcome outcome = own_.outcome(update.layer);
  if (outcome.generation != update.generation) return false;
  for (size_t rank = 0; rank < free_records_.size(); ++rank) {
    free_records_[rank] += update.records[rank];
  }
  Rebalance& so_far = update.decision->so_far;
  so_far.iteration = std::max(so_far.iteration, outcome.iteration);
  if (!outcome.published) {
    cancel(update);
    return true;
  }
  const int moves = std::accumulate(update.records.begin(), update.records.end(), 0);
  // Ranks that share slots copy a slice each.
  const int64_t copies = int64_t{moves} * (board_.shape().num_ranks / board_.shape().owners());
  const int64_t bytes = copies * static_cast<int64_t>(pool_.shape().record_bytes());
  so_far.moves += moves;
  const int layer = options_.layers.empty() ? update.layer : options_.layers[update.layer];
  so_far.switches.push_back({layer, outcome.iteration, moves});
  so_far.bytes += bytes;
  board_.balancer().moves += moves;
  board_.balancer().bytes += bytes;
  const auto posted = board_.slot_to_expert(update.layer);
  // The step is now in service: the policy and the next step start from it.
  placements_[update.layer].slot_to_expert.assign(posted.begin(), posted.end());
  if (ledger_ && moves > 0) ledger_->switched(update.layer, placements_[update.layer], moves);
  update.generation = 0;
  if (placements_[update.layer] != update.target.placement) return false;  // its next step
  if (ledger_) so_far.expected_seconds += ledger_->expect(update.gain);
  ++so_far.layers;
  ++board_.balancer().published;
  end(update);
  return true;
}

void OnlineBalancer::cancel(Update& update) {
  ++update.decision->so_far.cancelled;
  ++board_.balancer().cancelled;
  end(update);
}

void OnlineBalancer::end(Update& update) {
  busy_[update.layer] = 0;
  const std::shared_ptr<Decision> decision = std::move(update.decision);
  // Reports once per decision, when its last update ends.
  if (--decision->open > 0) return;
  Rebalance& rebalance = decision->so_far;
  rebalance.seconds = static_cast<double>(base::wall_ns() - decision->start_ns) * 1e-9;
  const CopyTotals now = copies();
  rebalance.copy_seconds = static_cast<double>(now.copy_ns - decision->before.copy_ns) * 1e-9;
  rebalance.lent_copies = now.lent_copies - decision->before.lent_copies;
  rebalance.refused_loans = now.refused_loans - decision->before.refused_loans;
  if (ledger_) rebalance.ledger = ledger_->sums();
  send_counters();
  if (on_rebalance_) on_rebalance_(rebalance);
}

OnlineBalancer::CopyTotals OnlineBalancer::copies() const {
  CopyTotals sum;
  for (int rank = 0; rank < board_.shape().num_ranks; ++rank) {
    const UpdaterCounters& updater = board_.updater(rank);
    sum.copy_ns += updater.copy_ns;
    sum.lent_copies += updater.lent_copies;
    sum.refused_loans += updater.refused_loans;
  }
  return sum;
}

}  // namespace wideep::online
