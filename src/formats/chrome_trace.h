// SPDX-License-Identifier: Apache-2.0
//
// A trace of all ranks as Chrome's trace events, for Perfetto (ui.perfetto.dev) or
// chrome://tracing: a process for each rank, a thread for each lane, complete events ("ph": "X") in
// microseconds from the first, with layer, iteration and what the span counts or names.
#pragma once

#include <string>

#include "base/trace.h"

namespace wideep::formats {

// The ranks have ended. Errors (failed): cannot write.
Status write_chrome_trace(const std::string& path, const base::TraceBuffer& trace);

}  // namespace wideep::formats
