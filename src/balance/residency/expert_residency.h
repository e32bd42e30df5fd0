// SPDX-License-Identifier: Apache-2.0
//
// Which experts stay in memory, where a model is larger than memory: of num_layers × num_experts
// records (an expert of a layer, all of one size) num_records may be *resident*; the others are
// *absent* and are read when the router has chosen them.
//
// Each expert has a worth, the share of tokens that are expected to choose it next:
//
//   worth = (1 − β) · popularity + β · recency
//
//   popularity  share of the tokens that chose it, over windows of window_tokens tokens, of which
//               each counts decay times as much as the one after it
//   recency     the same share as an exponential mean over iterations: recency_rate of the last one
//   β           how much recency foretells beyond popularity: least squares of the share that came
//               over what the two said before it, sum of (recency − popularity) · (share −
//               popularity) / sum of (recency − popularity)², over all layers and with the same
//               decay, within [0, 1]. Tokens that do not depend on those before them have 0; one
//               request at a time 0.75 to 0.9, eight and more 0.95 to 1 (DeepSeek-V2-Lite,
//               gpt-oss-20b), where the weights that hit most, searched by hand, are the same
//
// An expert that was read takes the memory of the resident one of least worth in all layers, if its
// own worth is more by `hysteresis`; else it is let go after its rows are computed. Layers have no
// shares of their own: comparing over all of them gives each layer as many records as its skew is
// worth. Nothing is read that the router did not choose, so a change of mind costs no reading, and
// a new kind of text is followed as it comes: no window must end first. Only memory that is free at
// the start is filled ahead, by the popularity that the last run has measured.
//
// A chunk of a prompt is an iteration like any other: its shares are those of the text that will be
// continued. Counting it for more than one gains at most 0.007 at batch 1, and loses at batch 8.
//
// Why no part of memory is kept for what was used last: layers come in turn, and what leaves by age
// alone has gone before its layer comes again. At batch 8 and with a quarter of the experts in
// memory LRU hits nothing, and a tenth or a quarter of memory kept for it hits less than no part at
// all. Within one worth recency helps at every size: at batch 1 with a quarter of the experts 0.55
// and 0.70 of the reads hit, of the best set that never changes 0.44 and 0.52
// (residency/hit_rates_on_traces_test.cc).
//
// In each iteration of the engine:
//
//   residency.begin_iteration(num_tokens);
//   for (int layer = 0; layer < num_layers; ++layer) {
//     for (const Demand& demand : residency.visit(layer, counts)) {  // the first is worth most
//       // Read demand.expert, into the memory of demand.leaves or into free memory; if it does not
//       // stay, into memory for one layer.
//     }
//     // Compute the rows of the experts that were resident, then those of the others.
//   }
//   // If the disk is idle, until memory is full:
//   if (const auto next = residency.next_to_fill()) { /* read it, then */ residency.fill(*next); }
//
// Deterministic: equal calls give equal decisions. Allocates in the constructor only. A visit takes
// O(E), and O(L + E) more for each expert that leaves. Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace wideep::residency {

struct ResidencyShape {
  int num_layers = 0;          // L, MoE layers, ≥ 1
  int num_experts = 0;         // E, ≥ 1
  int num_records = 0;         // that fit in memory, ≥ 0
  std::vector<uint8_t> owned;  // [L, E] not 0: this rank has the expert; empty: all of them
};

// The defaults are in the middle of a wide optimum on recorded traces at batch 1, 8 and 32: half or
// twice of each changes hit rates by 0.01 at most.
struct ResidencyOptions {
  int64_t window_tokens = 2048;      // ≥ 1
  double decay = 0.8;                // per window, in [0, 1]
  double recency_rate = 1.0 / 16.0;  // per iteration, in (0, 1]
  double hysteresis = 0.005;  // of worth, ≥ 0: at batch 8 replaces half as often, hits as often
};

// β until a window has been measured.
inline constexpr double kFirstRecencyWeight = 0.75;

