// SPDX-License-Identifier: Apache-2.0
//
// Pairs are matched from fronts: of the prefill layouts of so many ranks those of which none has
// both more requests and an earlier first token, of the others those of which none is better in
// tokens of a rank and of a user. So a sweep of thousands of layouts makes some ten thousand pairs.
#include "advise/disaggregation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "advise/context_part.h"
#include "advise/sweep.h"
#include "advise/weighed_layouts.h"
#include "advise/workload_steps.h"
#include "base/pareto_front.h"
#include "base/try.h"
#include "model/kv_layout.h"

namespace wideep::advise {
namespace {

// Below that nobody should run two kinds of servers for it.
constexpr double kWorthwhile = 1.03;

// Bytes of a prompt's pages but the last, which the server that generates computes itself.
double bytes_of_prompt(const Question& question) {
  const model::KvLayout kv(question.config, question.choices.cache, 1);
  return static_cast<double>(kv.page_bytes()) *
         ((question.workload.isl - 1) / kernels::kPageTokens);
}

// Seconds of a server's links for the pages of so many prompts. Servers of one machine of cores
// copy in its memory, which reads and writes; others are on different nodes, if there is a network.
// The ranks of a node of cores share its link.
double transfer_seconds(const Question& question, const cost::Layout& layout, double prompts) {
  const cost::Hardware& hardware = question.hardware;
  const double bytes = prompts * bytes_of_prompt(question);
  if (bytes == 0.0) return 0.0;
  if (hardware.divisible && hardware.nodes == 1) return 2.0 * bytes / hardware.node_bandwidth;
  const cost::Link& link = hardware.network.bandwidth > 0.0 ? hardware.network : hardware.node_link;
  const int links = hardware.divisible ? 1 : layout.num_ranks();
  return link.latency + bytes / (link.bandwidth * links);
}

std::string disaggregated_ms(double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); }

// "DEP-8"; what else divides it follows.
std::string server_name(const cost::Layout& layout) {
  const bool has_ep = layout.ep > 1;
  const char* kind = layout.attention_dp && layout.tensor_ranks() > 1 ? (has_ep ? "DEP" : "DP")
                                                                      : (has_ep ? "TEP" : "TP");
  std::string name = fmt::format("{}-{}", kind, layout.num_ranks());
  if (layout.stages > 1) name += fmt::format("/PP-{}", layout.stages);
  if (layout.context > 1) name += fmt::format("/CP-{}", layout.context);
  return name;
}

// What can be paired: layouts of one format, by the number of their ranks.
using Kind = std::pair<kernels::WeightFormat, int>;
Kind kind_of(const cost::Layout& layout) { return {layout.format, layout.num_ranks()}; }

// A server of a machine of cores has a core for each rank, and its part of the memory's bandwidth
// and of the caches. Others stay as they are.
cost::Hardware hardware_of_server(cost::Hardware hardware, int num_ranks) {
  if (!hardware.divisible) return hardware;
  const double part = static_cast<double>(num_ranks) / hardware.devices_per_node;
  std::map<double, double> cached;
  for (const auto& [bytes, rate] : hardware.cached_node_bandwidth) {
    cached.emplace(part * bytes, part * rate);
  }
  hardware.cached_node_bandwidth = std::move(cached);
  hardware.node_bandwidth *= part;
  hardware.devices_per_node = num_ranks;
  hardware.nodes = 1;
  return hardware;
}

// Ranks that all servers may have together, and one of them.
int most_ranks(const Question& question) {
  const cost::Hardware& hardware = question.hardware;
  const int ranks = question.choices.max_ranks;
  return hardware.divisible ? std::min(ranks, hardware.devices_per_node * hardware.nodes) : ranks;
}
int most_server_ranks(const Question& question) {
  const cost::Hardware& hardware = question.hardware;
  const int ranks = most_ranks(question);
  return hardware.divisible ? std::min(ranks, hardware.devices_per_node) : ranks;
}

// A layout that does both has all cores of a machine, however many ranks it has.
double devices_of(const cost::Hardware& hardware, const cost::Layout& layout) {
  return hardware.divisible ? hardware.devices_per_node * hardware.nodes : layout.num_ranks();
}
double tokens_per_device(const cost::Hardware& hardware, const Candidate& candidate) {
  return candidate.tokens_per_rank * candidate.layout.num_ranks() /
         devices_of(hardware, candidate.layout);
}

double early(const PrefillServer& server) { return -server.ttft(); }

// Of every layout, with every number of prompts that the memory has room for.
std::vector<PrefillServer> prefill_servers(const Question& question, const WeighedLayout& weighed,
                                           const cost::StepCost& cost) {
  std::vector<PrefillServer> servers;
  if (weighed.layout.drafts > 0) return servers;
  const Workload& workload = question.workload;
  // Pages of the round before are still on their way.
  const double prompt = 2.0 * weighed.token * workload.isl * weighed.layout.stages;
  const double room =
      question.hardware.memory_bytes * question.choices.memory_share - weighed.weights;
  double most = std::min(std::max(1.0, 1.0 * question.choices.max_num_tokens / workload.isl),
                         room / std::max(prompt, 1.0));
  if (workload.concurrency) {
    most = std::min(most, std::ceil(*workload.concurrency / weighed.layout.num_batches()));
  }
  for (const int prompts : batches_up_to(static_cast<int>(most))) {
    PrefillServer server = prefill_server(cost, question, prompts);
    server.memory = weighed.weights + prompts * prompt;
    server.imbalance = weighed.imbalance;
    if (!workload.max_ttft || server.ttft() <= *workload.max_ttft) servers.push_back(server);
  }
  return servers;
}

std::vector<Candidate> generation_servers(const Question& question, const WeighedLayout& weighed,
                                          const cost::StepCost& cost) {
  const Workload& workload = question.workload;
  std::vector<Candidate> servers;
  for (const int batch : batches_up_to(weighed.max_requests)) {
    Candidate server = generation_server(cost, question, batch);
    server.memory = weighed.weights + batch * weighed.token * (workload.isl + workload.osl);
    server.imbalance = weighed.imbalance;
    if (!workload.max_tpot || server.tpot <= *workload.max_tpot) servers.push_back(server);
  }
  return servers;
}

struct Servers {
  std::vector<PrefillServer> prefill;
  std::vector<Candidate> generation;
};

Servers servers_of(const Question& question, const WeighedLayouts& weighed) {
  std::vector<Servers> of_layouts(weighed.layouts.size());
  for_each_in_parallel(of_layouts.size(), [&](size_t i) {
    const WeighedLayout& each = weighed.layouts[i];
    const int ranks = each.layout.num_ranks();
    if (ranks > most_server_ranks(question)) return;
    const cost::StepCost cost(hardware_of_server(question.hardware, ranks), question.config,
                              each.layout, *each.placed);
    of_layouts[i] = {.prefill = prefill_servers(question, each, cost),
                     .generation = generation_servers(question, each, cost)};
  });
  Servers all;
  for (const Servers& each : of_layouts) {
    all.prefill.insert(all.prefill.end(), each.prefill.begin(), each.prefill.end());
    all.generation.insert(all.generation.end(), each.generation.begin(), each.generation.end());
  }
  return all;
}

template <typename Server>
std::map<Kind, std::vector<Server>> by_kind(const std::vector<Server>& servers) {
  std::map<Kind, std::vector<Server>> kinds;
  for (const Server& each : servers) kinds[kind_of(each.layout)].push_back(each);
  return kinds;
}

// nullopt: no numbers of them keep the limits.
std::optional<MatchedServers> matched(const Question& question, const PrefillServer& prefill,
                                      const Candidate& generation) {
  const Workload& workload = question.workload;
  MatchedServers servers{.prefill = prefill, .generation = generation};
  if (workload.max_ttft && servers.ttft() > *workload.max_ttft) return {};
  const ServerRate prompts{.requests = prefill.requests, .ranks = prefill.layout.num_ranks()};
  const int ranks = generation.layout.num_ranks();
  const ServerRate answers{.requests = generation.tokens_per_rank * ranks / workload.osl,
                           .ranks = ranks};
  RatioLimits limits{.max_ranks = most_ranks(question), .rate = workload.rate};
  if (workload.concurrency) {
    const double most = std::max(1.0, std::floor(*workload.concurrency / generation.requests()));
    limits.max_generation = static_cast<int>(std::min(most, 1.0 * limits.max_servers));
  }
  const auto ratio = match_rates(prompts, answers, limits);
  if (!ratio) return {};
  servers.ratio = *ratio;
  servers.tokens_per_rank = workload.osl * ratio->requests_per_rank();
  servers.exact = workload.osl * exact_requests_per_rank(prompts, answers);
  return servers;
}

std::vector<MatchedServers> all_matched(const Question& question, const Servers& servers) {
  auto prefills = by_kind(servers.prefill);
  auto generations = by_kind(servers.generation);
  for (auto& [kind, each] : prefills) {
    each = pareto_front(std::move(each), &early, &PrefillServer::requests);
  }
  for (auto& [kind, each] : generations) {
    each = pareto_front(std::move(each), &Candidate::tokens_per_user, &Candidate::tokens_per_rank);
  }
  std::vector<MatchedServers> all;
  for (const auto& [prompts, prefill] : prefills) {
    for (const auto& [answers, generation] : generations) {
      if (prompts.first != answers.first) continue;
      for (const PrefillServer& first : prefill) {
        for (const Candidate& second : generation) {
          if (auto found = matched(question, first, second)) all.push_back(*std::move(found));
        }
      }
    }
  }
  return all;
}

// Tokens of a rank; of equal ones smaller servers, and of these the earlier first token.
std::tuple<double, int, double> rank_of(const MatchedServers& servers) {
  return {servers.tokens_per_rank,
          -servers.prefill.layout.num_ranks() - servers.generation.layout.num_ranks(),
          -servers.ttft()};
}

// As is_better() of layouts.
bool is_better_match(const MatchedServers& a, const MatchedServers& b, const Workload& workload) {
  if (workload.rate && a.ratio.ranks != b.ratio.ranks) return a.ratio.ranks < b.ratio.ranks;
  return rank_of(a) > rank_of(b);
}

std::vector<MatchedServers> matched_front(std::vector<MatchedServers> all) {
  std::vector<MatchedServers> front =
      pareto_front(std::move(all), &MatchedServers::tokens_per_user, &rank_of);
  const auto equal = std::ranges::unique(front, {}, &MatchedServers::tokens_per_rank);
  front.erase(equal.begin(), equal.end());
  return front;
}

// Of aggregated layouts, but for the limit of TPOT: the front, with the shortest TPOT first, and
// tokens of a device for those of a rank.
std::vector<Candidate> aggregated_front(const Question& question, const Advice& aggregated) {
  Workload workload = question.workload;
  workload.max_tpot.reset();
  std::vector<Candidate> some;
  std::ranges::copy_if(aggregated.all, std::back_inserter(some),
                       [&](const Candidate& each) { return meets(each, workload); });
  for (Candidate& each : some) each.tokens_per_rank = tokens_per_device(question.hardware, each);
  return pareto_front(std::move(some), &Candidate::tokens_per_user, &Candidate::tokens_per_rank);
}

// Tokens of a rank at this TPOT. Between two batches that were weighed there are others: else their
// distance would count as a gain. 0: none is as fast.
double tokens_at(const std::vector<Candidate>& front, double tpot) {
  const auto slower = std::ranges::upper_bound(front, tpot, {}, &Candidate::tpot);
  if (slower == front.begin()) return 0.0;
  const Candidate& faster = *std::prev(slower);
  if (slower == front.end()) return faster.tokens_per_rank;
  const double part = (tpot - faster.tpot) / (slower->tpot - faster.tpot);
  return std::lerp(faster.tokens_per_rank, slower->tokens_per_rank, part);
}

std::string why_none(const Question& question, const Servers& servers) {
  const Workload& workload = question.workload;
  if (servers.prefill.empty() && !workload.max_ttft) {
    return fmt::format("no server has room for two rounds of prompts of {} tokens", workload.isl);
  }
  if (servers.prefill.empty()) {
    return fmt::format("no server computes prompts of {} tokens within {} to the first",
                       workload.isl, disaggregated_ms(*workload.max_ttft));
  }
  if (servers.generation.empty()) {
    return fmt::format("no server generates with {} between tokens",
                       disaggregated_ms(workload.max_tpot.value_or(0.0)));
  }
  return fmt::format("no two servers of one format keep all limits together on at most {} ranks",
                     most_ranks(question));
}

// Against layouts that do both; with a rate ranks are compared.
std::string gain_text(const Question& question, const MatchedServers& best,
                      const Advice& aggregated) {
  const Workload& workload = question.workload;
  if (!aggregated.best) return "no aggregated layout keeps the limits";
  const Candidate& beside = *aggregated.best;
  const double ranks = devices_of(question.hardware, beside.layout);
  const double tokens = std::max(best.aggregated, tokens_per_device(question.hardware, beside));
  const bool is_as_good =
      workload.rate ? best.ratio.ranks >= ranks : best.tokens_per_rank < kWorthwhile * tokens;
  const std::string against =
      workload.rate ? fmt::format("{} ranks carry the rate, aggregated {}", best.ratio.ranks, ranks)
                    : fmt::format("{:.2f} × the {:.1f} tokens/s of a rank of aggregated layouts",
                                  best.tokens_per_rank / tokens, tokens);
  return fmt::format("{}{}; the best of them within the limits: {}",
                     is_as_good ? "aggregated is as good: " : "", against, text_of(beside.layout));
}

void add_match_reasons(const Question& question, const Advice& aggregated,
                       DisaggregatedAdvice* advice) {
  const MatchedServers& best = *advice->best;
  const PrefillServer& prefill = best.prefill;
  std::vector<std::string>& reasons = advice->reasons;
  reasons.push_back(gain_text(question, best, aggregated));
  if (aggregated.best) {
    reasons.push_back(fmt::format(
        "between two tokens at most {}, beside the last pages of prompts; aggregated {}, beside "
        "a chunk",
        disaggregated_ms(best.generation.longest), disaggregated_ms(aggregated.best->longest)));
  }
  reasons.push_back(fmt::format(
      "servers of each kind carry {:.2f} and {:.2f} requests per second; with an exact ratio "
      "{:.1f} tokens/s of a rank",
      prefill.requests,
      best.generation.tokens_per_rank * best.generation.layout.num_ranks() / question.workload.osl,
      best.exact));
  reasons.push_back(fmt::format(
      "pages of a prompt: {:.1f} MB; those of a round take {}, {} of it not hidden by computing",
      advice->prompt_bytes / 1e6, disaggregated_ms(prefill.transfer),
      disaggregated_ms(prefill.exposed())));
}

}  // namespace

