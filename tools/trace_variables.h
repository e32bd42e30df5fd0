// SPDX-License-Identifier: Apache-2.0
//
// Where `serve` and `route` send traces of requests: OpenTelemetry's variables.
#pragma once

#include <optional>

#include "traces/trace_settings.h"
#include "wideep/status.h"

namespace wideep::tools {

// Errors: as traces::read_trace_settings.
Result<std::optional<traces::TraceSettings>> read_trace_variables();

}  // namespace wideep::tools
