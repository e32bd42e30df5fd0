// SPDX-License-Identifier: Apache-2.0
#include "engine/run_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "base/machine.h"
#include "base/try.h"
#include "engine/page_pool.h"
#include "formats/files.h"
#include "model/latent_form.h"
#include "model/tensor_names.h"
#include "parallel/initial_placement.h"
#include "weights/random_tensors.h"

namespace wideep::engine {
namespace {

constexpr int64_t kForever = std::numeric_limits<int>::max();  // iterations

// Every request of a batch needs room for at least its next token.
Status check_batch_size(const parallel::ParallelConfig& config) {
  const int64_t tokens = config.max_num_tokens.value_or(kDefaultMaxNumTokens);
  if (!config.max_batch_size || *config.max_batch_size <= tokens) return {};
  return invalid_input(fmt::format(
      "{}: max_batch_size: expected at most max_num_tokens ({}), found {}; lower one or raise the "
      "other",
      config.name, tokens, *config.max_batch_size));
}

// Whether the ranks of a stage, between which rows are dispatched, are on several nodes.
bool stages_cross_nodes(const RunOptions& options) {
  if (options.started == nullptr) return false;
  const transport::NodeMap& nodes = options.started->nodes();
  const parallel::Mapping mapping = options.parallel.mapping();
  for (int rank = 0; rank < nodes.num_ranks(); ++rank) {
    if (nodes.node_of(rank) != nodes.node_of(mapping.stage(rank).front())) return true;
  }
  return false;
}

// Ranks that a launcher has started: as many as the configuration says, and what they cannot do.
Status check_started(const RunOptions& options) {
  if (options.started == nullptr) return {};
  const int configured = options.parallel.mapping().world_size();
  if (configured != options.started->num_ranks()) {
    return invalid_input(
        fmt::format("{}: {} ranks are configured, but {} processes were started: start as many",
                    options.parallel.name, configured, options.started->num_ranks()));
  }
  if (options.profile && options.profile->writes_trace()) {
    return invalid_input(
        "--profile-range: ranks that mpirun or srun has started cannot be profiled yet; use "
        "--ranks on one machine");
  }
  return {};
}

Result<std::vector<OnlineParts>> online_stages(const RunOptions& options, const RunFiles& files) {
  const weights::WeightLoader looking(*files.tensors, options.format);
  auto stages = make_online_stages(
      model::experts_shape(files.config, looking, options.parallel.sizes.moe_tp), files.placement,
      options.parallel.mapping(), files.config.num_layers,
      options.started != nullptr ? options.started->make_shared() : base::SharedBytes::create);
  if (!stages.ok()) return stages.status().at(parallel::balancer_name(options.parallel));
  return stages;
}

// Of the node that has most: all ranks have the same number of threads.
int most_ranks_of_a_node(const RunOptions& options) {
  if (options.started == nullptr) return options.parallel.mapping().world_size();
  const transport::NodeMap& nodes = options.started->nodes();
  size_t most = 0;
  for (int node = 0; node < nodes.num_nodes(); ++node) {
    most = std::max(most, nodes.ranks_of(node).size());
  }
  return static_cast<int>(most);
}

// Nodes of a stage between whose ranks rows are dispatched, where each of them owns as many of its
// ranks in a row; else 1.
int nodes_of_stage(const RunOptions& options) {
  const parallel::ParallelSizes& sizes = options.parallel.sizes;
  if (sizes.cp > 1 || sizes.moe_tp > 1) return 1;
  if (!stages_cross_nodes(options) || !options.started->nodes().is_even()) return 1;
  const transport::NodeMap& nodes = options.started->nodes();
  const int ranks_of_node = nodes.num_ranks() / nodes.num_nodes();
  const int ranks_of_stage = options.parallel.mapping().stage_size();
  return ranks_of_stage % ranks_of_node == 0 ? ranks_of_stage / ranks_of_node : 1;
}

ep::DispatchShape shape_of(const RunOptions& options, const RunFiles& files,
                           const RunShapes& shapes) {
  ep::DispatchShape shape =
      dispatch_shape(files.config, options.parallel.sizes.tp, files.placement.num_slots,
                     dispatched_tokens(options.parallel, shapes.limits.max_num_tokens), shapes.moe,
                     options.parallel.moe_config.max_num_tokens, combine_of(options.parallel),
                     options.parallel.sizes.moe_tp);
  shape.num_nodes = nodes_of_stage(options);
  // Rows can be read in place on one node only.
  if (stages_cross_nodes(options)) shape.strategy = ep::Strategy::kDispatch;
  return shape;
}

// No sequence is longer than the positions the model was made for.
Result<int> max_sequence(const RunOptions& options, const model::ModelConfig& config) {
  const int64_t limit = options.parallel.max_seq_len.value_or(config.max_position_embeddings);
  if (limit <= config.max_position_embeddings) return static_cast<int>(limit);
  return invalid_input(fmt::format(
      "{}: max_seq_len: expected at most the model's max_position_embeddings {}, found {}",
      options.parallel.name, config.max_position_embeddings, limit));
}

Result<std::optional<tokenizer::Tokenizer>> read_tokenizer(const RunOptions& options,
                                                           const model::ModelConfig& config) {
  const std::string& directory = options.model_dir;
  if (!options.needs_tokenizer && !std::filesystem::exists(directory + "/tokenizer.json")) {
    return std::optional<tokenizer::Tokenizer>();
  }
  WIDEEP_TRY_ASSIGN(tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::read(directory));
  if (tokenizer.id_limit() <= config.vocab_size) return std::optional(std::move(tokenizer));
  return invalid_input(
      fmt::format("{}/tokenizer.json: has token ids up to {}, but config.json: vocab_size is {}",
                  directory, tokenizer.id_limit() - 1, config.vocab_size));
}

Result<model::ModelConfig> read_config(const RunOptions& options) {
  if (!options.random_weights || !options.model_dir.ends_with(".json")) {
    return model::read_model_config(options.model_dir);
  }
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(options.model_dir));
  return model::parse_model_config(text, options.model_dir);
}

Status open_tensors(const RunOptions& options, RunFiles* files) {
  if (options.random_weights) {
    files->tensors = std::make_unique<weights::RandomTensors>(*options.random_weights);
    return {};
  }
  WIDEEP_TRY_ASSIGN(weights::Checkpoint checkpoint, weights::Checkpoint::open(options.model_dir));
  WIDEEP_TRY(model::check_tensor_names(files->config, checkpoint.names(), options.model_dir));
  auto kept = std::make_unique<weights::Checkpoint>(std::move(checkpoint));
  files->checkpoint = kept.get();
  files->tensors = std::move(kept);
  return {};
}

// Ranks of each stage on this node; empty where no launcher has started them.
std::vector<int> started_here(const RunSetup& setup) {
  const transport::StartedRanks* started = setup.options.started;
  if (started == nullptr) return {};
  std::vector<int> ranks(static_cast<size_t>(setup.mapping.sizes().pp), 0);
  for (const int rank : started->nodes().ranks_of(started->node())) {
    ++ranks[static_cast<size_t>(setup.mapping.coordinates(rank).pp_rank)];
  }
  return ranks;
}

Status check_memory(const RunSetup& setup) {
  if (setup.online.empty()) return {};
  return check_online_memory(setup.online, memory_of_stages(setup),
                             base::read_machine().usable_memory_bytes(), started_here(setup));
}

}  // namespace

