// SPDX-License-Identifier: Apache-2.0
//
// The output of `wideep balance replay`: a line per window and a summary, or JSON.
#pragma once

#include <string>

#include "online/replay.h"

namespace wideep::tools {

struct Replayed {
  std::string directory;  // the trace, as named by the user
  const online::RequestTrace* trace = nullptr;
  const online::ReplayOptions* options = nullptr;
  bool bytes_known = false;  // of an expert
  const online::ReplayResult* result = nullptr;
};

std::string replay_table(const Replayed& replayed);
std::string replay_json(const Replayed& replayed);

}  // namespace wideep::tools
