// SPDX-License-Identifier: Apache-2.0
//
// Whether a layer is out of balance, or whether its counts only look so: what the balancer needs to
// know to act on few tokens.
//
// Null hypothesis: the placement is balanced for the load that the counts were drawn from, so no
// set of u of the R ranks must compute more than u / R of the n rows. The best shares leave the
// most loaded set U with the rows of the experts that live only there, 1 + x times as many as
// expected. That has a probability of at most exp(-n·u/R · h(x)), h(x) = (1 + x) ln(1 + x) - x
// (Bennett's bound), for each of the C(R, u) sets of each of the R - 1 sizes. So it is significant
// if
//
//   n · u / R · h(x)  ≥  ln(1 / rate) + ln C(R, u) + ln(R - 1)
//
// The rate is for rows that are drawn independently. Tokens of one text are alike, so on real text
// there are more alarms; each costs a search, and moves only if they pay.
//
// Thread safety: one thread at a time.
#pragma once

#include <span>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::online {

class Evidence {
 public:
  // false_alarm_rate: in [0, 1); 0: nothing is ever significant.
  Evidence(double false_alarm_rate, const balance::PlanShape& shape, int num_layers);

  struct Look {
    double imbalance = 0.0;    // ratio with the best shares
    bool significant = false;  // and noise does not explain it
  };
  // counts: [E] rows of the layer. Quick while the layer's placement stays the same.
  Look look(int layer_idx, const balance::Placement& placement, std::span<const double> counts);

 private:
  struct Layer {
    balance::Placement placement;
    balance::Resplitter resplitter;
  };

  double needed_;  // ln(1 / rate)
  int num_ranks_;  // live ones
  std::vector<Layer> layers_;
  balance::Shares shares_;
};

}  // namespace wideep::online
