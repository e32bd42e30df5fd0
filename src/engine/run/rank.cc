// SPDX-License-Identifier: Apache-2.0
//
// A rank loads, then joins the others, and computes with them: groups of ranks → experts → model →
// pipeline → online balancing → engine → loop (Rank::compute). If the group gets other members, all
// of these are built anew around what the rank keeps: dense weights, the experts in its slots, and
// its requests with their caches (engine::EngineState). The functions before class Rank build one
// part each from the plan.
#include "run/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/byte_size.h"
#include "base/log.h"
#include "base/try.h"
#include "engine/constraints.h"
#include "engine/engine.h"
#include "ep/row_sharing.h"
#include "group/fault_drill.h"
#include "model/model_forms.h"
#include "model/parts/resident_experts.h"
#include "parallel/initial_placement.h"
#include "run/holdings.h"
#include "run/offer_shares.h"
#include "run/page_geometry.h"
#include "run/prompt_places.h"
#include "run/prompt_store.h"
#include "run/rank_reporter.h"
#include "transport/bridge.h"

namespace wideep::run {
namespace {

using transport::Endpoint;
using transport::FaultDrill;
using transport::Group;

// A place that does not answer for so long hangs.
constexpr std::chrono::seconds kPlaceTime{10};
// For what was computed last to get into its places, when a rank ends.
constexpr std::chrono::seconds kFlushTime{20};
// Less where somebody waits for the end: of the five seconds after Ctrl-C, say.
constexpr std::chrono::seconds kStopFlushTime{2};
constexpr std::chrono::milliseconds kFlushSlice{10};

// The pipeline stage of this rank, and the groups of ranks within it.
struct Stage {
  parallel::LayerRange layers;
  balance::ModelPlacement placement;    // of these layers
  const OnlineParts* online = nullptr;  // null: the stage has no online balancing
  std::unique_ptr<Endpoint> ranks;      // all ranks of the stage
  // With context parallelism: the ranks that differ only in tp, and only in cp.
  std::unique_ptr<Endpoint> tensor_ranks, context_ranks;
  // The ranks that hold slices of the same experts; null: experts are whole.
  std::unique_ptr<Endpoint> shards;
  std::unique_ptr<online::BoardRelay> relay;  // null unless online balancing spans several nodes
  int64_t iteration = 0;                      // with which the members begin

