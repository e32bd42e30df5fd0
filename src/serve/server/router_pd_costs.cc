// SPDX-License-Identifier: Apache-2.0
#include "server/router_pd_costs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "store/record.h"

namespace wideep::server {
namespace {

constexpr double kPage = store::kPageTokens;
// Where no server has measured its price: all are equal then, and only their work counts.
constexpr double kNominalPrice = 1e-3;

using Indices = std::vector<size_t>;

double price_of(const PdServer& server) { return server.price.value_or(kNominalPrice); }

double way_of(const PdServer& server) { return server.way.value_or(kTransferSecondsPerToken); }

// Before it begins with this prompt.
double queue_of(const PdServer& server) {
  const double beyond = std::clamp(server.kv_share - kFullShare, 0.0, 1.0 - kFullShare);
  return server.queued * price_of(server) + kRoomSeconds * beyond / (1.0 - kFullShare);
}

// What a server takes that has not measured it: what the others do.
double usual_price(std::span<const PdServer> servers) {
  double sum = 0, count = 0;
  for (const PdServer& each : servers) {
    if (!each.price) continue;
    sum += *each.price;
    ++count;
  }
  return count > 0 ? sum / count : kNominalPrice;
}

double new_tokens(const PdServer& server, double prompt_tokens) {
  return std::max(0.0, prompt_tokens - server.known);
}

double last_page(double prompt_tokens) {
  const double rest = std::fmod(prompt_tokens, kPage);
  return rest > 0 ? rest : std::min(prompt_tokens, kPage);
}

// Work in progress, in tokens.
double work_of(const PdServer& server) { return server.queued + server.running * kAnswerTokens; }

// Those of the lowest rank, the first of them as it is the turn. rank: nullopt: not to be chosen.
Indices best_of(size_t num_servers, size_t turn,
                const std::function<std::optional<int>(size_t)>& rank) {
  Indices best;
  int lowest = 0;
  for (size_t i = 0; i < num_servers; ++i) {
    const std::optional<int> found = rank(i);
    if (!found || (!best.empty() && *found > lowest)) continue;
    if (best.empty() || *found < lowest) best.clear();
    lowest = *found;
    best.push_back(i);
  }
  if (!best.empty()) {
    std::ranges::rotate(best, best.begin() + static_cast<ptrdiff_t>(turn % best.size()));
  }
  return best;
}

// Leaves the one that the rule says, or all where costs decide.
void apply(PlacementRule rule, std::span<const PdServer> servers, Indices* indices) {
  if (indices->size() < 2 || rule == PlacementRule::kKvCacheAware) return;
  size_t chosen = indices->front();
  if (rule == PlacementRule::kLoadBalancing) {
    chosen = *std::ranges::min_element(*indices, {},
                                       [&](size_t each) { return work_of(servers[each]); });
  }
  *indices = {chosen};
}

// nullopt: costs decide.
std::optional<bool> divides_by_rule(const PdServer& decode, double prompt_tokens,
                                    const DisaggregationOptions& options) {
  if (options.always) return true;
  const bool has_rule = options.max_local_prefill_length || options.eff_isl_threshold ||
                        options.eff_isl_ratio_threshold;
  if (!has_rule) return std::nullopt;
  const double tokens = new_tokens(decode, prompt_tokens);
  if (options.max_local_prefill_length &&
      prompt_tokens <= static_cast<double>(*options.max_local_prefill_length)) {
    return false;
  }
  if (options.eff_isl_threshold && tokens < static_cast<double>(*options.eff_isl_threshold)) {
    return false;
  }
  return !options.eff_isl_ratio_threshold ||
         tokens >= *options.eff_isl_ratio_threshold * prompt_tokens;
}

// The better of two plans, as far as it is looked at.
struct Best {
  PdPlan plan;
  double waiting = 0;

  void offer(const PdPlan& other, double its_waiting) {
    if (plan.decode != kNoReplica && its_waiting >= waiting) return;
    plan = other;
    waiting = its_waiting;
  }
};

class Planner {
 public:
  Planner(std::span<const PdServer> servers, const PdQuestion& question,
          const DisaggregationOptions& options)
      : question_(question), options_(options), servers_(servers.begin(), servers.end()) {
    const double usual = usual_price(servers);
    for (PdServer& each : servers_) {
      is_measured_ = is_measured_ || each.price;
      if (!each.price) each.price = usual;
    }
  }

  PdPlan plan() const {
    const Indices decodes = to_answer();
    const Indices prefills = to_prefill(decodes);
    Best best;
    for (const size_t decode : decodes) {
      const Best with = best_with(decode, prefills);
      best.offer(with.plan, with.waiting);
    }
    if (best.plan.decode == kNoReplica) return best.plan;
    const bool has_to_divide =
        divides_by_rule(servers_[best.plan.decode], question_.prompt_tokens, options_) == true;
    for (const size_t idle : idle_to_prefill()) {
      const double tokens = new_tokens(servers_[idle], question_.prompt_tokens);
      const bool is_divided = best.plan.prefill != kNoReplica;
      if (is_divided && (has_to_divide || tokens >= kLongTokens)) continue;
      const PdCost cost = cost_alone(servers_[idle], question_.prompt_tokens);
      best.offer({.decode = idle, .seconds = cost.seconds}, cost.waiting);
    }
    return best.plan;
  }

