// SPDX-License-Identifier: Apache-2.0
//
// Ranks wait for each other in every layer: so an iteration is the sum over layers of the rank that
// takes longest. Where ranks take turns on cores they make up for each other: then it is the mean
// rank, times the ranks of a core. What travels between nodes goes on meanwhile: it is kept apart
// (wire) and added after that factor. Dispatch and combine have kernels for few tokens and for
// many; the faster of the two counts.
#include "cost/step_cost.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "cost/layer_cost.h"
#include "cost/rank_hardware.h"
#include "model/kv_layout.h"

namespace wideep::cost {
namespace {

using model::ModelConfig;
using model::StepShape;

constexpr double kActivationBytes = 2.0;   // bf16
constexpr double kIndexBytes = 16.0;       // of a row's slots and weights
constexpr double kScaleBytes = 4.0 / 128;  // of an fp8 element

double fp8_row(double hidden) { return hidden * (1.0 + kScaleBytes) + kIndexBytes; }

// The slowest between so many ranks.
const Link& link_between(const Hardware& hardware, int ranks) {
  const bool one_node =
      hardware.divisible ? hardware.nodes == 1 : ranks <= hardware.node_link_ranks;
  return one_node ? hardware.node_link : hardware.network;
}

}  // namespace

LayerDense dense_of_layer(const ModelConfig& config, int layer, int parts) {
  const model::LayerElements elements = model::elements_of_layer(config, layer);
  const auto hidden = static_cast<double>(config.hidden_size);
  const double mlp = static_cast<double>(elements.mlp) / parts;
  const double matrices = config.dense_activation.has_gate() ? 3.0 : 2.0;
  return {.mixer = {.weights = static_cast<double>(elements.mixer) / parts +
                               static_cast<double>(elements.router),
                    .matrices = static_cast<double>(elements.products),
                    .hidden = hidden},
          .mlp = {.weights = mlp,
                  .matrices = elements.mlp > 0 ? 2.0 : 0.0,
                  .intermediate = mlp / (matrices * hidden)}};
}

StepTime& StepTime::operator+=(const StepTime& other) {
  attention += other.attention;
  dense += other.dense;
  experts += other.experts;
  dispatch += other.dispatch;
  combine += other.combine;
  joint += other.joint;
  fixed += other.fixed;
  return *this;
}

StepTime& StepTime::operator*=(double factor) {
  for (double* part : {&attention, &dense, &experts, &dispatch, &combine, &joint, &fixed}) {
    *part *= factor;
  }
  return *this;
}

StepCost::StepCost(const Hardware& hardware, const ModelConfig& config, const Layout& layout,
                   std::vector<PlacedLayer> experts)
    : hardware_(hardware),
      config_(config),
      layout_(layout),
      turns_(turns_of_ranks(hardware, layout.num_ranks())),
      experts_(std::move(experts)) {
  WIDEEP_CHECK(hardware_.supports(layout_.format));
  WIDEEP_CHECK_EQ(static_cast<int>(experts_.size()), config_.num_moe_layers());
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    layers_.push_back(model::elements_of_layer(config_, layer));
    dense_.push_back(dense_of_layer(config_, layer, layout_.attention_parts()));
  }
  const model::KvLayout kv(config_, layout_.cache, layout_.attention_parts());
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    kv_bytes_.push_back(static_cast<double>(kv.layer_bytes(layer)) / kernels::kPageTokens);
  }
}

// A ring over the ranks that compute a batch together: each sends twice its part of all rows.
double StepCost::all_reduce_seconds(double tokens) const {
  const int ranks = layout_.tensor_ranks();
  if (layout_.attention_dp || ranks == 1) return 0.0;
  const Link& link = link_between(hardware_, ranks);
  const double bytes = 2.0 * tokens * config_.hidden_size * kActivationBytes * (ranks - 1) / ranks;
  return link.latency + bytes / link.bandwidth;
}

