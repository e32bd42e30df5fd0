// SPDX-License-Identifier: Apache-2.0
//
// The order in which layers may be updated: TensorRT-LLM's layer update plan.
//
// The L layers form ceil(L / k) groups, with layer l in group l mod their number; each iteration
// with updates is the turn of the next group. If the first and the last group are equally large, an
// empty group follows them, so that layer 0 does not come directly after the last layers:
//
//   L = 6, k = 4:  {0, 2, 4} {1, 3, 5} {}        L = 5, k = 2:  {0, 3} {1, 4} {2}
//
// Without rests there is no empty group: whoever plans from windows of many iterations has waited
// long enough.
//
// Thread safety: plain value.
#pragma once

namespace wideep::online {

class LayerRota {
 public:
  // REQUIRES: num_layers ≥ 1, 1 ≤ layers_per_turn.
  LayerRota(int num_layers, int layers_per_turn, bool rests = true);

  int num_turns() const { return num_turns_; }  // of one round, including the empty one
  int turn() const { return turn_; }
  bool has_turn(int layer_idx) const { return layer_idx % num_groups_ == turn_; }
  // The first layer of the present turn, and the distance to the turn's next one. first_layer() ≥ L
  // in the empty turn.
  int first_layer() const { return turn_ < num_groups_ ? turn_ : num_layers_; }
  int stride() const { return num_groups_; }

  void advance() { turn_ = (turn_ + 1) % num_turns_; }

 private:
  int num_layers_;
  int num_groups_;
  int num_turns_;
  int turn_ = 0;
};

}  // namespace wideep::online