double PrefillServer::exposed() const {
  const double computed = seconds / chunks, sent = transfer / chunks;
  return std::max(sent, transfer - (chunks - 1) * computed);
}

double PrefillServer::ttft() const { return 1.5 * seconds + exposed(); }

PrefillServer prefill_server(const cost::StepCost& cost, const Question& question, int prompts) {
  const cost::Layout& layout = cost.layout();
  const int64_t max = question.choices.max_num_tokens;
  const int64_t tokens = int64_t{prompts} * question.workload.isl;
  const int64_t chunks = (tokens + max - 1) / max;
  const ContextDeal deal = context_deal(layout.context, question.choices.max_num_tokens);
  const cost::StepTime step =
      cost.step(chunk_of((tokens + chunks - 1) / chunks, question.workload, deal));
  const double of_round = static_cast<double>(prompts) * layout.num_batches() * layout.stages;
  PrefillServer server{.layout = layout,
                       .prompts = prompts,
                       .chunks = static_cast<int>(chunks),
                       .seconds = static_cast<double>(chunks) * step.seconds(),
                       .transfer = transfer_seconds(question, layout, of_round),
                       .error = error_of(question.hardware, step)};
  server.requests = of_round / std::max(server.seconds, server.transfer);
  return server;
}

Candidate generation_server(const cost::StepCost& cost, const Question& question, int batch) {
  const cost::Layout& layout = cost.layout();
  const Workload& workload = question.workload;
  Candidate server{.layout = layout,
                   .batch = batch,
                   .tokens_of_step = tokens_of_step(layout.drafts, workload.acceptance)};
  const int micro_batch = (batch + layout.stages - 1) / layout.stages;
  const ContextDeal deal = context_deal(layout.context, question.choices.max_num_tokens);
  const model::StepShape plain =
      busiest_generating(generating(micro_batch, layout.drafts, workload), micro_batch, deal);
  server.step = cost.step(plain);
  const double arriving = micro_batch * server.tokens_of_step / workload.osl;
  const int64_t pages = std::max<int64_t>(1, std::llround(arriving));
  model::StepShape mixed = plain;
  mixed += last_pages(pages, workload);
  server.longest = cost.step(mixed).seconds();
  const double without = server.step.seconds();
  const double iteration =
      without + arriving / static_cast<double>(pages) * (server.longest - without);
  server.tpot = iteration / server.tokens_of_step;
  server.ttft = iteration / 2.0 + server.longest;
  server.tokens_per_user = 1.0 / server.tpot;
  server.tokens_per_rank = server.requests() / (server.tpot * layout.num_ranks());
  server.error = error_of(question.hardware, server.step);
  return server;
}

