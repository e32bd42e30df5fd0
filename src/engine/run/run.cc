// SPDX-License-Identifier: Apache-2.0
//
// prepare(): inputs → plan → with several processes, the least cache of all → settings compared →
// shared memory. After each step that can fail the ranks exchange their status, because a rank that
// returned alone would leave the others waiting.
//
// The plan is computed twice where nodes have different free memory: first each for itself, then
// all with the least numbers. load() ends its threads before it returns, since the parent forks
// next.
#include "run/run.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/byte_size.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/try.h"
#include "formats/chrome_trace.h"
#include "grammar/vocabulary.h"
#include "kernels/kv_page.h"
#include "recordings/statistics_writer.h"
#include "run/page_geometry.h"
#include "run/prompt_places.h"
#include "store/host_tier.h"

namespace wideep::run {
namespace {

Result<std::vector<uint64_t>> min_of_nodes(const RunOptions& options,
                                           std::vector<uint64_t> numbers) {
  if (options.kept_nodes) return options.kept_nodes->agree_on(numbers);
  constexpr std::chrono::seconds kPatience{60};
  for (uint64_t& each : numbers) {
    WIDEEP_TRY_ASSIGN(each, options.started->all_reduce_min(each, kPatience));
  }
  return numbers;
}

// The free memory of nodes differs, but all ranks must have equally many cache pages and states:
// plans again with the smallest numbers of any rank.
Status agree_on_cache(const RunOptions& options, const RunInputs& inputs, RunPlan* plan) {
  const bool as_memory_allows =
      !options.parallel.kv_cache_config.max_tokens && !options.cache_pages && !options.cache_bytes;
  const bool has_states = plan->limits.state_slots > 0;
  const bool is_alone = options.started == nullptr && !options.kept_nodes;
  if (is_alone || (!options.kept_nodes && !as_memory_allows && !has_states)) return {};
  WIDEEP_TRY_ASSIGN(const std::vector<uint64_t> min,
                    min_of_nodes(options, {static_cast<uint64_t>(plan->limits.max_pages),
                                           static_cast<uint64_t>(plan->limits.state_slots)}));
  RunOptions with_min = options;
  if (as_memory_allows) with_min.cache_pages = static_cast<int>(min[0]);
  if (has_states) with_min.state_slots = static_cast<int>(min[1]);
  WIDEEP_TRY_ASSIGN(*plan, plan_run(inputs.model, with_min, base::read_machine()));
  return {};
}

// Pages take memory when they are first used: a cache that does not fit fails late, in the middle of
// requests. Over several nodes each has its own memory, and a share of the ranks.
void warn_of_cache(const RunOptions& options, const RunPlan& plan) {
  const bool is_given = options.parallel.kv_cache_config.max_tokens || options.cache_bytes;
  if (!is_given || options.started != nullptr || options.kept_nodes) return;
  const uint64_t needed = plan.bytes_needed(int64_t{plan.limits.max_pages} * kernels::kPageTokens);
  const uint64_t usable = base::read_machine().usable_memory_bytes();
  if (needed <= usable) return;
  log::warn(
      "the KV cache that is given does not fit: with the weights all ranks need {}, and {} can be "
      "used; give less, or the server ends when requests fill the cache",
      base::byte_size(needed), base::byte_size(usable));
}

// class_of_records: as Run::record_class().
transport::Settings settings_of(const RunOptions& options, const RunInputs& inputs,
                                const RunPlan& plan, const std::string& class_of_records) {
  transport::Settings all = fingerprints(options, inputs);
  const transport::Settings planned = settings_of(plan);
  all.insert(all.end(), planned.begin(), planned.end());
  // All ranks of a request look for its pages, or none.
  all.emplace_back("whether prompts are kept (--host-cache-size, --prompt-cache-...)",
                   options.keeps_prompts() ? "true" : "false");
  all.emplace_back("--host-cache-size", std::to_string(options.host_cache_bytes));
  all.emplace_back("what decides the bytes of cached pages (also the C library)", class_of_records);
  return all;
}

// Pages may have no form that other servers have, too. Who has asked for no place goes without.
bool can_take_pages(const RunOptions& options, const RunPlan& plan) {
  if (!options.takes_from_peers || !options.reuses_pages()) return false;
  for (int rank = 0; rank < plan.mapping.world_size(); ++rank) {
    if (!page_geometry(plan, rank, "").ok()) return false;
  }
  return true;
}

// [stage] the number of its ranks on this node; empty: all are here.
std::vector<int> ranks_of_stages_here(const RunOptions& options, const parallel::Mapping& mapping) {
  const transport::NodeMap* nodes = node_map(options);
  if (nodes == nullptr) return {};
  std::vector<int> ranks(static_cast<size_t>(mapping.sizes().pp), 0);
  for (const int rank : nodes->ranks_of(this_node(options))) {
    ++ranks[static_cast<size_t>(mapping.coordinates(rank).pp_rank)];
  }
  return ranks;
}

// Of the update board of an elastic run with any number of ranks.
size_t max_board_bytes(const RunPlan& plan) {
  size_t bytes = 0;
  for (int ranks = 1; ranks <= plan.dispatch.ep_size; ++ranks) {
    online::BoardShape board = plan.online.front().board;
    board.num_ranks = board.num_owners = ranks;
    board.num_slots = ranks * plan.slots_per_rank(ranks);
    bytes = std::max(bytes, online::UpdateBoard::bytes_for(board));
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<Run>> Run::prepare(const RunOptions& options,
                                          const transport::Settings& more) {
  return prepare(options, read_run_inputs(options), more);
}

Result<std::unique_ptr<Run>> Run::prepare(const RunOptions& options, Result<RunInputs> inputs,
                                          const transport::Settings& more) {
  WIDEEP_TRY(agree_on(options, inputs.ok() ? check_prompt_options(options) : inputs.status()));
  Result<RunPlan> plan = plan_run(inputs->model, options, base::read_machine());
  WIDEEP_TRY(agree_on(options, plan.status()));
  WIDEEP_TRY(agree_on_cache(options, *inputs, &*plan));
  warn_of_cache(options, *plan);
  std::string class_of_records;
  // Who deals requests to their owners by what these know needs names, too.
  const bool deals = options.reuses_pages() && plan->num_request_owners() > 1;
  if (options.names_pages() || deals) class_of_records = run::record_class(options, *inputs, *plan);
  transport::Settings settings;
  if (options.started != nullptr || options.kept_nodes) {
    settings = settings_of(options, *inputs, *plan, class_of_records);
    settings.insert(settings.end(), more.begin(), more.end());
  }
  WIDEEP_TRY(agree_on(options, {}, settings));
  std::unique_ptr<Run> run(new Run(options, std::move(*inputs), std::move(*plan)));
  run->settings_ = std::move(settings);
  run->record_class_ = std::move(class_of_records);
  run->looks_for_prompts_ = options.keeps_prompts() || can_take_pages(options, run->plan_);
  WIDEEP_TRY(agree_on(options, run->prepare_packed()));
  WIDEEP_TRY(agree_on(options, run->prepare_places()));
  WIDEEP_TRY(agree_on(options, run->prepare_recording()));
  WIDEEP_TRY(agree_on(options, run->make_shared_memory()));
  return run;
}

namespace {

// Of a file; nullopt: it is not there.
std::optional<std::filesystem::file_time_type> time_of(const std::string& path) {
  std::error_code absent;
  const auto time = std::filesystem::last_write_time(path, absent);
  return absent ? std::nullopt : std::optional(time);
}

}  // namespace

bool Run::has_written_routing_log() const {
  return options_.routing_log && time_of(options_.routing_log->path) != earlier_routing_log_;
}

// By the process that receives the ranks' events, which writes the files.
Status Run::prepare_recording() {
  if (!receives_events(options_) || this_node(options_) != 0) return {};
  if (options_.routing_log) earlier_routing_log_ = time_of(options_.routing_log->path);
  if (!options_.statistics) return {};
  WIDEEP_TRY_ASSIGN(statistics_directory_,
                    recordings::prepare_statistics_directory(options_.statistics->directory));
  return {};
}

Status Run::prepare_places() {
  if (!options_.keeps_prompts()) return {};
  WIDEEP_TRY_ASSIGN(const PageGeometry geometry, page_geometry(plan_, 0, record_class_));
  return check_prompt_places(options_, geometry);
}

Status Run::make_shared_memory() {
  const base::MakeSharedBytes make =
      options_.started != nullptr ? options_.started->make_shared() : base::SharedBytes::create;
  for (const OnlinePlan& stage : plan_.online) {
    WIDEEP_TRY_ASSIGN(
        OnlineParts parts,
        make_online_parts(stage, make,
                          options_.keeps_ranks && plan_.is_elastic() ? max_board_bytes(plan_) : 0));
    if (options_.adjust_online && parts.balances()) options_.adjust_online(parts);
    online_.push_back(std::move(parts));
  }
  if (options_.host_cache_bytes > 0) {
    WIDEEP_TRY_ASSIGN(host_tier_, store::HostTier::create_memory(options_.host_cache_bytes, make));
  }
  if (options_.profile && options_.profile->writes_trace()) {
    WIDEEP_TRY_ASSIGN(trace_, base::TraceBuffer::create(plan_.mapping.world_size()));
  }
  return {};
}

// Only the host pool needs this check. It is shared memory, which the kernel grants at once and
// provides page by page: without the check a lack of memory would show in the middle of loading.
// What the host cache will take is not there for it.
Status Run::check_memory() const {
  if (online_.empty()) return {};
  const uint64_t usable = base::read_machine().usable_memory_bytes();
  return check_online_memory(online_, plan_.memory, usable - std::min(usable, plan_.host_cache),
                             ranks_of_stages_here(options_, plan_.mapping));
}

// Loads with as many threads as all ranks here will have. The threads end before the return,
// because a process with threads must not fork. With a launcher each rank loads only the layers of
// its stage.
Status Run::load(const std::function<void(uint64_t)>& on_bytes) {
  const auto load_here = [&]() -> Status {
    WIDEEP_TRY(check_memory());
    const transport::StartedRanks* started = options_.started;
    const int ranks =
        started != nullptr ? 1 : plan_.ranks_of_nodes[static_cast<size_t>(this_node(options_))];
    const int threads = ranks * plan_.threads.threads_per_rank;
    base::ThreadPool pool(std::min(threads, base::read_machine().usable_cores()));
    WIDEEP_TRY(write_packed(pool, on_bytes));
    weights::WeightLoader loader(inputs_.tensors(), options_.format, on_bytes, &pool);
    if (packed_) loader.take_from(*packed_);
    std::optional<parallel::LayerRange> layers;
    if (started != nullptr) layers = plan_.layers_of(started->rank());
    WIDEEP_TRY_ASSIGN(weights_, model::ModelWeights::load(plan_.model.config, loader, layers));
    // Here, so that forked ranks share it.
    if (options_.takes_grammars) {
      const model::ModelConfig& config = plan_.model.config;
      vocabulary_ = std::make_shared<const grammar::Vocabulary>(
          grammar::Vocabulary::of(tokenizer(), config.vocab_size, config.eos_token_ids));
    }
    return {};
  };
  return agree_on(options_, load_here());
}

// ---- packed weights ----

model::PackOrder Run::pack_order(base::ThreadPool* threads) const {
  return {.config = plan_.model.config,
          .tensors = inputs_.tensors(),
          .format = options_.format,
          .num_slices = plan_.dispatch.num_slices,
          .threads = threads};
}

Status Run::prepare_packed() {
  if (options_.packed_cache.empty()) return {};
  packed_place_ = packed_place(options_.packed_cache, options_, inputs_);
  WIDEEP_TRY_ASSIGN(packed_, open_packed(*packed_place_, pack_order(nullptr)));
  return {};
}

// By one process of a node; the others wait. Who cannot write it takes the checkpoint, as without.
Status Run::write_packed(base::ThreadPool& threads, const std::function<void(uint64_t)>& on_bytes) {
  if (!packed_place_) return {};
  const transport::StartedRanks* const started = options_.started;
  if (!packed_ && (started == nullptr || started->is_first_of_node())) {
    model::PackOrder order = pack_order(&threads);
    order.progress = on_bytes;
    log::info("packing the weights into {}, once", packed_place_->directory);
    const Status written = run::write_packed(*packed_place_, order);
    if (!written.ok()) {
      log::warn("--packed-cache: {}; weights are taken from the checkpoint", written.message());
    }
  }
  // Nodes may have it or not.
  WIDEEP_TRY(agree_on(options_, {}));
  if (!packed_) {
    WIDEEP_TRY_ASSIGN(packed_, open_packed(*packed_place_, pack_order(nullptr)));
  }
  return {};
}

// A packed file that is missing is written from the checkpoint, and then read.
uint64_t Run::bytes_to_load() const {
  const uint64_t stored = run::bytes_to_load(inputs_, plan_.balances_online());
  if (!packed_place_) return stored;
  const PackedBytes packed = packed_bytes(pack_order(nullptr));
  // Absent experts are not loaded, but read when they are chosen.
  const uint64_t taken = plan_.has_absent_experts ? packed.dense : packed.all();
  return packed_ ? taken : stored + taken;
}

Status Run::write_trace() const {
  return trace_ ? formats::write_chrome_trace(options_.profile->path, *trace_) : Status();
}

Status agree_on(const RunOptions& options, const Status& mine,
                const transport::Settings& settings) {
  if (options.started == nullptr) return mine;
  // How long reading takes depends on the disk and differs between nodes.
  constexpr std::chrono::hours kLoadingTimeout{2};
  return options.started->agree_on(mine, settings, kLoadingTimeout);
}

}  // namespace wideep::run
