// SPDX-License-Identifier: Apache-2.0
//
// A group with other members counts from zero, and a counter of Prometheus must not fall: so the
// last reading of each earlier group is added. That the group has changed is found by reading,
// hence the mutable members. That a thread is silent is told before whether balancing rests: what a
// thread that does nothing has decided says little.
#include "server/balancer_state.h"

#include <fmt/format.h>

#include "server/prometheus_text.h"

namespace wideep::server {
namespace {

using State = BalancerState::State;

}  // namespace

std::string_view name_of(State state) {
  switch (state) {
    case State::kOff:
      return "off";
    case State::kActive:
      return "active";
    case State::kResting:
      return "resting";
    case State::kSilent:
      break;
  }
  return "silent";
}

void BalancerState::take(const run::BackgroundSilence& silence) {
  const std::pair thread(silence.stage, silence.rank);
  if (silence.is_over) {
    silent_.erase(thread);
  } else {
    silent_.insert(thread);
  }
}

// Another group counts from zero. What was counted after the last reading of the one before is
// lost.
BalancerState::Counted BalancerState::counted() const {
  const run::OnlineTotals read = read_();
  const Counted now{read.ledger, read.hash_failures, read.lent_copies};
  if (read.group != group_) before_ += last_;
  group_ = read.group;
  last_ = now;
  Counted all = before_;
  all += now;
  return all;
}

BalancerState::Counted& BalancerState::Counted::operator+=(const Counted& other) {
  ledger += other.ledger;
  hash_failures += other.hash_failures;
  lent_copies += other.lent_copies;
  return *this;
}

State BalancerState::state() const {
  if (!read_) return State::kOff;
  if (!silent_.empty()) return State::kSilent;
  return read_().resting > 0 ? State::kResting : State::kActive;
}

std::string BalancerState::metrics(const RecentImbalance& imbalance) const {
  std::string text =
      metric("wideep_ep_imbalance", "gauge",
             "Load of the busiest rank over the mean, less 1: mean over layers, last "
             "minute.",
             imbalance.ratio);
  if (imbalance.without_moves) {
    text += metric("wideep_ep_imbalance_without_moves", "gauge",
                   "The same with experts in their initial slots.", *imbalance.without_moves);
  }
  constexpr std::string_view kState = "wideep_ep_balancer_state";
  text += metric_head(kState, "gauge", "1: the state of online balancing.");
  const State now = state();
  for (const State each : {State::kOff, State::kActive, State::kResting, State::kSilent}) {
    text += fmt::format("{}{{state=\"{}\"}} {}\n", kState, name_of(each), each == now ? 1 : 0);
  }
  if (!read_) return text;
  const Counted all = counted();
  const online::LedgerSums& sums = all.ledger;
  return text +
         metric("wideep_ep_expected_gain_seconds_total", "counter",
                "Critical-path time that moves were expected to save.", sums.expected_seconds) +
         metric("wideep_ep_gain_seconds_total", "counter",
                "Critical-path time that moves have saved.", sums.saved_seconds) +
         metric("wideep_ep_loss_seconds_total", "counter",
                "Critical-path time of iterations that moves have made slower.",
                sums.lost_seconds) +
         metric("wideep_ep_cost_seconds_total", "counter",
                "Processor time of all background threads of balancing: planning, copying, "
                "checking and "
                "publishing.",
                sums.paid_seconds) +
         metric("wideep_ep_copies_with_wrong_hash_total", "counter",
                "Copies of experts that were thrown away.", all.hash_failures) +
         metric("wideep_ep_late_copies_total", "counter",
                "Copies of experts that were late, and were made with normal priority for it.",
                all.lent_copies);
}

nlohmann::ordered_json BalancerState::json() const {
  nlohmann::ordered_json json = {{"state", name_of(state())}};
  if (!read_) return json;
  const online::LedgerSums sums = counted().ledger;
  json["expected_seconds"] = sums.expected_seconds;
  json["saved_seconds"] = sums.saved_seconds;
  json["lost_seconds"] = sums.lost_seconds;
  json["paid_seconds"] = sums.paid_seconds;
  return json;
}

}  // namespace wideep::server