std::string name_of(const MatchedServers& servers) {
  return fmt::format("CTX={}x{}|GEN={}x{}", servers.ratio.prefill,
                     server_name(servers.prefill.layout), servers.ratio.generation,
                     server_name(servers.generation.layout));
}

Result<DisaggregatedAdvice> disaggregate(const Question& question, const Advice& aggregated) {
  const Workload& workload = question.workload;
  WIDEEP_TRY_ASSIGN(const WeighedLayouts weighed, weigh_layouts(question));
  const Servers servers = servers_of(question, weighed);
  DisaggregatedAdvice advice{.prompt_bytes = bytes_of_prompt(question)};
  advice.prefill = pareto_front(servers.prefill, &early, &PrefillServer::requests_per_rank);
  const auto front = [&](bool drafts) {
    std::vector<Candidate> some;
    std::ranges::copy_if(servers.generation, std::back_inserter(some),
                         [&](const Candidate& each) { return (each.layout.drafts > 0) == drafts; });
    return pareto_front(std::move(some), &Candidate::tokens_per_user, &Candidate::tokens_per_rank);
  };
  advice.generation = front(false);
  advice.drafting = front(true);
  std::vector<MatchedServers> all = all_matched(question, servers);
  for (const MatchedServers& each : all) {
    if (!advice.best || is_better_match(each, *advice.best, workload)) advice.best = each;
  }
  advice.pareto = matched_front(std::move(all));
  const std::vector<Candidate> beside = aggregated_front(question, aggregated);
  for (MatchedServers& each : advice.pareto) {
    each.aggregated = tokens_at(beside, each.generation.tpot);
  }
  if (!advice.best) {
    advice.reasons.push_back(why_none(question, servers));
    return advice;
  }
  advice.best->aggregated = tokens_at(beside, advice.best->generation.tpot);
  add_match_reasons(question, aggregated, &advice);
  return advice;
}

}  // namespace wideep::advise