  // The ranks that dispatch rows to each other.
  Endpoint& experts() const { return tensor_ranks ? *tensor_ranks : *ranks; }
};

// Slice s of the experts of owner r lies on rank s · owners + r.
std::unique_ptr<Endpoint> shard_ranks(const ep::DispatchShape& dispatch, Endpoint& experts) {
  if (dispatch.num_slices == 1) return nullptr;
  const int owners = dispatch.num_owners();
  std::vector<int> ranks;
  for (int rank = experts.rank() % owners; rank < experts.num_ranks(); rank += owners) {
    ranks.push_back(experts.world_rank(rank));
  }
  return std::make_unique<Endpoint>(experts, Group::kShards, std::move(ranks));
}

// The groups of this rank. Placement and online parts follow when the members are known.
Stage stage_of(const Run& run, Endpoint& world, const std::vector<int>& ranks) {
  const RunPlan& plan = run.plan();
  const parallel::Mapping& mapping = plan.mapping;
  const int index = mapping.coordinates(world.rank()).pp_rank;
  Stage stage{.layers = plan.layers_of(world.rank())};
  stage.placement = parallel::placement_of_layers(plan.model.placement, stage.layers);
  stage.ranks = std::make_unique<Endpoint>(world, Group::kStage, ranks);
  if (mapping.sizes().cp > 1) {
    stage.tensor_ranks = std::make_unique<Endpoint>(
        world, Group::kExperts, mapping.group(parallel::Axis::kTp, world.rank()));
    stage.context_ranks = std::make_unique<Endpoint>(
        world, Group::kContext, mapping.group(parallel::Axis::kCp, world.rank()));
  }
  stage.shards = shard_ranks(plan.dispatch, stage.experts());
  if (!plan.balances_online() || stage.placement.layers.empty()) return stage;
  stage.online = &run.online()[static_cast<size_t>(index)];
  if (world.bridge() != nullptr) {
    stage.relay = std::make_unique<online::BoardRelay>(*world.bridge(), *stage.online->board, index,
                                                       ranks, stage.ranks->rank());
  }
  return stage;
}

// With several nodes, each node has a copy of the update boards of all stages. The bridge passes
// changes made on other nodes to this callback, which writes them into the copy. The boards outlive
// the bridge.
void follow_boards(const Run& run, transport::Bridge* bridge) {
  if (run.online().empty() || bridge == nullptr) return;
  std::vector<online::UpdateBoard*> boards;
  for (const OnlineParts& stage : run.online()) boards.push_back(stage.board.get());
  bridge->set_on_notice([boards = std::move(boards)](std::span<const std::byte> notice) {
    return online::apply_notice(notice, boards);
  });
}

// ---- weights ----

// Of the ranks that have their place on this node.
int index_on_node(const transport::Seat& seat) {
  int index = 0;
  for (int rank = 0; rank < seat.rank(); ++rank) index += seat.is_on_this_node(rank) ? 1 : 0;
  return index;
}

// Whose slots a rank has in the placement of its stage.
model::SlotOwner owner_of_slots(const RunPlan& plan, int rank_among_experts) {
  const int owners = plan.dispatch.num_owners();
  return {rank_among_experts % owners, rank_among_experts / owners, plan.dispatch.num_slices};
}

// Before the members are known: as if all ranks were there.
model::SlotOwner planned_owner(const RunPlan& plan, int rank) {
  const parallel::Mapping& mapping = plan.mapping;
  const std::vector<int> ranks =
      mapping.sizes().cp > 1 ? mapping.group(parallel::Axis::kTp, rank) : mapping.stage(rank);
  const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  return owner_of_slots(plan, static_cast<int>(place));
}

std::vector<int> layers_in(const balance::ModelPlacement& placement) {
  std::vector<int> layers;
  for (const auto& [layer, each] : placement.layers) layers.push_back(layer);
  return layers;
}

// ---- the parts of an engine ----

Result<std::unique_ptr<online::UpdatePolicy>> make_policy(const RunPlan& plan, const Stage& stage,
                                                          const OnlinePlan& online) {
  if (stage.online->make_policy) return stage.online->make_policy();
  const auto& layers = stage.placement.layers;
  const balance::Placement& any = layers.begin()->second;
  return online::make_update_policy({.plan = {.num_experts = any.num_experts,
                                              .ep_size = any.ep_size,
                                              .num_slots = any.num_slots()},
                                     .num_layers = static_cast<int>(layers.size()),
                                     .top_k = plan.model.config.routing.top_k},
                                    online.policy);
}

online::BalancerOptions balancer_options(const RunPlan& plan, const ep::DispatchShape& dispatch,
                                         const OnlinePlan& online) {
  online::BalancerOptions options = online.balancer;
  options.top_k = plan.model.config.routing.top_k;
  options.ledger.equal_shares = online.policy.policy == online::PolicyKind::kTrt;
  options.ledger.may_rest = plan.model.placement.rests_when_unpaid;
  options.ledger.trial_rows = online.policy.horizon_tokens * options.top_k;
  if (dispatch.num_nodes == 1) options.ledger.even_above_rows = ep::RowSharing::min_rows(dispatch);
  return options;
}

model::TensorGroup tensor_group(const RunPlan& plan, const Stage& stage) {
  if (!plan.joint) return {};
  return {stage.experts(), plan.segment.joint_offset(), *plan.joint};
}

model::TensorGroup context_group(const RunPlan& plan, const Stage& stage) {
  if (!plan.context) return {};
  return {*stage.context_ranks, plan.segment.logits_offset(), *plan.context};
}

model::TensorGroup shard_group(const RunPlan& plan, const Stage& stage) {
  if (!plan.shards) return {};
  return {*stage.shards, plan.segment.shards_offset(), *plan.shards};
}

model::SharedHead shared_head(const RunPlan& plan, const Stage& stage) {
  if (!plan.heads || stage.layers.last != plan.model.config.num_all_layers()) return {};
  return {.ranks = {stage.experts(), plan.segment.heads_offset(), *plan.heads},
          .max_size = plan.shared_head_ranks};
}

engine::ContextPlace context_place(const RunPlan& plan, const Stage& stage) {
  if (!plan.context) return {};
  const Endpoint& ranks = *stage.context_ranks;
  engine::ContextPlace place{.rank = ranks.rank(), .size = ranks.num_ranks()};
  for (int rank = 0; rank < ranks.num_ranks(); ++rank) {
    place.caches.push_back(ranks.segment(rank) + plan.segment.cache_offset());
  }
  return place;
}

// What this rank has sent to other nodes since the start.
NodeTraffic traffic_of(const model::MoeRunner& moe, const Endpoint& world) {
  NodeTraffic traffic;
  if (const ep::NodeCrossing* crossing = moe.crossing()) {
    traffic.dispatched_rows = crossing->token_nodes();
    traffic.returned_rows = crossing->returned_rows();
  }
  if (const transport::Bridge* bridge = world.bridge()) {
    const auto sent = [&](transport::Traffic kind) {
      return static_cast<int64_t>(bridge->sent_bytes(kind));
    };
    traffic.dispatched_bytes = sent(transport::Traffic::kRows);
    traffic.returned_bytes = sent(transport::Traffic::kResults);
    traffic.other_bytes = sent(transport::Traffic::kOther);
  }
  return traffic;
}

class Rank {
 public:
  Rank(const Run& run, transport::Seat& seat)
      : run_(run),
        plan_(run.plan()),
        config_(plan_.model.config),
        seat_(seat),
        reporter_(run, seat.rank(), seat.messenger()),
        layers_(plan_.layers_of(seat.rank())),
        threads_(plan_.threads.of_rank(index_on_node(seat))),
        loader_(
            run.inputs().tensors(), run.options().format,
            [this](uint64_t bytes) {
              has_read_ = true;
              reporter_.weights_read(bytes);
            },
            &threads_),
        compute_(*run.inputs().kernels, threads_),
        kv_(config_, plan_.cache, layers_, plan_.joint ? plan_.mapping.sizes().tp : 1),
        states_(config_, layers_, plan_.state_part_of(seat.rank())),
        feed_(seat.commands(),
              plan_.joint ? std::nullopt : std::optional(seat.rank() % plan_.mapping.sizes().tp),
              // Where members may change, each rank has a pipe of its own.
              seat.may_change() ? nullptr : seat.bridge()),
        limits_(plan_.limits) {
    if (run.packed() != nullptr) loader_.take_from(*run.packed());
    if (run.vocabulary() != nullptr) constraints_.emplace(*run.vocabulary());
  }