// The ranks that share sequences wait once until all have written keys and values; then a rank
// reads those of the other ranks in place. Between nodes the new ones are sent to each node
// instead.
double StepCost::meeting_seconds(const StepShape& batch, int layer) const {
  const int ranks = layout_.context;
  if (ranks == 1) return 0.0;
  // Ranks that differ only in context are tensor_ranks() apart.
  const int span = ranks * layout_.tensor_ranks();
  const Link& link = link_between(hardware_, span);
  // Cores read each other's pages like their own.
  if (hardware_.divisible && hardware_.nodes == 1) return link.latency;
  const bool one_node = !hardware_.divisible && span <= hardware_.node_link_ranks;
  const auto tokens = static_cast<double>(batch.num_tokens);
  const int reach = config_.layers[static_cast<size_t>(layer)].reach();
  const auto cached = static_cast<double>(batch.cached_within(reach));
  const double positions =
      one_node ? (cached / ranks + tokens) * (ranks - 1) : tokens * (ranks - 1);
  return link.latency + positions * kv_bytes_[static_cast<size_t>(layer)] / link.bandwidth;
}

// Every rank gives the rows of its tokens to the others, which advance their parts of the states,
// and takes back what these put out, about as wide (model/parts/state_mixer.h).
double StepCost::state_meeting_seconds(double tokens) const {
  const int ranks = layout_.context;
  if (ranks == 1) return 0.0;
  const Link& link = link_between(hardware_, ranks * layout_.tensor_ranks());
  if (hardware_.divisible && hardware_.nodes == 1) return 2.0 * link.latency;
  const double bytes = 2.0 * tokens * config_.hidden_size * sizeof(float) * (ranks - 1);
  return 2.0 * link.latency + bytes / link.bandwidth;
}

void StepCost::add_experts(const Hardware& hardware, const PlacedLayer& placed,
                           const LayerTokens& tokens, Rank rank, RankTime* time) const {
  const ExpertShape shape{.hidden = config_.expert_hidden_size(),
                          .intermediate = config_.moe_intermediate_size / layout_.expert_slices,
                          .format = layout_.format,
                          .has_gate = config_.activation.has_gate()};
  const ProductKernel& kernel = hardware.experts_in(layout_.format);
  const ExpertTime experts =
      rank == Rank::kMean
          ? expert_time(hardware, kernel, shape, mean_work(placed, tokens.all, kernel.tile))
          : slowest_time(hardware, kernel, shape, placed, tokens.all);
  time->own.experts += experts.seconds();
  if (layout_.expert_slices > 1) {
    const double rows = rank == Rank::kMean
                            ? mean_work(placed, tokens.all, 1).rows
                            : busiest_work(placed, tokens.all, 1, hardware.dispersion).rows;
    (hardware_.nodes > 1 ? time->wire : time->own).joint += slices_seconds(rows);
  }
  add_exchange(hardware, tokens.own, time);
}

// The ranks with slices of the same experts wait for each other between the two products, and each
// takes the others' columns of its rows.
double StepCost::slices_seconds(double rows) const {
  const int slices = layout_.expert_slices;
  // They are `ep` ranks apart.
  const Link& link = link_between(hardware_, layout_.tensor_ranks());
  // Cores read each other's rows like their own.
  if (hardware_.divisible && hardware_.nodes == 1) return link.latency;
  const double columns = config_.moe_intermediate_size * (slices - 1.0) / slices;
  const double sharing = hardware_.divisible ? ranks_of_node(hardware_, layout_.num_ranks()) : 1.0;
  return link.latency + sharing * rows * columns * kActivationBytes / link.bandwidth;
}

