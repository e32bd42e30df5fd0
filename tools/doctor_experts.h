// SPDX-License-Identifier: Apache-2.0
//
// What `wideep doctor` predicts of a model larger than memory: the share of its experts that would
// stay there, and the speed with the others read from packed weights.
//
// Thread safety: for one thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "advise/beyond_memory.h"
#include "base/machine.h"
#include "command_line/command_line.h"
#include "cost/hardware.h"
#include "run/advice.h"
#include "wideep/status.h"

namespace wideep::tools {

struct ExpertReadingOptions {
  std::string packed_cache;   // directory, on the disk that is measured; "": none is
  std::string expert_memory;  // as run::parse_expert_memory reads it; "": what there is room for
  std::string hardware;       // description of this machine; "": none

  bool depends_on_model() const { return !(expert_memory.empty() && hardware.empty()); }
};

// `options` must outlive the parsing.
void add_expert_reading_options(command_line::Command command, ExpertReadingOptions* options);

struct ExpertReading {
  uint64_t bytes_needed = 0, bytes_usable = 0;  // with all experts; of the machine
  uint64_t expert_bytes = 0;                    // of all ranks
  uint64_t resident_bytes = 0;                  // of them in memory
  bool fits = false;                            // with these
  advise::HitRates rates;
  advise::ReadingForecast forecast;  // of one request at a time
  double disk_bandwidth = 0.0;       // bytes per second
  std::string disk, computing;       // where the figures come from, for people

  // "needs 38.0 GiB, has 24.0 GiB: 61 % of experts in memory, expected hit rate 0.87, about 3.1
  // tokens/s here".
  std::string text() const;
  std::string sources() const;
  nlohmann::ordered_json json() const;
};

// Nothing if all experts are in memory, or what else a run needs is not. Without a description of
// the machine its memory is measured, for a second. Errors (invalid input): options that cannot be
// read; a description that is not of a machine of cores, or has no products of the model's format;
// those of weights::measure_read_bandwidth.
Result<std::optional<ExpertReading>> forecast_expert_reading(const ExpertReadingOptions& options,
                                                             const run::ModelFit& fit,
                                                             const base::Machine& machine);

}  // namespace wideep::tools
