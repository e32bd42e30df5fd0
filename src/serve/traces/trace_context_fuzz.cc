// SPDX-License-Identifier: Apache-2.0
//
// Headers that say anything: what is taken for a trace context means the same when it is sent on.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "traces/trace_context.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view header(reinterpret_cast<const char*>(data), size);
  if (const auto context = wideep::traces::parse_traceparent(header)) {
    if (wideep::traces::parse_traceparent(traceparent_of(*context)) != context) std::abort();
  }
  if (wideep::traces::is_tracestate(header)) {
    if (size > 512) std::abort();
    for (const char c : header) {
      if ((c < 0x20 && c != '\t') || c == 0x7f) std::abort();
    }
  }
  return 0;
}