  Status run() {
    WIDEEP_TRY(load());
    WIDEEP_TRY(check_what_was_read());
    WIDEEP_TRY(open_store());
    for (;;) {
      WIDEEP_TRY_ASSIGN(const std::optional<transport::Members> members, seat_.join());
      if (!members) {
        if (store_) store_->flush(kFlushTime);
        return {};
      }
      // At once: if these members lose one before they compute, it is not said again.
      if (members->has_new_front) WIDEEP_TRY(begin_with_new_front());
      const Status ended = compute(*members);
      if (has_finished_ || (!ended.ok() && !goes_on_after(ended))) return ended;
      if (!state_) continue;
      for (const int request : state_->give_up_step()) WIDEEP_TRY(reporter_.ended(request));
    }
  }

 private:
  Status load();
  // That it is still what the file had when it was opened.
  Status check_what_was_read() {
    return std::exchange(has_read_, false) ? run_.inputs().tensors().check_unchanged() : Status();
  }
  Status begin_with_new_front() {
    feed_.restart(seat_.commands());
    reporter_.forget_front();
    if (store_) WIDEEP_TRY(store_->end_fetches(kPlaceTime));
    if (!state_) return {};
    state_->drop_requests();
    state_->scheduler.tell_again();
    reporter_.forget_pages();
    return {};
  }
  void log_residency();
  void keep_popularity();
  Status open_experts(const balance::ModelPlacement& placement, const model::SlotOwner& owner);
  Status open_store();
  void flush_store(Endpoint& world);
  Status compute(const transport::Members& members);
  Status prepare_experts(Stage& stage, const transport::Members& members);
  Status regroup(Stage& stage);
  Result<OnlinePlan> online_plan(const Stage& stage) const;
  const OnlineParts* online() const;
  bool is_elastic() const { return plan_.is_elastic(); }
  // Whether what went wrong only means to join other members: one was lost, or the front.
  bool goes_on_after(const Status& ended) const {
    return seat_.has_lost(ended) || (seat_.may_change() && feed_.has_lost_writer());
  }