// Among all ranks that share the experts: a token's row goes to every slice of its experts, and
// each of them returns its columns of the result.
void StepCost::add_exchange(const Hardware& hardware, double tokens, RankTime* time) const {
  const int num_ranks = layout_.tensor_ranks(), slices = layout_.expert_slices;
  if (num_ranks == 1) return;
  // What a rank sends: of its own tokens, or of its part of the tokens that all ranks know.
  const double sent = layout_.attention_dp ? tokens : tokens / num_ranks;
  const int top_k = config_.routing.top_k;
  const double spread = std::min(config_.routing.num_experts, hardware.processors);
  const double hidden = config_.expert_hidden_size();
  ExchangeWork dispatch{.num_ranks = num_ranks,
                        .rows = sent * top_k * slices,
                        .row_bytes = fp8_row(hidden),
                        .serial = sent / spread};
  ExchangeWork combine{.num_ranks = num_ranks,
                       .rows = sent * top_k * slices,
                       .row_bytes = hidden * kActivationBytes / slices,
                       .serial = sent * top_k / spread};
  const double few_dispatch = exchange_seconds(hardware, hardware.dispatch, dispatch);
  const double few_combine = exchange_seconds(hardware, hardware.combine, combine);
  // In bulk a token travels once to each rank, and a few processors carry all bytes.
  const double owners = layout_.ep * (1.0 - std::pow(1.0 - 1.0 / layout_.ep, top_k));
  constexpr double kBulkProcessors = 24.0;
  dispatch.rows = combine.rows = sent * owners * slices;
  dispatch.serial = dispatch.rows * dispatch.row_bytes / kBulkProcessors;
  combine.serial = combine.rows * combine.row_bytes / kBulkProcessors;
  time->own.dispatch +=
      std::min(few_dispatch, exchange_seconds(hardware, hardware.bulk_dispatch, dispatch));
  time->own.combine +=
      std::min(few_combine, exchange_seconds(hardware, hardware.bulk_combine, combine));
  // Over nodes a token travels once to each rank that has an expert of it, and each result back.
  dispatch.row_bytes = hidden * kActivationBytes + kIndexBytes;
  time->wire.dispatch += wire_seconds(hardware, dispatch);
  combine.rows = sent * top_k * slices;
  time->wire.combine += wire_seconds(hardware, combine);
  const double messages = message_seconds(hardware, num_ranks);
  const bool has_replicas = layout_.num_slots > config_.routing.num_experts;
  time->own.dispatch += (has_replicas ? 2.0 : 1.0) * messages;  // counts travel before the rows
  time->own.combine += messages;
}

StepTime StepCost::layer_time(const Hardware& hardware, int layer, const StepShape& batch,
                              double used) const {
  const model::LayerElements& elements = layers_[static_cast<size_t>(layer)];
  const double parts = layout_.attention_parts();
  const auto tokens = static_cast<double>(batch.num_tokens);
  StepTime time;
  const ProductKernel& kernel = hardware.dense_in(layout_.format);
  const LayerDense& dense = dense_[static_cast<size_t>(layer)];
  DenseWork mixer = dense.mixer;
  mixer.rows = tokens;
  if (mixer.weights > 0.0) {
    time.attention = product_seconds(hardware, kernel, layout_.format, mixer);
  }
  const int reach = config_.layers[static_cast<size_t>(layer)].reach();
  if (config_.is_cached(layer)) {
    const auto attended = static_cast<double>(batch.attended_within(reach));
    time.attention += attention_seconds(
        hardware,
        static_cast<double>(batch.cached_within(reach)) * kv_bytes_[static_cast<size_t>(layer)],
        attended * static_cast<double>(elements.attended) / parts);
  }
  if (dense.mlp.weights > 0.0) {
    DenseWork mlp = dense.mlp;
    mlp.rows = tokens * used;
    ProductKernel own = kernel;
    if (config_.is_moe(layer)) own.overhead = 0.0;
    time.dense = product_seconds(hardware, own, layout_.format, mlp);
  }
  const bool has_mixer = config_.has_mixer(layer);
  const int parts_of_layer = (has_mixer ? 1 : 0) + (config_.has_mlp(layer) ? 1 : 0);
  time.joint = parts_of_layer * all_reduce_seconds(tokens);
  if (has_mixer) {
    time.joint +=
        config_.is_cached(layer) ? meeting_seconds(batch, layer) : state_meeting_seconds(tokens);
  }
  return time;
}

StepTime StepCost::step(const StepShape& batch) const {
  return step(batch, static_cast<double>(batch.num_tokens) * layout_.num_batches());
}

StepTime StepCost::step(std::span<const StepShape> batches) const {
  StepShape max;
  int64_t all_tokens = 0;
  for (const StepShape& batch : batches) {
    max.num_tokens = std::max(max.num_tokens, batch.num_tokens);
    max.num_logit_rows = std::max(max.num_logit_rows, batch.num_logit_rows);
    max.attended = std::max(max.attended, batch.attended);
    max.cached = std::max(max.cached, batch.cached);
    max.num_cached = std::max(max.num_cached, batch.num_cached);
    all_tokens += batch.num_tokens;
  }
  return step(max, static_cast<double>(all_tokens));
}

