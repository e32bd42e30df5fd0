// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads that run the real planner, agreement, counts, choice of slots and exchange,
// with rows of a cache line that nobody computes: what is left is what grows with the group. Waits
// are subtracted by the clock of each endpoint, so ranks may outnumber cores. Pages are touched
// before the first call, since the kernel's work for a first write is none of the group's. Memory
// is told twice, by the kernel and by sizes, so that what no size explains shows.
#include "measure/predict/control_plane.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/cpu_time.h"
#include "base/try.h"
#include "ep/dispatch_combine.h"
#include "ep/slot_choice.h"
#include "online/update_state.h"
#include "transport/rank_threads.h"
#include "wideep/balancer.h"

namespace wideep::measure {
namespace {

using transport::AgreedWords;
using transport::Endpoint;

constexpr size_t kRowBytes = 64;
constexpr double kPage = 4096.0;
constexpr int kWarmCalls = 2;
constexpr transport::Awaited kControl{.what = "the control plane's ranks"};

// What all ranks know before they start.
struct Group {
  const balance::ModelLoad& load;
  ControlOptions options;
  ep::DispatchShape shape;
  std::vector<balance::LayerPlan> plans = {};  // [options.layers]
};

// Bytes that this process has in memory, shared ones included.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double pages = 0.0, resident = 0.0;
  file >> pages >> resident;
  return resident * kPage;
}

// A rank's measurements.
struct RankCost {
  int64_t agree = 0, split = 0, exchange = 0;  // ns of all measured calls
  double resident = 0.0;                       // of the process, while all ranks live; rank 0's
};

class ControlRank {
 public:
  ControlRank(const Group& group, Endpoint& endpoint, RankCost* cost)
      : group_(group),
        endpoint_(endpoint),
        exchange_(endpoint, ep::BufferLayout(group.shape)),
        chooser_(group.shape, endpoint.rank()),
        random_(static_cast<uint64_t>(endpoint.rank()) + 1),
        cost_(cost) {
    for (size_t layer = 0; layer < group.plans.size(); ++layer) {
      chooser_.set_placement(static_cast<int>(layer), group.plans[layer].placement, {});
    }
    rows_.resize(static_cast<size_t>(group.options.tokens) * kRowBytes);
  }

  Status run() {
    WIDEEP_TRY(exchange_.open());
    touch_segment();
    WIDEEP_TRY(endpoint_.barrier(kControl));
    for (int call = 0; call < kWarmCalls + group_.options.calls; ++call) {
      draw_tokens(call);
      WIDEEP_TRY(run_call(call));
    }
    // All ranks still have their memory.
    WIDEEP_TRY(endpoint_.barrier(kControl));
    if (endpoint_.rank() == 0) cost_->resident = resident_bytes();
    WIDEEP_TRY(endpoint_.barrier(kControl));
    exchange_.close();
    return {};
  }

 private:
  // As after some iterations: the first write to a page is the kernel's work, not the group's.
  void touch_segment() {
    std::byte* segment = endpoint_.segment(endpoint_.rank());
    std::memset(segment, 0, ep::BufferLayout(group_.shape).segment_bytes());
  }

  int layer_of(int call) const { return call % static_cast<int>(group_.plans.size()); }

  // Each token chooses different experts, by the layer's load.
  void draw_tokens(int call) {
    const std::vector<double>& load = group_.load.load[static_cast<size_t>(layer_of(call))];
    std::discrete_distribution<int32_t> draw(load.begin(), load.end());
    experts_.clear();
    counts_.assign(load.size(), 0);
    for (int token = 0; token < group_.options.tokens; ++token) {
      const auto first = static_cast<std::ptrdiff_t>(experts_.size());
      while (std::ssize(experts_) - first < group_.options.top_k) {
        const int32_t expert = draw(random_);
        if (std::find(experts_.begin() + first, experts_.end(), expert) != experts_.end()) continue;
        experts_.push_back(expert);
        ++counts_[static_cast<size_t>(expert)];
      }
    }
    slots_.resize(experts_.size());
  }

  // Processor time of work: without that of waits.
  int64_t worked_ns() const { return base::thread_cpu_ns() - endpoint_.waited_cpu_ns(); }

  Status run_call(int call) {
    const transport::Awaited where = {
        .what = kControl.what, .layer = layer_of(call), .iteration = call};
    const int64_t start = worked_ns();
    AgreedWords words = {};
    online::add_state(online::UpdateState::kReady, where.layer, words);
    WIDEEP_TRY(endpoint_.agree(words, where, &words_of_all_));
    if (!online::has(online::decide(words_of_all_).publish, where.layer)) {
      return failed("control plane: the ranks' words were lost");
    }
    const int64_t agreed = worked_ns();
    WIDEEP_TRY(exchange_.begin(counts_, {}));
    WIDEEP_TRY(exchange_.await_counts(where));
    chooser_.split_by_counts(where.layer, exchange_.counts_of_ranks());
    chooser_.choose(where.layer, experts_, slots_);
    const int64_t split = worked_ns();
    WIDEEP_TRY(exchange_.dispatch(rows_.data(), kRowBytes, group_.options.tokens, slots_, where));
    for (int slot = 0; slot < group_.shape.slots_per_rank; ++slot) {
      for (const ep::ExpertRow& row : exchange_.rows_of_slot(slot)) {
        std::memcpy(row.result, row.row, kRowBytes);
      }
    }
    WIDEEP_TRY(exchange_.combine(where));
    const int64_t done = worked_ns();
    if (call < kWarmCalls) return {};
    cost_->agree += agreed - start;
    cost_->split += split - agreed;
    cost_->exchange += done - split;
    return {};
  }

