// SPDX-License-Identifier: Apache-2.0
#include "online/online_balancer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/cpu_time.h"
#include "online/background_thread.h"
#include "online/plan_steps.h"

namespace wideep::online {

OnlineBalancer::OnlineBalancer(UpdateBoard& board, const weights::HostPool& pool,
                               const WeightUpdater& own, std::vector<balance::Placement> placements,
                               PlanFunction plan,
                               std::function<void(const Rebalance&)> on_rebalance,
                               BalancerOptions options)
    : board_(board),
      pool_(pool),
      own_(own),
      placements_(std::move(placements)),
      plan_(std::move(plan)),
      on_rebalance_(std::move(on_rebalance)),
      options_(options),
      mailbox_(pool.num_layers(), pool.num_experts()),
      free_records_(static_cast<size_t>(board.shape().num_ranks), options.num_spares) {
  thread_ = std::thread([this] { run(); });
}

OnlineBalancer::~OnlineBalancer() {
  stop_ = true;
  thread_.join();
}

void OnlineBalancer::run() {
  become_background_thread("wideep-balance");
  while (!stop_) {
    board_.balancer().heartbeat_ns = base::wall_ns();
    settle();
    const GroupLoads* loads = mailbox_.look();
    if (loads != nullptr && waiting_.empty() && pending_.empty()) {
      decide(*loads);
      mailbox_.done();
    }
    post_what_fits();
    std::this_thread::sleep_for(options_.look_interval);
  }
}

// ---- from loads to plans ----

void OnlineBalancer::decide(const GroupLoads& loads) {
  std::vector<LayerPlan> plans = plan_(loads, placements_);
  if (plans.empty()) return;
  current_ = {};
  copy_ns_before_ = copy_ns();
  BalancerCounters& counters = board_.balancer();
  counters.plans += static_cast<int64_t>(plans.size());
  counters.last_plan_ns = base::wall_ns();
  for (LayerPlan& plan : plans) {
    current_.imbalance_before += plan.imbalance_before;
    current_.imbalance_after += plan.imbalance_after;
    waiting_.push_back(std::move(plan));
  }
  current_.imbalance_before /= static_cast<double>(plans.size());
  current_.imbalance_after /= static_cast<double>(plans.size());
}

// ---- from plans to placements ----

void OnlineBalancer::post_what_fits() {
  while (!waiting_.empty() && static_cast<int>(pending_.size()) < options_.layers_in_flight) {
    Pending next{.plan = waiting_.front()};
    if (!post_step(next)) {
      if (!pending_.empty()) return;  // more records will be free
      ++current_.cancelled;           // not even with all of them
      ++board_.balancer().cancelled;
      waiting_.pop_front();
      tell();
      continue;
    }
    waiting_.pop_front();
    pending_.push_back(std::move(next));
  }
}

// False where nothing of it fits. A plan that moves nothing is for its shares.
bool OnlineBalancer::post_step(Pending& pending) {
  const LayerPlan& plan = pending.plan;
  balance::Placement& now = placements_[plan.layer];
  const std::vector<int32_t> step = next_step(now, plan.slot_to_expert, free_records_);
  const bool arrives = step == plan.slot_to_expert;
  if (!arrives && step == now.slot_to_expert) return false;
  pending.records = changed_slots(now, step);
  for (size_t rank = 0; rank < free_records_.size(); ++rank) {
    free_records_[rank] -= pending.records[rank];
  }
  board_.post(plan.layer, step, arrives ? plan.shares : std::vector<double>());
  pending.generation = board_.generation(plan.layer);
  return true;
}

// Looks which steps have ended.
void OnlineBalancer::settle() {
  if (pending_.empty()) return;
  std::erase_if(pending_, [this](Pending& pending) { return settle_step(pending); });
  if (pending_.empty() && waiting_.empty()) tell();
}

// Whether the plan has ended with it.
bool OnlineBalancer::settle_step(Pending& pending) {
  const LayerPlan& plan = pending.plan;
  const Outcome outcome = own_.outcome(plan.layer);
  if (outcome.generation != pending.generation) return false;
  for (size_t rank = 0; rank < free_records_.size(); ++rank) {
    free_records_[rank] += pending.records[rank];
  }
  BalancerCounters& counters = board_.balancer();
  current_.iteration = std::max(current_.iteration, outcome.iteration);
  if (!outcome.published) {
    ++current_.cancelled;
    ++counters.cancelled;
    return true;
  }
  const int moves = std::accumulate(pending.records.begin(), pending.records.end(), 0);
  const int64_t bytes = moves * static_cast<int64_t>(pool_.shape().record_bytes());
  current_.moves += moves;
  current_.bytes += bytes;
  counters.moves += moves;
  counters.bytes += bytes;
  const auto posted = board_.slot_to_expert(plan.layer);
  placements_[plan.layer].slot_to_expert.assign(posted.begin(), posted.end());
  if (placements_[plan.layer].slot_to_expert != plan.slot_to_expert) {
    waiting_.push_front(std::move(pending.plan));  // its next step
    return true;
  }
  ++current_.layers;
  ++counters.published;
  return true;
}

void OnlineBalancer::tell() {
  if (!waiting_.empty() || !pending_.empty()) return;
  current_.copy_seconds = static_cast<double>(copy_ns() - copy_ns_before_) * 1e-9;
  if (on_rebalance_) on_rebalance_(current_);
}

int64_t OnlineBalancer::copy_ns() const {
  int64_t sum = 0;
  for (int rank = 0; rank < board_.shape().num_ranks; ++rank) {
    sum += board_.updater(rank).copy_ns;
  }
  return sum;
}

}  // namespace wideep::online
