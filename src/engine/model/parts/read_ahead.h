// SPDX-License-Identifier: Apache-2.0
//
// Which experts are worth reading before the router of their layer has spoken.
//
// What that router says to the present rows, a layer too early, is a guess. How often it is right
// depends on the model and on the weight that it gives: of a trained model's absent experts seven
// to nine in ten, of random weights four to six. A read in vain keeps the disk from reads that
// somebody waits for, so the guesses are held against what was chosen, by their weights, and only
// those are worth a read that are right often enough. Where none is, only now and then one is made,
// which shows whether that is still so.
//
//   if (read_ahead.is_due()) read_ahead.guess(layer, weights_of_absent);   // [num_experts]
//   for (int expert : read_ahead.worth_reading()) ...                      // likeliest first
//   read_ahead.learn(layer, counts);                    // when the layer's router has spoken
//
// Thread safety: none.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace wideep::model {

class ReadAhead {
 public:
  // Whether to guess in this call of a layer.
  bool is_due();
  // weights: [num_experts] of a later layer, the sum of what its router gives each over all tokens;
  // 0 of those that are in memory, or not of this rank.
  void guess(int layer, std::span<const float> weights);
  // Of the last guess, until learn().
  std::span<const int> worth_reading() const { return worth_reading_; }
  // counts: [num_experts] the tokens that each expert of the layer has got. Forgets the guess, and
  // learns from it if it was of this layer.
  void learn(int layer, std::span<const int32_t> counts);

 private:
  // Guesses of similar weight, decaying.
  struct Record {
    double made = 1.0;
    double right = 0.5;
    bool is_worth_a_read() const;
  };
  static constexpr int kRecords = 10;  // weights below 1/64, 1/32 … 4, and from 4 on
  static int record_of(float weight);

  std::array<Record, kRecords> records_;
  int layer_ = -1;
  std::vector<float> weights_;
  std::vector<int> worth_reading_;
  uint64_t num_calls_ = 0;
};

}  // namespace wideep::model