Result<RunFiles> read_run_files(const RunOptions& options) {
  WIDEEP_TRY(check_started(options));
  WIDEEP_TRY_ASSIGN(const kernels::Kernels* kernels,
                    kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  WIDEEP_TRY(check_batch_size(options.parallel));
  WIDEEP_TRY_ASSIGN(model::ModelConfig config, read_config(options));
  if (options.perfect_router) {
    WIDEEP_TRY(model::PerfectRouter::check(config.routing, options.parallel.sizes.moe_ep));
  }
  WIDEEP_TRY_ASSIGN(balance::ModelPlacement placement,
                    parallel::initial_placement(options.parallel,
                                                {moe_layers(config), config.routing.num_experts}));
  WIDEEP_TRY_ASSIGN(std::optional<tokenizer::Tokenizer> tokenizer, read_tokenizer(options, config));
  WIDEEP_TRY_ASSIGN(const int longest, max_sequence(options, config));
  RunFiles files{.kernels = kernels,
                 .config = std::move(config),
                 .placement = std::move(placement),
                 .tokenizer = std::move(tokenizer),
                 .tensors = nullptr,
                 .max_sequence = longest};
  WIDEEP_TRY(open_tensors(options, &files));
  if (options.statistics) {
    WIDEEP_TRY(recordings::prepare_statistics_directory(options.statistics->directory));
  }
  return files;
}

SchedulerLimits scheduler_limits(const RunOptions& options) {
  SchedulerLimits limits;
  limits.max_num_tokens =
      static_cast<int>(options.parallel.max_num_tokens.value_or(kDefaultMaxNumTokens));
  limits.max_batch_size = static_cast<int>(options.parallel.max_batch_size.value_or(
      std::min(kDefaultMaxBatchSize, limits.max_num_tokens)));
  limits.prefill_chunk = options.prefill_chunk;
  limits.micro_batches = options.parallel.micro_batches();
  limits.reuse_pages = options.reuses_pages();
  if (options.parallel.scheduler_config.capacity_scheduler_policy == "MAX_UTILIZATION") {
    limits.policy = CapacityPolicy::kMaxUtilization;
  }
  if (const auto& balance = options.parallel.attention_dp_config) {
    limits.balance = {
        .enabled = balance->enable_balance,
        .timeout_iters = static_cast<int>(std::min(balance->timeout_iters, kForever)),
        .batching_wait_iters = static_cast<int>(std::min(balance->batching_wait_iters, kForever))};
  }
  limits.turn_pages = context_turn(options.parallel, limits.max_num_tokens) / kernels::kPageTokens;
  limits.max_rank_tokens = tokens_of_rank(options.parallel, limits.max_num_tokens);
  if (const auto max_tokens = options.parallel.kv_cache_config.max_tokens) {
    limits.max_pages = static_cast<int>(*max_tokens / kernels::kPageTokens);
  }
  return limits;
}

Result<RunShapes> run_shapes(const RunOptions& options, const RunFiles& files,
                             const SchedulerLimits& limits) {
  const weights::WeightLoader looking(*files.tensors, options.format);
  RunShapes shapes{.limits = limits, .forms = model::model_forms(files.config, looking)};
  shapes.limits.roles_differ = model::roles_differ(files.config);
  WIDEEP_TRY_ASSIGN(shapes.moe,
                    moe_options(options.parallel, files.config, shapes.forms.experts.format));
  shapes.moe.perfect_router = options.perfect_router;
  WIDEEP_TRY(check_slices(options.parallel, files.config, shapes.moe));
  WIDEEP_TRY_ASSIGN(shapes.joint, joint_layout(options.parallel, files.config,
                                               limits.max_num_tokens, limits.max_batch_size));
  WIDEEP_TRY_ASSIGN(shapes.pipeline, pipeline_layout(options.parallel, files.config,
                                                     limits.max_num_tokens, limits.max_batch_size));
  return shapes;
}

Status Run::make_online(const RunOptions& options) {
  if (files_.placement.layer_updates_per_iter == 0) return {};
  WIDEEP_TRY_ASSIGN(online_, online_stages(options, files_));
  for (OnlineParts& parts : online_) {
    if (options.adjust_online && parts.balances()) options.adjust_online(parts);
  }
  return {};
}

Result<std::unique_ptr<Run>> Run::make(const RunOptions& options, RunFiles files, RunShapes shapes,
                                       std::vector<Request> requests) {
  std::unique_ptr<Run> run(new Run(std::move(files), std::move(shapes)));
  WIDEEP_TRY(agree_on(options, run->make_online(options)));
  const parallel::Mapping mapping = options.parallel.mapping();
  if (options.profile && options.profile->writes_trace()) {
    WIDEEP_TRY_ASSIGN(run->trace_, base::TraceBuffer::create(mapping.world_size()));
  }
  run->setup_.emplace(
      RunSetup{.options = options,
               .config = run->files_.config,
               .tensors = *run->files_.tensors,
               .checkpoint = run->files_.checkpoint,
               .forms = run->shapes_.forms,
               .placement = run->files_.placement,
               .kernels = *run->files_.kernels,
               .weights = run->weights_,
               .requests = std::move(requests),
               .dispatch = shape_of(options, run->files_, run->shapes_),
               .moe = run->shapes_.moe,
               .limits = run->shapes_.limits,
               .mapping = mapping,
               .joint = run->shapes_.joint,
               .pipeline = run->shapes_.pipeline,
               .threads = plan_threads(base::read_machine(), most_ranks_of_a_node(options),
                                       options.threads_per_rank),
               .online = run->online_,
               .trace = run->trace_ ? &*run->trace_ : nullptr});
  return run;
}

// What all ranks share, before there are any: on all the threads they will have, which end here.
// Started ranks have no parent to share it with: each has its own, of its pipeline stage's layers.
Status Run::load(const std::function<void(uint64_t)>& on_bytes) {
  WIDEEP_TRY(check_memory(*setup_));
  const transport::StartedRanks* started = setup_->options.started;
  const int ranks = started != nullptr ? 1 : setup_->mapping.world_size();
  const int threads = ranks * setup_->threads.threads_per_rank;
  base::ThreadPool pool(std::min(threads, base::read_machine().usable_cores()));
  const weights::WeightLoader loader(*files_.tensors, setup_->options.format, on_bytes, &pool);
  std::optional<parallel::LayerRange> layers;
  if (started != nullptr) {
    layers = setup_->mapping.pp_layers(setup_->mapping.coordinates(started->rank()).pp_rank,
                                       setup_->config.num_layers);
  }
  WIDEEP_TRY_ASSIGN(weights_, model::ModelWeights::load(files_.config, loader, layers));
  return {};
}

Status agree_on(const RunOptions& options, const Status& mine,
                const transport::Settings& settings) {
  if (options.started == nullptr) return mine;
  // Reading weights takes as long as the disk takes, on some nodes longer than on others.
  constexpr std::chrono::hours kLoadingTimeout{2};
  return options.started->agree_on(mine, settings, kLoadingTimeout);
}

std::vector<MemoryPlan> memory_of_stages(const RunSetup& setup) {
  return plan_stages(setup.config, setup.dispatch, setup.forms, setup.options.cache_dtype(),
                     setup.joint, setup.pipeline, setup.mapping.sizes().cp);
}

std::vector<std::vector<int>> moe_layers_of_stages(const RunSetup& setup) {
  std::vector<std::vector<int>> stages(static_cast<size_t>(setup.mapping.sizes().pp));
  for (int stage = 0; stage < setup.mapping.sizes().pp; ++stage) {
    const parallel::LayerRange layers = setup.mapping.pp_layers(stage, setup.config.num_layers);
    for (const int layer : moe_layers(setup.config)) {
      if (layers.contains(layer)) stages[static_cast<size_t>(stage)].push_back(layer);
    }
  }
  return stages;
}

}  // namespace wideep::engine
