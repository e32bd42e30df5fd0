// SPDX-License-Identifier: Apache-2.0
//
// What the advisor is asked for: requests and limits, and the bounds of the layouts that it weighs.
//
// Thread safety: plain values.
#pragma once

#include <optional>
#include <vector>

#include "base/dtype.h"
#include "kernels/weight_format.h"

namespace wideep::advise {

struct Workload {
  int isl = 1024;                     // tokens of a prompt
  int osl = 1024;                     // tokens of an answer
  std::optional<double> max_ttft;     // seconds
  std::optional<double> max_tpot;     // seconds between two tokens of a request
  std::optional<double> concurrency;  // requests at the same time, over all ranks
  std::optional<double> rate;         // requests per second, over all ranks
  // That a draft is right, if those before it are: a property of the texts and the drafter, as
  // `wideep bench speculation` measures it.
  double acceptance = 0.0;
};

struct Choices {
  int max_ranks = 64;
  int max_num_tokens = 8192;                   // of a batch's iteration
  int max_drafts = 0;                          // of a request; 0: none are weighed
  double memory_share = 0.9;                   // of a rank's memory that may be used
  std::vector<kernels::WeightFormat> formats;  // empty: those that the hardware has
  Dtype cache = Dtype::kBf16;
  bool weighted_shares = true;  // replicas get the shares that are best for each iteration
};

}  // namespace wideep::advise
