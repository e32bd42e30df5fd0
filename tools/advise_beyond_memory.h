// SPDX-License-Identifier: Apache-2.0
//
// What `wideep advise` prints of a model that is larger than the memory of a machine of cores.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "advise/beyond_memory.h"

namespace wideep::tools {

// A model larger than memory, on the question's machine. REQUIRES: `found` is not empty.
struct BeyondMemory {
  const advise::Question& question;
  const advise::HitRates& rates;
  const std::vector<advise::PartlyResident>& found;  // the fastest first
  std::string model;                                 // as the user names it
};

std::string beyond_memory_text(const BeyondMemory& beyond);
nlohmann::ordered_json beyond_memory_json(const BeyondMemory& beyond);

// Of any prediction: what is expected, its bounds, bytes and seconds by place.
nlohmann::ordered_json forecast_json(const advise::ReadingForecast& forecast);
// Where hit rates come from, for people.
std::string rates_text(const advise::HitRates& rates);

}  // namespace wideep::tools