 private:
  Indices to_answer() const {
    Indices found = best_of(servers_.size(), question_.turn, [&](size_t i) -> std::optional<int> {
      if (!servers_[i].may_answer) return std::nullopt;
      return (servers_[i].is_up ? 0 : 2) + (servers_[i].role == engine::Role::kPrefill ? 1 : 0);
    });
    apply(options_.generation_rule, servers_, &found);
    return found;
  }
  // Not the only one that answers.
  Indices to_prefill(const Indices& decodes) const {
    Indices found = best_of(servers_.size(), question_.turn, [&](size_t i) -> std::optional<int> {
      const bool may = servers_[i].may_prefill && servers_[i].is_up &&
                       servers_[i].role != engine::Role::kDecode && decodes != Indices{i};
      if (!may) return std::nullopt;
      return servers_[i].role == engine::Role::kPrefill ? 0 : 1;
    });
    apply(options_.context_rule, servers_, &found);
    return found;
  }

  // Those with little to compute for others, where costs say who answers.
  Indices idle_to_prefill() const {
    if (options_.generation_rule != PlacementRule::kKvCacheAware) return {};
    return best_of(servers_.size(), question_.turn, [&](size_t i) -> std::optional<int> {
      const PdServer& each = servers_[i];
      const bool may = each.may_answer && each.is_up && !each.is_busy_with_prompts &&
                       each.role == engine::Role::kPrefill;
      return may ? std::optional(0) : std::nullopt;
    });
  }

  // Where no server has measured: whether the roles alone are reason enough. nullopt: costs decide.
  std::optional<bool> divides_unmeasured(size_t prefill, size_t decode) const {
    if (is_measured_) return std::nullopt;
    return servers_[prefill].role == engine::Role::kPrefill &&
           new_tokens(servers_[decode], question_.prompt_tokens) >= kLongTokens;
  }

  // Who knows most of the prompt, if that is worth the way. Equal ones: the first.
  size_t earlier_for(size_t prefill) const {
    size_t most = kNoReplica;
    double least = servers_[prefill].known + kWorthPages * kPage;
    for (size_t i = 0; i < servers_.size(); ++i) {
      const PdServer& each = servers_[i];
      const bool is_more = most == kNoReplica ? each.known >= least : each.known > least;
      if (i == prefill || !each.is_up || !each.gives_pages || !is_more) continue;
      most = i;
      least = each.known;
    }
    return most;
  }

  void offer_divided(size_t decode, size_t prefill, Best& best) const {
    const double tokens = question_.prompt_tokens;
    const auto offer = [&](size_t earlier) {
      const double taken =
          earlier == kNoReplica ? 0.0 : servers_[earlier].known - servers_[prefill].known;
      const PdCost cost = cost_divided(servers_[prefill], servers_[decode], tokens, taken);
      best.offer(
          {.decode = decode, .prefill = prefill, .earlier = earlier, .seconds = cost.seconds},
          cost.waiting);
    };
    offer(kNoReplica);
    if (const size_t earlier = earlier_for(prefill); earlier != kNoReplica) offer(earlier);
  }

  // Of the plans with this server as the one that answers.
  Best best_with(size_t decode, const Indices& prefills) const {
    const double tokens = question_.prompt_tokens;
    const PdServer& answers = servers_[decode];
    std::optional<bool> rule = false;
    if (question_.may_divide && tokens >= kPage) rule = divides_by_rule(answers, tokens, options_);
    Best alone, divided;
    const PdCost own = cost_alone(answers, tokens);
    alone.offer({.decode = decode, .seconds = own.seconds}, own.waiting);
    if (rule == false) return alone;
    bool has_to = rule == true;
    for (const size_t prefill : prefills) {
      if (prefill == decode) continue;
      const auto unmeasured = rule ? std::nullopt : divides_unmeasured(prefill, decode);
      if (unmeasured == false) continue;
      has_to = has_to || unmeasured == true;
      offer_divided(decode, prefill, divided);
    }
    if (divided.plan.decode == kNoReplica) return alone;
    return has_to || divided.waiting < alone.waiting ? divided : alone;
  }

  const PdQuestion& question_;
  const DisaggregationOptions& options_;
  std::vector<PdServer> servers_;  // with a price
  bool is_measured_ = false;       // by one of them at least
};

}  // namespace

PdCost cost_alone(const PdServer& decode, double prompt_tokens) {
  const double price = price_of(decode);
  const double own = new_tokens(decode, prompt_tokens) * price;
  const double seconds = queue_of(decode) + own;
  return {.seconds = seconds, .waiting = seconds + decode.running * (own + kAnswerTokens * price)};
}

PdCost cost_divided(const PdServer& prefill, const PdServer& decode, double prompt_tokens,
                    double earlier) {
  const double own =
      std::max(0.0, new_tokens(prefill, prompt_tokens) - earlier) * price_of(prefill);
  const double ways =
      earlier * way_of(prefill) + new_tokens(decode, prompt_tokens) * way_of(decode);
  const double there = queue_of(prefill) + own + ways;
  const double price = price_of(decode);
  const double last = last_page(prompt_tokens) * price;
  const double seconds = std::max(there, queue_of(decode)) + last + kLegSeconds;
  return {
      .seconds = seconds,
      .waiting = seconds + prefill.running * own + decode.running * (last + kAnswerTokens * price)};
}

PdPlan plan_request(std::span<const PdServer> servers, const PdQuestion& question,
                    const DisaggregationOptions& options) {
  return Planner(servers, question, options).plan();
}

}  // namespace wideep::server