  const Run& run_;
  const RunPlan& plan_;
  const model::ModelConfig& config_;
  transport::Seat& seat_;
  RankReporter reporter_;
  parallel::LayerRange layers_;
  bool has_read_ = false;  // weights, since check_what_was_read(); set by one thread at a time
  base::ThreadPool threads_;
  weights::WeightLoader loader_;
  model::Compute compute_;
  model::KvLayout kv_;
  model::StateLayout states_;
  engine::RequestFeed feed_;
  engine::SchedulerLimits limits_;  // those of the plan, and the class of its pages
  std::optional<model::ExpertSlots> slots_;
  std::unique_ptr<model::ResidentExperts> resident_;  // of slots_; null: all are in memory
  std::optional<engine::Constraints> constraints_;    // outlives the requests of state_
  std::optional<engine::EngineState> state_;
  std::optional<PromptStore> store_;  // reads and fills the pages of state_
  bool has_finished_ = false;
};

// Null if the experts of this rank's stage never move.
const OnlineParts* Rank::online() const {
  if (!plan_.balances_online()) return nullptr;
  const int stage = plan_.mapping.coordinates(seat_.rank()).pp_rank;
  const OnlineParts& parts = run_.online()[static_cast<size_t>(stage)];
  return parts.balances() ? &parts : nullptr;
}

// Without online balancing each rank reads its own experts. With it, the ranks of a node together
// read all experts of the stage into the host pool; when that is filled, each copies its own slots
// from it. Where all ranks start together, joining the others shows that it is filled; a rank that
// was started again waits for it here, and reads what one that has died has left.
Status Rank::load() {
  const balance::ModelPlacement placement =
      parallel::placement_of_layers(plan_.model.placement, layers_);
  const model::SlotOwner owner = planned_owner(plan_, seat_.rank());
  if (plan_.has_absent_experts) return open_experts(placement, owner);
  if (online() == nullptr) {
    WIDEEP_TRY_ASSIGN(slots_, model::ExpertSlots::load(config_, loader_, placement, owner));
    return {};
  }
  weights::HostPool& pool = *online()->pool;
  const std::vector<int> layers = layers_in(placement);
  WIDEEP_TRY(model::fill_host_pool(layers, loader_, seat_.rank(), threads_, pool));
  if (!seat_.may_change()) return {};
  while (!pool.is_filled()) {
    constexpr std::chrono::milliseconds kPause{1};
    std::this_thread::sleep_for(kPause);
    WIDEEP_TRY(model::fill_host_pool(layers, loader_, seat_.rank(), threads_, pool));
  }
  WIDEEP_TRY_ASSIGN(slots_, model::ExpertSlots::copy(pool, placement, owner, threads_));
  return {};
}

// Threads that the plan binds leave these to others while they wait. Empty: none is bound.
std::vector<int> processors_of_all(const ThreadPlan& threads) {
  std::vector<int> all;
  for (const auto& rank : threads.processors) all.insert(all.end(), rank.begin(), rank.end());
  return all;
}

// Those of the placement, none of which is in memory yet.
Status Rank::open_experts(const balance::ModelPlacement& placement, const model::SlotOwner& owner) {
  if (run_.packed() == nullptr) {
    return failed(
        "--expert-memory: there are no packed weights that absent experts could be read from");
  }
  reporter_.set_experts(nullptr);
  resident_.reset();
  std::vector<std::string> wrong;
  residency::Popularity popularity = residency::read_popularity(run_.packed()->directory(), &wrong);
  for (const std::string& line : wrong) log::warn("{}", line);
  slots_ = model::ExpertSlots::absent(model::experts_shape(config_, loader_, owner.num_slices),
                                      placement, owner);
  WIDEEP_TRY_ASSIGN(resident_,
                    model::ResidentExperts::open(*run_.packed(), *slots_,
                                                 {.memory = plan_.memory.front().slots_per_rank,
                                                  // Other ranks wait for this one meanwhile.
                                                  .deadline = run_.options().timeout / 4,
                                                  .policy = {},
                                                  .popularity = std::move(popularity),
                                                  .processors = processors_of_all(plan_.threads),
                                                  .read_piece = {}}));
  reporter_.set_experts(resident_.get());
  if (seat_.rank() == 0) log::info("experts of each rank: {}", resident_->description());
  return {};
}

void Rank::log_residency() {
  residency::ResidencyCounts all;
  for (const residency::ResidencyCounts& layer : resident_->counts()) all += layer;
  if (all.chosen > 0) {
    const weights::RecordCounters read = resident_->read();
    log::info(
        "experts: {:.3f} of {} that were chosen were in memory, {:.3f} read ahead ({:.2f} of all "
        "that were); {} read at {:.2f} GB/s, {:.2f} s waited for{}",
        static_cast<double>(all.hits) / static_cast<double>(all.chosen), all.chosen,
        static_cast<double>(all.expected) / static_cast<double>(all.chosen),
        static_cast<double>(all.expected) /
            static_cast<double>(std::max<int64_t>(1, all.expected + all.read_in_vain)),
        base::byte_size(read.bytes), static_cast<double>(read.bytes) * 1e-9 / read.busy_s,
        static_cast<double>(all.waited_ns) * 1e-9,
        all.lost > 0 ? fmt::format("; {} could not be read", all.lost) : "");
  }
}

// What was popular is for the next run, or the next members, which can do without.
void Rank::keep_popularity() {
  const std::string path = residency::popularity_path(run_.packed()->directory(), seat_.rank());
  const Status written = residency::write_popularity(path, resident_->popularity());
  if (!written.ok()) log::warn("{}", written.message());
}

// To others, or to the front, which deals requests to several owners.
bool tells_pages(const Run& run) {
  return run.options().tells_pages ||
         (run.options().reuses_pages() && run.plan().num_request_owners() > 1);
}

Status Rank::open_store() {
  const RunOptions& options = run_.options();
  limits_.record_class = run_.record_class();
  if (!run_.looks_for_prompts()) return {};
  WIDEEP_TRY_ASSIGN(PageGeometry geometry, page_geometry(plan_, seat_.rank(), run_.record_class()));
  WIDEEP_TRY_ASSIGN(auto places, open_prompt_places(options, geometry, run_.host_tier_memory()));
  WIDEEP_TRY_ASSIGN(const OfferShares shares, share_offers(plan_, seat_.rank(), [this](int rank) {
                      return seat_.is_on_this_node(rank);
                    }));
  const transport::NodeMap* nodes = node_map(options);
  WIDEEP_TRY_ASSIGN(const OffersToFront to_front,
                    offers_to_front(plan_, seat_.rank(), [nodes](int rank) {
                      return nodes == nullptr || nodes->node_of(rank) == nodes->node_of(0);
                    }));
  store_.emplace(PromptStore::Parts{.rank = seat_.rank(),
                                    .keeps_states = plan_.limits.state_slots > 0,
                                    .geometry = std::move(geometry),
                                    .places = store::Places(std::move(places)),
                                    .processors = processors_of_all(plan_.threads),
                                    .of_pages = shares.of_pages,
                                    .of_states = shares.of_states,
                                    .sends_pages = to_front.pages,
                                    .sends_states = to_front.states},
                 seat_.messenger());
  return {};
}

// Peers that are not as far may still need what this rank sends and passes on to other nodes.
void Rank::flush_store(Endpoint& world) {
  using Clock = std::chrono::steady_clock;
  if (!store_) return;
  const transport::SharedMemory& memory = world.memory();
  const bool is_stopped = memory.control().stop_requested.load() != 0;
  const auto end = Clock::now() + (is_stopped ? kStopFlushTime : kFlushTime);
  while (store_->flush(kFlushSlice) > 0 && Clock::now() < end && memory.failure().ok()) {
    while (world.bridge() != nullptr && world.bridge()->progress()) {
    }
  }
}

// ---- as a member ----

// The experts of stage.placement in this rank's slots.
Status Rank::prepare_experts(Stage& stage, const transport::Members& members) {
  const model::SlotOwner owner = owner_of_slots(plan_, stage.experts().rank());
  if (!slots_) {
    WIDEEP_TRY_ASSIGN(slots_,
                      model::ExpertSlots::copy(*online()->pool, stage.placement, owner, threads_));
  }
  const bool is_as_planned =
      members.epoch == 1 && static_cast<int>(members.ranks.size()) == plan_.mapping.world_size();
  if (is_as_planned) return {};
  if (is_elastic()) WIDEEP_TRY(regroup(stage));
  if (resident_ != nullptr) {
    return open_experts(stage.placement,
                        is_elastic() ? model::SlotOwner(stage.experts().rank()) : owner);
  }
  return slots_->rearrange(
      stage.placement, is_elastic() ? model::SlotOwner(stage.experts().rank()) : owner,
      [&](std::span<const model::ExpertSlots::Missing> missing) {
        reporter_.reloads(static_cast<int>(missing.size()));
        if (online() != nullptr) {
          return model::copy_experts(*online()->pool, stage.placement, owner.slice, missing,
                                     threads_);
        }
        return model::load_experts(config_, loader_, owner.slice, owner.num_slices, missing);
      });
}

// The placement of the members, from what they hold.
Status Rank::regroup(Stage& stage) {
  Holdings own{.iteration = state_ ? state_->iteration : 0,
               .experts = {},
               .loads = reporter_.expert_loads()};
  for (const auto& [layer, placement] : stage.placement.layers) {
    const auto experts = slots_->experts(layer);
    own.experts.emplace_back(experts.begin(), experts.end());
  }
  WIDEEP_TRY_ASSIGN(const std::vector<Holdings> all, exchange_holdings(own, plan_, *stage.ranks));
  stage.placement = regroup_placement(plan_, all);
  for (const Holdings& each : all) stage.iteration = std::max(stage.iteration, each.iteration);
  FaultDrill::pass(FaultDrill::Step::kRegrouped);
  return {};
}

// Of the members' placement.
Result<OnlinePlan> Rank::online_plan(const Stage& stage) const {
  OnlinePlan plan = online()->plan;
  if (!is_elastic()) return plan;
  const balance::Placement& any = stage.placement.layers.begin()->second;
  const bool is_as_planned =
      any.ep_size == plan.board.owners() && any.num_slots() == plan.board.num_slots;
  if (!is_as_planned) {
    base::Machine machine;
    machine.allowed = plan.balancer.processors;
    WIDEEP_TRY_ASSIGN(
        plan, plan_online_stage(plan.experts, stage.placement, stage.ranks->num_ranks(), machine));
  }
  online()->board->reshape(plan.board);
  return plan;
}

Status Rank::compute(const transport::Members& members) {
  Endpoint& world = seat_.world();
  follow_boards(run_, world.bridge());
  Stage stage =
      stage_of(run_, world, is_elastic() ? members.ranks : plan_.mapping.stage(world.rank()));
  reporter_.set_members(members);
  WIDEEP_TRY(prepare_experts(stage, members));
  WIDEEP_TRY(check_what_was_read());
  if (online() != nullptr) slots_->read_pool(*online()->pool);
  FaultDrill::pass(FaultDrill::Step::kFilled);
  WIDEEP_TRY(transport::wait_for_weights(*stage.ranks));

  // The model, over the layers of this stage.
  const ep::DispatchShape dispatch =
      is_elastic() ? plan_.dispatch_between(members.ranks) : plan_.dispatch;
  model::MoeOptions moe_options = plan_.moe;
  moe_options.resident = resident_.get();
  model::MoeRunner moe(config_, stage.placement, *slots_, stage.experts(),
                       ep::BufferLayout(dispatch), moe_options, shard_group(plan_, stage));
  model::Model model(config_, run_.weights(), compute_, moe, stage.layers,
                     tensor_group(plan_, stage), context_group(plan_, stage),
                     shared_head(plan_, stage));
  engine::Pipeline pipeline(world, plan_.mapping.group(parallel::Axis::kPp, world.rank()),
                            plan_.pipeline, plan_.segment.pipeline_offset());
  std::unique_ptr<online::UpdatePolicy> policy;
  std::optional<engine::OnlineLayers> online_layers;
  // One rank has all experts: nothing to balance.
  if (online() != nullptr && stage.placement.layers.begin()->second.ep_size > 1) {
    WIDEEP_TRY_ASSIGN(const OnlinePlan plan, online_plan(stage));
    WIDEEP_TRY_ASSIGN(policy, make_policy(plan_, stage, plan));
    online_layers.emplace(
        online::OnlineSetup{
            .board = *stage.online->board,
            .pool = *stage.online->pool,
            .placement = stage.placement,
            .options = balancer_options(plan_, dispatch, plan),
            .policy = *policy,
            .on_rebalance = [&](const online::Rebalance& each) { reporter_.rebalanced(each); },
            .on_trust_change =
                [&](const online::TrustChange& change) { reporter_.trust_changed(change); },
            .on_copy = stage.online->on_copy,
            .relay = stage.relay.get()},
        stage.ranks->rank(), *slots_, moe);
  }

  // The loop. Ranks of a joint group compute all requests; otherwise each tp rank owns some.
  const int tp = stage.experts().num_ranks();
  const engine::EngineParts parts{
      .config = config_,
      .limits = limits_,
      .speculation = plan_.speculation,
      .model = model,
      .kv = kv_,
      .states = states_,
      .moe = moe,
      .compute = compute_,
      .stage = *stage.ranks,
      .dispatch_ranks = {plan_.mapping.coordinates(world.rank()).cp_rank * tp, tp},
      .context_place = context_place(plan_, stage),
      .pipeline = pipeline,
      .online = online_layers ? &*online_layers : nullptr,
      .constraints = constraints_ ? &*constraints_ : nullptr,
      .has_absent_experts = plan_.has_absent_experts,
      .resident = resident_.get(),
      .store = store_ ? &*store_ : nullptr,
      .tells_pages = tells_pages(run_),
      .feed = feed_,
      .reporter = reporter_};
  // Ranks that compute requests together have lost what one of them has lost.
  if (!is_elastic()) {
    if (store_) WIDEEP_TRY(store_->end_fetches(kPlaceTime));
    state_.reset();
  }
  if (!state_) {
    state_.emplace(parts, pipeline.is_last());
    reporter_.forget_pages();
  }
  state_->iteration = std::max(state_->iteration, stage.iteration);
  feed_.begin_epoch(members.epoch, !is_elastic());
  engine::Engine engine(parts, *state_);
  WIDEEP_TRY(reporter_.ready());
  const Result<engine::Engine::Ended> ended = engine.run();
  if (resident_ != nullptr) log_residency();
  const bool goes_on =
      ended.ok() ? *ended == engine::Engine::Ended::kMembersChange : goes_on_after(ended.status());
  // Not before the others hear of an error.
  if (resident_ != nullptr && (ended.ok() || goes_on)) keep_popularity();
  if (goes_on) return ended.status();
  has_finished_ = true;
  // The others wait to hear of an error.
  if (ended.ok()) flush_store(world);
  return reporter_.finish(ended.status(), engine.times(), traffic_of(moe, world));
}

}  // namespace

Status run_rank(const Run& run, transport::Seat& seat) {
  log::set_rank(seat.rank());
  return Rank(run, seat).run();
}

}  // namespace wideep::run
