// SPDX-License-Identifier: Apache-2.0
//
// Which experts the tokens of a rank take, if all ranks are to compute equally many rows.
//
// Flat, where expert groups forbid nothing: TensorRT-LLM's formula. Rank r of R numbers the choices
// of its tokens i = 0, 1, …; choice i is expert (j mod R)·E/R + ⌊j / R⌋ mod E/R with j = i + r. For
// every i the R ranks choose R different ranks: even with any number of tokens, the same on each.
//
// With groups (G groups of E/G, n of them for a token, n < G and n < top-k) all ranks follow one
// endless list of tokens, the same token's experts moved to other ranks. In the list
//
// * groups take turns, n for a token; each gives ⌊k/n⌋ experts, and k mod n of them one more, which
//   in the next round of all groups are the next ones;
// * the experts of a group take turns, those of different ranks alternating.
//
// A token's places in a group follow each other, and are at most the group's experts, so they
// differ. After a number of tokens all turns are where they began: the list repeats.
//
// Let the experts of a rank and of a group begin together every L = lcm(E/R, E/G) experts: L of them
// are a block, of p ranks and q groups. Experts may be renamed by moving them by whole blocks, which
// keeps ranks and groups together; if one group fills the block (q = 1), also by whole ranks inside
// each group. If p = 1 or q = 1 these moves bring every rank onto every other one in exactly one
// way, so that rank r, which moves the list by its own index, adds to rank s what the list gives to
// s − r: all ranks together choose every rank as often as the list has choices. Even with any
// number of tokens, the same on each.
//
// If p > 1 and q > 1, a rank shares groups with its neighbours, and no such move exists inside a
// block; nor need an even choice: of 12 experts in 3 groups on 4 ranks, a token that takes one whole
// group gives the first rank 3 rows or none, which is never the mean of 4. There the ranks of a
// block take turns in the list (the p ranks its tokens 0 … p − 1, then p …), and equal groups of
// all blocks share their turns, so that T tokens of each rank are the first p·T of the list. It is
// exactly even wherever the list repeats, and never further from it than what evenness() finds by
// going through the list once.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config/config.h"

namespace wideep::model {

// How far from even the ranks are that have equally many tokens.
struct Evenness {
  double max_excess = 0.0;  // rows of a rank above the mean, at most, with any number of tokens
  int64_t period = 1;       // tokens of each rank after which the ranks are exactly even

  // A bound of max / mean − 1 over ranks.
  double max_imbalance(int64_t tokens_per_rank, int top_k) const {
    return max_excess / (static_cast<double>(tokens_per_rank) * top_k);
  }
};

class PerfectChoices {
 public:
  // REQUIRES: ep_size divides the experts, num_groups too; top_k_groups groups hold top_k experts.
  PerfectChoices(const RoutingConfig& routing, int ep_size, int rank);

  // The experts of the rank's next token, [top_k], all different; valid until the next call.
  const std::vector<int32_t>& next();

  // The most that ranks with equally many tokens can be uneven: 0 and 1, except where ranks and
  // groups begin together only every p > 1 ranks and q > 1 groups.
  static Evenness evenness(const RoutingConfig& routing, int ep_size);

 private:
  bool is_flat() const;
  bool is_mixed() const { return block_ranks_ > 1 && block_groups_ > 1; }
  std::vector<int> order_of_groups() const;
  std::vector<int32_t> order_in_group(int group) const;
  void next_flat();
  void next_of_list();
  void skip_to_own_turn();
  bool repeats() const;
  int32_t moved(int32_t expert) const;

  int num_experts_, top_k_, num_groups_, taken_groups_;
  int num_ranks_, rank_;
  int rank_experts_, group_experts_;
  int block_, block_ranks_, block_groups_;      // L, p, q
  int groups_step_;                             // tokens after which all groups had equal turns
  std::vector<int> groups_;                     // in the order of their turns
  std::vector<std::vector<int32_t>> in_group_;  // of each group, the order of its experts
  std::vector<int> turns_;                      // of each group, or of equal groups of the blocks
  int64_t position_ = 0;                        // of the list's next token, or the next choice
  std::vector<int32_t> chosen_;
};

}  // namespace wideep::model
