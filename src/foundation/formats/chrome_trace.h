// SPDX-License-Identifier: Apache-2.0
//
// Writes a trace of all ranks in Chrome's trace event format, for Perfetto (ui.perfetto.dev) or
// chrome://tracing. Each rank is a process and each lane a thread. Spans are complete events
// ("ph": "X") with times in microseconds since the first event, and with their layer, iteration and
// detail.
#pragma once

#include <string>

#include "base/trace.h"

namespace wideep::formats {

// REQUIRES: the ranks have ended. Errors (failed): the file cannot be written.
Status write_chrome_trace(const std::string& path, const base::TraceBuffer& trace);

}  // namespace wideep::formats
