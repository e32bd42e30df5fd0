// SPDX-License-Identifier: Apache-2.0
//
// The class is a hash over names and values in a fixed order. What only the layout decides stays
// out of it, since bits do not depend on that (docs/decisions/0002-equal-bits.md); with
// moe_config.combine: reduced and with a perfect router they do.
//
// A part is said in as few pieces as possible, so that ranks with the same bytes say the same part,
// whatever layout they are of.
#include "run/page_geometry.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>

#include <algorithm>
#include <utility>

#include "base/sha256.h"
#include "base/try.h"
#include "kernels/kv_page.h"
#include "model/model_division.h"
#include "model/parts/part_cost.h"
#include "model/state_layout.h"

namespace wideep::run {
namespace {

static_assert(kernels::kPageTokens == store::kPageTokens);

store::Part pieces(uint64_t first, uint64_t length, uint64_t stride, uint64_t count) {
  if (length == 0 || count == 0) return {};
  if (length == stride || count == 1) {
    return {.first = first, .length = length * count, .stride = length * count, .count = 1};
  }
  return {.first = first, .length = length, .stride = stride, .count = count};
}

// Of a layer's state and of the rank's units in it. All layers that keep a state have equal ones.
Result<store::Part> part_of_state(const model::ModelConfig& config, parallel::LayerRange layers,
                                  model::StatePart part) {
  model::StateUnits units;
  uint64_t before = 0, rows = 0;  // of layers with a state
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    const model::StateUnits each = model::mixer_cost(config, layer).units;
    if (each.units == 0) continue;
    if (units.units > 0 && units != each && part.count > 1) {
      return invalid_input(
          "the prompt cache: ranks divide states of two kinds of layers: set enable_attention_dp: "
          "true and context_parallel_size: 1, or leave out the places where prompts are kept");
    }
    units = each;
    if (layer < layers.first) before += static_cast<uint64_t>(each.rows);
    if (layers.contains(layer)) rows += static_cast<uint64_t>(each.rows);
  }
  if (part.count == 1) {
    const uint64_t bytes = model::StateLayout(config, layers).bytes();
    return pieces(model::StateLayout(config, {0, layers.first}).bytes(), bytes, bytes, 1);
  }
  const model::UnitRange own = model::StateLayout(config, layers, part).own(units.units);
  const uint64_t bytes = sizeof(float) * static_cast<uint64_t>(units.unit_floats);
  const uint64_t stride = static_cast<uint64_t>(units.units) * bytes;
  return pieces(before * stride + static_cast<uint64_t>(own.first) * bytes,
                static_cast<uint64_t>(own.count) * bytes, stride, rows);
}

// Where sums depend on which ranks there are, and which experts they have.
transport::Settings layout_in_bits(const RunPlan& plan) {
  const bool is_reduced = plan.dispatch.combine == ep::Combine::kReduced;
  if (!is_reduced && !plan.moe.perfect_router) return {};
  const parallel::ParallelSizes& sizes = plan.mapping.sizes();
  return {{"sizes", fmt::format("tp {} pp {} cp {} moe_tp {} moe_ep {}", sizes.tp, sizes.pp,
                                sizes.cp, sizes.moe_tp, sizes.moe_ep)},
          {"placement", content_hash_of(plan.model.placement)}};
}

}  // namespace

std::string record_class(const RunOptions& options, const RunInputs& inputs, const RunPlan& plan) {
  transport::Settings all = what_computes(options, inputs);
  const transport::Settings precision = {
      {"C library", ::gnu_get_libc_version()},
      {"format of weights",
       options.format ? std::string(kernels::weight_format_name(*options.format)) : "as stored"},
      {"prediction layers", fmt::format("{}", plan.model.config.num_prediction_layers)},
      {"cache", std::string(dtype_name(plan.cache))},
      {"rows", std::string(kernels::row_format_name(plan.moe.dispatch_format()))},
      {"results", std::string(kernels::row_format_name(plan.moe.combine_format()))},
      {"combine", plan.dispatch.combine == ep::Combine::kReduced ? "reduced" : "exact"},
      {"perfect router", plan.moe.perfect_router ? "true" : "false"}};
  const transport::Settings layout = layout_in_bits(plan);
  all.insert(all.end(), precision.begin(), precision.end());
  all.insert(all.end(), layout.begin(), layout.end());
  base::Sha256 hash;
  for (const auto& [name, value] : all) {
    const std::string line = fmt::format("{}: {}\n", name, value);
    hash.update(line.data(), line.size());
  }
  return hash.hex();
}

Result<store::Part> part_of_page(const model::KvLayout& whole, parallel::LayerRange layers,
                                 const model::HeadRange& heads) {
  const bool has_all = heads.num_kv == whole.num_kv_heads;
  if (!has_all && whole.index_bytes > 0) {
    return invalid_input(
        "the prompt cache: tensor_parallel_size divides the heads of a model with an indexer: set "
        "enable_attention_dp: true, or leave out the places where prompts are kept");
  }
  const auto begin_of = [&](int layer) -> uint64_t {
    return whole.begin[static_cast<size_t>(layer - whole.layers.first)];
  };
  const uint64_t first = begin_of(layers.first), bytes = begin_of(layers.last) - first;
  if (has_all) return pieces(first, bytes, bytes, 1);
  const model::CachedHeads& each = whole;
  return pieces(first + static_cast<uint64_t>(heads.first_kv) * each.head_bytes(),
                static_cast<uint64_t>(heads.num_kv) * each.head_bytes(), each.bytes(),
                bytes / each.bytes());
}

// Heads of different sizes have no parts of one length. Errors (invalid input): the layers have
// such, and a rank only some of them.
static Status check_equal_heads(const model::KvLayout& whole) {
  const model::CachedHeads& first = whole;
  if (std::ranges::all_of(whole.heads, [&](const auto& heads) { return heads == first; })) {
    return {};
  }
  return invalid_input(
      "the prompt cache: tensor_parallel_size divides the heads of a model whose layers have heads "
      "of several sizes: set enable_attention_dp: true, or leave out the places where prompts are "
      "kept");
}

Result<PageGeometry> page_geometry(const RunPlan& plan, int rank, std::string record_class) {
  const model::ModelConfig& config = plan.model.config;
  const parallel::LayerRange layers = plan.layers_of(rank);
  const model::KvLayout whole(config, plan.cache);
  model::HeadRange heads{.num_kv = whole.num_kv_heads};
  if (plan.joint && !config.is_mla()) {
    const int tp = plan.mapping.sizes().tp;
    if (model::KvLayout(config, plan.cache, tp).page_bytes() != whole.page_bytes()) {
      WIDEEP_TRY(check_equal_heads(whole));
      heads = model::part_of_heads(plan.mapping.coordinates(rank).tp_rank, tp, config.num_heads,
                                   config.num_kv_heads);
    }
  }
  PageGeometry geometry{
      .record_class = std::move(record_class),
      .page_bytes = whole.page_bytes(),
      .state_bytes = model::StateLayout(config, {0, config.num_all_layers()}).bytes()};
  WIDEEP_TRY_ASSIGN(geometry.state, part_of_state(config, layers, plan.state_part_of(rank)));
  WIDEEP_TRY_ASSIGN(geometry.page, part_of_page(whole, layers, heads));
  return geometry;
}

}  // namespace wideep::run