double StepCost::working_set(const StepShape& batch, double all_tokens) const {
  const double weight = bytes_per_weight(layout_.format);
  double bytes = static_cast<double>(config_.vocab_size) * config_.hidden_size * weight;
  size_t moe = 0;
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    const model::LayerElements& elements = layers_[static_cast<size_t>(layer)];
    bytes += static_cast<double>(elements.mixer + elements.mlp) * weight;
    if (config_.is_cached(layer)) {
      const int reach = config_.layers[static_cast<size_t>(layer)].reach();
      bytes += static_cast<double>(batch.cached_within(reach)) *
               kv_bytes_[static_cast<size_t>(layer)] * layout_.num_batches() * layout_.context;
    }
    if (!config_.is_moe(layer)) continue;
    const ExpertWork work = mean_work(experts_[moe++], all_tokens, 1);
    bytes +=
        work.experts * layout_.ep * layout_.context * static_cast<double>(elements.expert) * weight;
  }
  return bytes;
}

double StepCost::all_bytes() const {
  const double weight = bytes_per_weight(layout_.format);
  double bytes = 0.0;
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    const model::LayerElements& elements = layers_[static_cast<size_t>(layer)];
    bytes += static_cast<double>(elements.mixer + elements.mlp) * weight;
    if (config_.is_moe(layer)) {
      bytes += layout_.context * static_cast<double>(layout_.num_slots) *
               static_cast<double>(elements.expert) * weight;
    }
  }
  return bytes;
}

StepTime StepCost::rank_time(const StepShape& batch, Rank rank) const {
  return rank_time(batch, static_cast<double>(batch.num_tokens) * layout_.num_batches(), rank).own;
}

StepTime StepCost::step(const StepShape& batch, double all_tokens) const {
  // Ranks that take turns on a core make up for each other.
  RankTime time = rank_time(batch, all_tokens, turns_ > 1.0 ? Rank::kMean : Rank::kBusiest);
  if (turns_ > 1.0) time.own *= turns_ * (1.0 + hardware_.turns_loss);
  return time.own += time.wire;
}

StepCost::RankTime StepCost::rank_time(const StepShape& batch, double all_tokens, Rank rank) const {
  const double read = hardware_.divisible ? working_set(batch, all_tokens) : 0.0;
  const Hardware hardware = dense_hardware(hardware_, layout_.format, layout_.num_ranks(), read);
  // What is read in every iteration stays in the caches as long as there is room. Experts do not
  // come in every one: between two turns of the same, most others have been read.
  const Hardware of_experts = hardware_.divisible ? rank_hardware(hardware_, layout_.format,
                                                                  layout_.num_ranks(), all_bytes())
                                                  : hardware_;
  RankTime found;
  StepTime& time = found.own;
  size_t moe = 0;
  const auto tokens = static_cast<double>(batch.num_tokens);
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    // No result of the last layer is used but those of the rows whose logits are wanted.
    const bool is_last = layer + 1 == config_.num_layers;
    const double used =
        is_last ? std::min(1.0, static_cast<double>(batch.num_logit_rows) / tokens) : 1.0;
    time += layer_time(hardware, layer, batch, used);
    if (!config_.is_moe(layer)) continue;
    add_experts(of_experts, experts_[moe++], {.own = tokens * used, .all = all_tokens * used}, rank,
                &found);
  }
  const double head = static_cast<double>(config_.vocab_size) * config_.hidden_size;
  time.dense += product_seconds(hardware, hardware.dense_in(layout_.format), layout_.format,
                                {.weights = head / layout_.attention_parts(),
                                 .rows = static_cast<double>(batch.num_logit_rows),
                                 .hidden = static_cast<double>(config_.hidden_size)});
  if (layout_.stages > 1) {
    const Link& link = link_between(hardware_, layout_.num_ranks());
    const double bytes = tokens * config_.hidden_size * kActivationBytes;
    time.joint += (layout_.stages - 1) * (link.latency + bytes / link.bandwidth);
  }
  time.fixed = hardware_.iteration;
  const double generated = std::min(1.0, static_cast<double>(batch.num_logit_rows) / tokens);
  const PartFactors factors = hardware_.factors.at(1.0 - generated);
  time.experts *= factors.experts;
  for (double* part : {&time.attention, &time.dense}) *part *= factors.dense;
  for (double* part : {&time.dispatch, &time.combine, &time.joint, &time.fixed}) {
    *part *= factors.exchange;
  }
  return found;
}

}  // namespace wideep::cost
