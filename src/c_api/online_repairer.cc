// SPDX-License-Identifier: Apache-2.0
//
// Arrays of all layers become placements on the way in and go back on the way out. The shares of
// every layer are kept here: an update brings only those of its own layer, and the engine may ask
// for all of them at any time. Moves of the last step belong to the handle, so that C need not
// free them.
#include "wideep/online_repairer.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/try.h"
#include "c_api/arguments.h"
#include "wideep/balancer.h"
#include "wideep/c_api.h"

struct wideep_online_repairer {
  wideep::balance::PlanShape shape;
  wideep::online::OnlineRepairer repairer;
  std::vector<wideep::balance::Shares> shares;  // [L]
  std::vector<wideep_slot_move> moves;          // of the last step
};

namespace wideep::c_api {
namespace {

using namespace wideep::balance;
using namespace wideep::online;

Result<RepairerOptions> to_options(const wideep_online_options* given) {
  RepairerOptions options;
  if (given == nullptr) return options;
  WIDEEP_TRY(check_reserved(*given, "options"));
  WIDEEP_TRY_ASSIGN(options.split, to_split(given->split));
  if (given->share_update != WIDEEP_SHARES_OF_ITERATION &&
      given->share_update != WIDEEP_SHARES_OF_UPDATE) {
    return invalid_input(
        fmt::format("share_update: expected WIDEEP_SHARES_OF_ITERATION ({}) or "
                    "WIDEEP_SHARES_OF_UPDATE ({}), found {}",
                    static_cast<int>(WIDEEP_SHARES_OF_ITERATION),
                    static_cast<int>(WIDEEP_SHARES_OF_UPDATE), given->share_update));
  }
  if (given->share_update == WIDEEP_SHARES_OF_UPDATE) options.share_update = ShareUpdate::kWindow;
  if (given->max_moves != 0) options.max_moves = given->max_moves;
  if (given->num_samples != 0) options.num_samples = given->num_samples;
  if (given->sample_tokens != 0) options.sample_tokens = given->sample_tokens;
  options.horizon_tokens = given->horizon_tokens;
  if (given->rows_per_move != 0.0) options.rows_per_move = given->rows_per_move;
  options.tolerance = given->tolerance;
  options.turn_ms = given->turn_ms;
  if (given->false_alarm_rate != 0.0) options.false_alarm_rate = given->false_alarm_rate;
  return options;
}

struct CreateArguments {
  const wideep_plan_shape* shape;
  int32_t num_layers;
  int32_t top_k;
  const wideep_online_options* options;
  const int32_t* slot_to_expert;
};

Status create(const CreateArguments& arguments, wideep_online_repairer** out) {
  WIDEEP_TRY(check_pointer(out, "repairer"));
  WIDEEP_TRY(check_pointer(arguments.slot_to_expert, "slot_to_expert"));
  WIDEEP_TRY_ASSIGN(const PlanShape shape, to_shape(arguments.shape));
  WIDEEP_TRY_ASSIGN(const RepairerOptions options, to_options(arguments.options));
  WIDEEP_TRY(check_num_layers(arguments.num_layers));
  std::vector<Placement> placements(static_cast<size_t>(arguments.num_layers));
  std::vector<Shares> shares;
  for (size_t layer = 0; layer < placements.size(); ++layer) {
    const int32_t* row = arguments.slot_to_expert + layer * static_cast<size_t>(shape.num_slots);
    const Status read = read_placement(shape, row, &placements[layer]);
    if (!read.ok()) return read.at(fmt::format("slot_to_expert, layer {}", layer));
    shares.push_back(equal_shares(placements[layer]));
  }
  WIDEEP_TRY_ASSIGN(OnlineRepairer repairer,
                    OnlineRepairer::create({shape, arguments.num_layers, arguments.top_k}, options,
                                           std::move(placements)));
  *out = new wideep_online_repairer{shape, std::move(repairer), std::move(shares), {}};
  return {};
}

Status step(wideep_online_repairer* repairer, const int64_t* counts, const uint8_t* busy,
            const wideep_slot_move** moves, int32_t* num_moves) {
  WIDEEP_TRY(check_pointer(repairer, "repairer"));
  WIDEEP_TRY(check_pointer(counts, "counts"));
  WIDEEP_TRY(check_pointer(moves, "moves"));
  WIDEEP_TRY(check_pointer(num_moves, "num_moves"));
  const size_t layers = repairer->repairer.placements().size();
  const size_t experts = static_cast<size_t>(repairer->shape.num_experts);
  const auto is_busy =
      busy == nullptr ? std::span<const uint8_t>() : std::span<const uint8_t>(busy, layers);
  WIDEEP_TRY_ASSIGN(const auto updates,
                    repairer->repairer.step({counts, layers * experts}, is_busy));
  repairer->moves.clear();
  for (const LayerUpdate& update : updates) {
    repairer->shares[static_cast<size_t>(update.layer_idx)] = update.plan.shares;
    for (const SlotMove& move : update.moves) {
      repairer->moves.push_back({update.layer_idx, move.slot, move.expert, 0});
    }
  }
  *moves = repairer->moves.data();
  *num_moves = static_cast<int32_t>(repairer->moves.size());
  return {};
}

Status write_placement(const wideep_online_repairer* repairer, int32_t* slot_to_expert,
                       double* shares) {
  WIDEEP_TRY(check_pointer(repairer, "repairer"));
  WIDEEP_TRY(check_pointer(slot_to_expert, "slot_to_expert"));
  for (const Placement& placement : repairer->repairer.placements()) {
    slot_to_expert = std::ranges::copy(placement.slot_to_expert, slot_to_expert).out;
  }
  if (shares == nullptr) return {};
  for (const Shares& row : repairer->shares) shares = std::ranges::copy(row, shares).out;
  return {};
}

Status set_placement(wideep_online_repairer* repairer, int32_t layer,
                     const int32_t* slot_to_expert) {
  WIDEEP_TRY(check_pointer(repairer, "repairer"));
  WIDEEP_TRY(check_pointer(slot_to_expert, "slot_to_expert"));
  Placement placement;
  const Status read = read_placement(repairer->shape, slot_to_expert, &placement);
  if (!read.ok()) return read.at("slot_to_expert");
  Shares shares = equal_shares(placement);
  WIDEEP_TRY(repairer->repairer.set_placement(layer, std::move(placement)));
  repairer->shares[static_cast<size_t>(layer)] = std::move(shares);
  return {};
}

}  // namespace
}  // namespace wideep::c_api

using namespace wideep::c_api;

int wideep_online_repairer_create(const wideep_plan_shape* shape, int32_t num_layers, int32_t top_k,
                                  const wideep_online_options* options,
                                  const int32_t* slot_to_expert,
                                  wideep_online_repairer** repairer) {
  return as_c_status(
      [&] { return create({shape, num_layers, top_k, options, slot_to_expert}, repairer); });
}

void wideep_online_repairer_destroy(wideep_online_repairer* repairer) { delete repairer; }

int wideep_online_repairer_step(wideep_online_repairer* repairer, const int64_t* counts,
                                const uint8_t* busy, const wideep_slot_move** moves,
                                int32_t* num_moves) {
  return as_c_status([&] { return step(repairer, counts, busy, moves, num_moves); });
}

int wideep_online_repairer_placement(const wideep_online_repairer* repairer,
                                     int32_t* slot_to_expert, double* shares) {
  return as_c_status([&] { return write_placement(repairer, slot_to_expert, shares); });
}

int wideep_online_repairer_set_placement(wideep_online_repairer* repairer, int32_t layer,
                                         const int32_t* slot_to_expert) {
  return as_c_status([&] { return set_placement(repairer, layer, slot_to_expert); });
}
