// SPDX-License-Identifier: Apache-2.0
//
// Counts of experts reach several readers: the iteration record, from which statistics and the
// routing log are made, requests that return their experts, load reports. Each has its own sum here,
// made only if someone wants it.
//
// Every send may wake the receiving process. So events of an iteration are buffered
// (send_with_next) and go out with its record; with report_when_idle() even these wait, so that a
// measured iteration sends nothing.
#include "run/rank_reporter.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/cpu_time.h"
#include "base/try.h"
#include "model/parts/resident_experts.h"
#include "plan/load_summary.h"

namespace wideep::run {
namespace {

// A second of the engine is several reports, so little of it is left when the ranks are idle.
constexpr int64_t kReportLoadNs = 250'000'000;
constexpr int64_t kReportMemoryNs = 1'000'000'000;

// Of this process; 0: there is no /proc. Without an allocation.
uint64_t resident_bytes() {
  const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[128];
  const ssize_t size = ::read(fd, text, sizeof(text));
  ::close(fd);
  const std::string_view all(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  const size_t second = std::min(all.find(' '), all.size());
  uint64_t pages = 0;
  if (second < all.size()) std::from_chars(text + second + 1, text + all.size(), pages);
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

RankReporter::RankReporter(const Run& run, int rank, const transport::Messenger& messenger)
    : run_(run), messenger_(messenger), rank_(rank) {
  const RunOptions& options = run.options();
  const RunPlan& plan = run.plan();
  for (const auto& [layer, placement] : plan.model.placement.layers) {
    layer_index_.emplace(layer, static_cast<int>(layer_index_.size()));
  }
  expert_loads_.resize(layer_index_.size() *
                       static_cast<size_t>(plan.model.config.routing.num_experts));
  if (options.profile) profiler_.emplace(*options.profile, run.trace(), rank);
  if (const auto& layers = plan.experts.ranks[static_cast<size_t>(rank)].moe_layers;
      options.expert_load && !layers.empty()) {
    load_.first_layer = layer_index_.at(layers.front());
    load_.counts.resize(layers.size() * static_cast<size_t>(plan.model.config.routing.num_experts));
  }
  if (options.routed_experts) {
    std::vector<int> layers = plan.experts.ranks[static_cast<size_t>(rank)].moe_layers;
    std::erase_if(layers, [&](int layer) { return layer >= plan.model.config.num_layers; });
    routed_.emplace(layers.empty() ? 0 : layer_index_.at(layers.front()),
                    static_cast<int>(layers.size()), plan.model.config.routing.top_k);
  }
}

void RankReporter::begin_iteration(int64_t iteration) {
  if (profiler_) profiler_->start(iteration);
}

void RankReporter::chosen(const engine::ChosenExperts& layer) {
  // All ranks of a stage have the same group_counts: one report is enough.
  const RunPlan& plan = run_.plan();
  const bool is_first =
      plan.is_elastic() ? rank_ == members_.ranks.front() : rank_ % plan.experts.stage_size == 0;
  if (plan.balances_online() && is_first) note_initial_imbalance(layer);
  if (is_first && !load_.counts.empty()) add_load(layer);
  if (run_.options().keeps_ranks) add_expert_loads(layer);
  if (const auto& log = run_.options().routing_log;
      log && log->by_request && log->contains(layer.iteration)) {
    add_request_counts(layer);
  }
  if (routed_ && layer.layer < plan.model.config.num_layers) {
    routed_->add(layer_index_.at(layer.layer), layer);
  }
}

void RankReporter::set_members(const transport::Members& members) {
  members_ = members;
  reloaded_ = 0;
  initial_imbalances_.clear();  // of an iteration that was not computed to its end
  // Requests that come again are routed again; those that a rank goes on with are not.
  if (routed_ && !run_.plan().is_elastic()) routed_->clear();
}

void RankReporter::forget_front() {
  records_experts_ = false;
  if (routed_) routed_->clear();
}

// Another process may receive the events from now on.
Status RankReporter::ready() {
  memory_since_ns_ = 0;
  if (run_.options().expert_load) WIDEEP_TRY(report_memory());
  if (members_.epoch == 1) return send(RanksReady());
  return send(MembersChanged{members_.epoch, members_.ranks, reloaded_});
}

// Halved from time to time, so that it follows the load.
void RankReporter::add_expert_loads(const engine::ChosenExperts& layer) {
  constexpr int64_t kMaxPairs = 1 << 17;
  const auto index = static_cast<size_t>(layer_index_.at(layer.layer));
  if (index == 0 && loads_of_ > kMaxPairs) {
    for (double& each : expert_loads_) each /= 2;
    loads_of_ /= 2;
  }
  double* loads = expert_loads_.data() + index * layer.group_counts.size();
  for (size_t expert = 0; expert < layer.group_counts.size(); ++expert) {
    loads[expert] += layer.group_counts[expert];
    if (index == 0) loads_of_ += layer.group_counts[expert];
  }
}

void RankReporter::add_load(const engine::ChosenExperts& layer) {
  const auto index = static_cast<size_t>(layer_index_.at(layer.layer) - load_.first_layer);
  int64_t* sums = load_.counts.data() + index * layer.group_counts.size();
  for (size_t expert = 0; expert < layer.group_counts.size(); ++expert) {
    sums[expert] += layer.group_counts[expert];
  }
}

Status RankReporter::report_load() {
  const int64_t now = base::wall_ns();
  if (load_.counts.empty() || now - load_since_ns_ < kReportLoadNs) return {};
  load_since_ns_ = now;
  if (std::ranges::all_of(load_.counts, [](int64_t each) { return each == 0; })) return {};
  WIDEEP_TRY(send_with_next(load_));
  std::ranges::fill(load_.counts, 0);
  return {};
}

Status RankReporter::report_memory() {
  const int64_t now = base::wall_ns();
  if (memory_since_ns_ != 0 && now - memory_since_ns_ < kReportMemoryNs) return {};
  memory_since_ns_ = now;
  if (experts_ != nullptr) WIDEEP_TRY(report_experts());
  return send_with_next(RankMemory{rank_, resident_bytes()});
}

Status RankReporter::report_experts() {
  const ModelFacts& facts = run_.plan().model;
  const weights::RecordCounters read = experts_->read();
  const auto counts = experts_->counts();
  return send_with_next(
      ExpertPlaces{.rank = rank_,
                   .num_owned = experts_->num_owned(),
                   .num_records = experts_->num_records(),
                   .record_bytes = model::experts_shape(facts.config, facts.forms).record_bytes(),
                   .read_bytes = read.bytes,
                   .read_seconds = read.busy_s,
                   .layers = experts_->layers(),
                   .counts = {counts.begin(), counts.end()}});
}

// The imbalance that this iteration would have with the experts in their initial slots.
void RankReporter::note_initial_imbalance(const engine::ChosenExperts& layer) {
  const std::vector<int64_t> loads(layer.group_counts.begin(), layer.group_counts.end());
  const balance::Placement& initial = run_.plan().model.placement.layers.at(layer.layer);
  initial_imbalances_.push_back(static_cast<float>(
      balance::summarize_loads(balance::rank_loads(initial, loads)).imbalance_ratio));
}

// Whether somebody records this iteration. Where all ranks may begin anew, whoever receives the
// records counts on from a number that a rank does not know: at least its own.
bool RankReporter::wants_counts(int64_t iteration) const {
  const RunOptions& options = run_.options();
  const auto may_hold = [&](const IterationRange& range) {
    return iteration < range.last && (options.keeps_ranks || iteration >= range.first);
  };
  if (records_experts_) return true;
  if (options.statistics && may_hold(options.statistics->range)) return true;
  if (!options.routing_log) return false;
  return !options.routing_log->range || may_hold(*options.routing_log->range);
}

void RankReporter::add_request_counts(const engine::ChosenExperts& layer) {
  const model::RoutingConfig& routing = run_.plan().model.config.routing;
  const auto num_experts = static_cast<size_t>(routing.num_experts);
  const auto top_k = static_cast<size_t>(routing.top_k);
  const size_t first = static_cast<size_t>(layer_index_.at(layer.layer)) * num_experts;
  for (size_t token = 0; token < layer.owners.size(); ++token) {
    auto& counts = request_counts_[layer.owners[token]->request.index];
    counts.resize(layer_index_.size() * num_experts);
    for (size_t k = 0; k < top_k; ++k) {
      ++counts[first + static_cast<size_t>(layer.experts[token * top_k + k])];
    }
  }
}

// Sent together with the record of its iteration, so that both wake the receiver once.
Status RankReporter::token(const engine::SampledToken& token) {
  Token event{.request_index = token.request_index,
              .rank = rank_,
              .sampled = token.sampled,
              .finish_reason = token.finish_reason,
              .cached_tokens = token.cached_tokens,
              .step_drafts = token.step_drafts,
              .digest = {},
              .likely = {token.likely.begin(), token.likely.end()}};
  if (run_.options().logits_digest) {
    // One digest over the logits of all steps of the request, complete with its last token.
    base::Sha256& sha = digests_[token.request_index];
    sha.update(token.logits.data(), token.logits.size_bytes());
    if (token.finish_reason != engine::FinishReason::kNotFinished) event.digest = sha.hex();
  }
  return send_with_next(event);
}

// That a prompt has begun is told at once: the iteration may take long.
Status RankReporter::prompt(const engine::PromptProgress& progress) {
  const bool at_once = progress.is_first && !reports_when_idle_;
  return at_once ? send(progress) : send_with_next(progress);
}

Status RankReporter::end_iteration(engine::IterationRecord record) {
  // Counts are the largest part of a record: without a reader they are not sent.
  record.records_experts = records_experts_;
  if (!wants_counts(record.iteration)) {
    for (engine::LayerRecord& layer : record.layers) {
      layer.counts.clear();
      layer.slot_counts.clear();
    }
  }
  for (size_t i = 0; i < initial_imbalances_.size(); ++i) {
    record.layers[i].initial_imbalance = initial_imbalances_[i];
  }
  initial_imbalances_.clear();
  WIDEEP_TRY(report_load());
  if (run_.options().expert_load) WIDEEP_TRY(report_memory());
  const RankIteration event{std::move(record)};
  return reports_when_idle_ ? send_with_next(event) : send(event);
}

Status RankReporter::ended(int request_index) {
  return routed_ ? send(routed_->take(request_index)) : Status();
}

Status RankReporter::pages_changed(std::vector<engine::PageChange> changes) {
  const PagesChanged event{.rank = rank_,
                           .is_cleared = std::exchange(forgets_pages_, false),
                           .changes = std::move(changes)};
  return reports_when_idle_ ? send_with_next(event) : send(event);
}

Status RankReporter::idle() {
  reports_when_idle_ = false;
  return send(RanksIdle());
}

// Sent in order with the iterations, so that the receiver knows which of them have counts.
Status RankReporter::record_experts(bool records, int number) {
  records_experts_ = records;
  return send(ExpertRecording{records, number});
}

Status RankReporter::prefers(engine::Role role, int number) {
  return send(RoleSeen{.role = role, .number = number});
}

void RankReporter::weights_read(uint64_t bytes) const {
  [[maybe_unused]] const Status sent = send(WeightsRead{bytes});
}

void RankReporter::rebalanced(const online::Rebalance& rebalance) const {
  [[maybe_unused]] const Status sent = send(rebalance);
}

void RankReporter::trust_changed(const online::TrustChange& change) const {
  [[maybe_unused]] const Status sent = send(change);
}

Status RankReporter::finish(const Status& run, const engine::RunTimes& times,
                            const NodeTraffic& traffic) {
  for (const auto& [index, counts] : request_counts_) {
    WIDEEP_TRY(send_with_next(RequestCounts{index, counts}));
  }
  WIDEEP_TRY(send(RankEnded{rank_, times, traffic}));
  return run;
}

}  // namespace wideep::run
