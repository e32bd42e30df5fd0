// SPDX-License-Identifier: Apache-2.0
//
// The scores that an indexer gives positions (kernels/indexer.h), and the choices from them.
//
// Scores need memory for each token and each position before it, far more than the choice. So
// tokens are taken in blocks, as many at once as the scores have a fixed amount of room for, and
// each block is scored and then chosen from. A block's tokens share the reading of a page of keys.
//
// Thread safety: used by one thread per rank; choices are made on all threads of its pool.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "model/parts/attention.h"

namespace wideep::model {

class IndexScores {
 public:
  // Consecutive tokens of a run, which go through all pages of the run's keys together.
  struct Block {
    kernels::IndexArgs args;  // of these tokens, without pages and scores
    int first_token = 0;      // of the batch
    int first_choice = 0;     // counts the choices before this block's
    std::vector<kernels::KvPage> pages;
    size_t first_score = 0;
  };
  // Chooses for token `number` of the block, which has a score for each position up to its own.
  // Called on any thread.
  using Choose = std::function<void(const Block& block, int number, const float* scores)>;

  // layer: whose keys are read. memory: of the scores.
  IndexScores(const Compute& compute, const KvLayout& kv, int layer, Scratch& memory,
              Choose choose);

  // Adds all tokens of the run. args: heads, sizes and strides, and the queries and weights of the
  // run's first token.
  void add(const TokenRun& run, const kernels::IndexArgs& args);
  // Chooses for all tokens that have been added.
  void finish();

 private:
  const Compute& compute_;
  const KvLayout& kv_;
  int layer_;
  Scratch& memory_;
  Choose choose_;
  std::vector<Block> blocks_;
  int num_choices_ = 0;
  size_t num_scores_ = 0;
};

}  // namespace wideep::model