struct ExpertPlace {
  int layer_idx = 0;
  int expert = 0;

  bool operator==(const ExpertPlace&) const = default;
};

// An absent expert that was chosen and must be read.
struct Demand {
  int expert = 0;
  bool stays = false;                 // resident from now on
  std::optional<ExpertPlace> leaves;  // absent from now on; nothing: memory was free

  bool operator==(const Demand&) const = default;
};

class ExpertResidency {
 public:
  // Nothing is resident at first.
  ExpertResidency(ResidencyShape shape, const ResidencyOptions& options);

  // Takes the popularity that was measured before: load, [L, E], tokens per expert of num_tokens
  // tokens (≥ 1). Before the first iteration.
  void start_from(std::span<const double> load, double num_tokens);

  // num_tokens: of all requests, which all layers see in this iteration, ≥ 1.
  void begin_iteration(int64_t num_tokens);

  // counts: tokens per expert, [E], ≥ 0; those of experts that the rank does not own are ignored.
  // Returns the owned experts that were chosen and are absent, by falling worth; valid until the
  // next call. No expert of these counts leaves. REQUIRES: an iteration has begun.
  std::span<const Demand> visit(int layer_idx, std::span<const int64_t> counts);
  std::span<const Demand> visit(int layer_idx, std::span<const int32_t> counts);

  // The absent expert that is worth most, if memory is free and any is worth something.
  std::optional<ExpertPlace> next_to_fill() const;
  // It has been read. REQUIRES: it is absent and memory is free.
  void fill(const ExpertPlace& place);
  // It could not be read: absent again, its memory is free; not filled until it has been chosen and
  // found worth its memory again. REQUIRES: it is resident.
  void lose(const ExpertPlace& place);

  bool is_resident(const ExpertPlace& place) const { return resident_[index_of(place)] != 0; }
  int num_resident() const { return num_resident_; }
  int num_resident(int layer_idx) const;
  // How many experts of the layer have become resident since the start. As many less those that are
  // resident have left.
  int64_t num_came(int layer_idx) const { return num_came_[static_cast<size_t>(layer_idx)]; }
  // Share of the tokens that chose it, in [0, 1]; 0 before the first one.
  double popularity(const ExpertPlace& place) const;
  double recency_weight() const { return recency_weight_; }  // β

 private:
  size_t index_of(const ExpertPlace& place) const;
  bool owns(size_t index) const { return shape_.owned.empty() || shape_.owned[index] != 0; }
  void end_window();
  void measure_recency(size_t index, double share, double popularity);
  template <typename Count>
  std::span<const Demand> visit_layer(int layer_idx, std::span<const Count> counts);
  template <typename Count>
  void update_worth(int layer_idx, std::span<const Count> counts);
  void find_lowest(int layer_idx);
  void keep(int layer_idx, Demand* demand);

  ResidencyShape shape_;
  ResidencyOptions options_;
  // [L, E] each:
  std::vector<double> popularity_;  // tokens of past windows, decayed
  std::vector<double> window_;      // tokens of the present window
  std::vector<double> recency_;     // in [0, 1]
  std::vector<double> worth_;       // as of the last visit of the layer
  std::vector<uint8_t> resident_;
  std::vector<uint8_t> lost_;    // not filled before it has been chosen again
  std::vector<uint8_t> chosen_;  // [E] of visiting_
  int visiting_ = -1;            // the layer, during a visit
  // [L] the resident expert of least worth that is not being computed; -1: there is none.
  std::vector<int> lowest_;
  std::vector<int64_t> num_came_;  // [L]
  std::vector<Demand> demands_;    // [≤ E] of the last visit
  double foretold_ = 0.0;          // the sums of β: above the line, and below it
  double deviation_ = 0.0;
  double recency_weight_ = kFirstRecencyWeight;
  double popularity_tokens_ = 0.0;
  int64_t window_tokens_ = 0;
  int64_t iteration_tokens_ = 0;
  int num_resident_ = 0;
};

}  // namespace wideep::residency