  const Group& group_;
  Endpoint& endpoint_;
  ep::DispatchCombine exchange_;
  ep::SlotChooser chooser_;
  std::mt19937_64 random_;
  RankCost* cost_;
  std::vector<std::byte> rows_;
  std::vector<int32_t> experts_, counts_, slots_;
  std::vector<AgreedWords> words_of_all_;
};

Status plan_layers(Group& group, ControlCost* cost) {
  const balance::PlanShape shape{.num_experts = group.load.num_experts,
                                 .ep_size = cost->num_ranks,
                                 .num_slots = cost->num_slots};
  WIDEEP_TRY_ASSIGN(const auto planner,
                    balance::make_planner("wideep", shape, {.split = balance::Split::kWeighted}));
  balance::LayerPlan plan;
  const int64_t start = base::thread_cpu_ns();
  for (const std::vector<double>& load : group.load.load) {
    planner->plan(load, &plan);
    cost->imbalance += balance::imbalance_ratio(plan.placement, load, plan.shares);
    if (std::ssize(group.plans) < group.options.layers) group.plans.push_back(plan);
  }
  const auto layers = static_cast<double>(group.load.load.size());
  cost->plan = static_cast<double>(base::thread_cpu_ns() - start) * 1e-9 / layers;
  cost->imbalance /= layers;
  return {};
}

// What the sizes say of a rank: its segment, flags and the words beside them, and its copies of the
// counts and words of all.
double bytes_of_sizes(const Group& group) {
  const double ranks = group.options.num_ranks;
  const double stride = 8.0 + 8.0 * (ranks - 1.0);
  // Three flags without words, in pages of their own where a flag's words fill one; one with.
  const double flags = 3.0 * std::min(std::ceil(stride / 64.0) * 64.0, kPage) + stride;
  return static_cast<double>(ep::BufferLayout(group.shape).segment_bytes()) + flags +
         2.0 * sizeof(AgreedWords) +
         // Private: counts of all ranks, words of all ranks (of agreements and of barriers).
         ranks * (4.0 * group.load.num_experts + 2.0 * sizeof(AgreedWords));
}

}  // namespace

int slots_for(int num_experts, int spare_slots, int num_ranks) {
  const int wanted = num_ranks > 1 ? num_experts + spare_slots : num_experts;
  const int each = std::max(
      1, num_ranks > num_experts ? wanted / num_ranks : (wanted + num_ranks - 1) / num_ranks);
  return each * num_ranks;
}

Result<ControlCost> run_control_plane(const balance::ModelLoad& load,
                                      const ControlOptions& options) {
  if (options.top_k > load.num_experts) {
    return invalid_input(fmt::format("top_k: expected at most {} (the experts), found {}",
                                     load.num_experts, options.top_k));
  }
  ControlCost cost{
      .num_ranks = options.num_ranks,
      .num_slots = slots_for(load.num_experts, options.spare_slots, options.num_ranks)};
  Group group{.load = load,
              .options = options,
              .shape = {.ep_size = options.num_ranks,
                        .num_experts = load.num_experts,
                        .slots_per_rank = cost.num_slots / options.num_ranks,
                        .top_k = options.top_k,
                        .row_bytes = kRowBytes,
                        .result_bytes = kRowBytes,
                        .max_tokens = options.tokens}};
  WIDEEP_TRY(plan_layers(group, &cost));
  ::malloc_trim(0);
  const double before = resident_bytes();
  std::vector<RankCost> costs(static_cast<size_t>(options.num_ranks));
  WIDEEP_TRY_ASSIGN(
      const std::vector<Status> ended,
      transport::run_rank_threads({.num_ranks = options.num_ranks,
                                   .segment_bytes = ep::BufferLayout(group.shape).segment_bytes(),
                                   .timeout = std::chrono::seconds(120)},
                                  [&](Endpoint& endpoint) {
                                    RankCost* mine = &costs[static_cast<size_t>(endpoint.rank())];
                                    return ControlRank(group, endpoint, mine).run();
                                  }));
  for (const Status& status : ended) WIDEEP_TRY(status);
  const double unit = 1e-9 / options.calls / options.num_ranks;
  for (const RankCost& rank : costs) {
    cost.agree += static_cast<double>(rank.agree) * unit;
    cost.split += static_cast<double>(rank.split) * unit;
    cost.exchange += static_cast<double>(rank.exchange) * unit;
  }
  cost.memory = (costs.front().resident - before) / options.num_ranks;
  cost.memory_of_sizes = bytes_of_sizes(group);
  return cost;
}

LinearCost fit_linear(std::span<const int> ranks, std::span<const double> costs) {
  WIDEEP_CHECK_EQ(ranks.size(), costs.size());
  // Normal equations of Σ ((a + b·r) / cost − 1)².
  double one = 0.0, r = 0.0, rr = 0.0, y = 0.0, ry = 0.0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const double weight = 1.0 / costs[i], x = ranks[i];
    one += weight * weight;
    r += weight * weight * x;
    rr += weight * weight * x * x;
    y += weight;
    ry += weight * x;
  }
  const double determinant = one * rr - r * r;
  WIDEEP_CHECK(determinant > 0.0);
  return {.base = (rr * y - r * ry) / determinant, .per_rank = (one * ry - r * y) / determinant};
}

}  // namespace wideep::measure
