// SPDX-License-Identifier: Apache-2.0
//
// What online balancing does, in one line each for people.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "run/background_watch.h"

namespace wideep::run {

// Moves, the imbalance before and after, and what all moves have brought and cost so far.
std::string line_of(const online::Rebalance& rebalance);
std::string line_of(const online::TrustChange& change);
// num_stages: of the run; one stage has no number.
std::string line_of(const BackgroundSilence& silence, size_t num_stages);

// "saved 1.2 s, made slower by 0.1 s, paid 0.3 s".
std::string text_of(const online::LedgerSums& sums);

}  // namespace wideep::run
