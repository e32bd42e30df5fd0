// SPDX-License-Identifier: Apache-2.0
// Any bytes as a routing log: one line of complaint, or a log that survives writing and reading.
#include <string>

#include "base/check.h"
#include "recordings/routing_log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::recordings;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto log = parse_routing_log(text, "fuzz");
  if (!log.ok()) {
    WIDEEP_CHECK(log.status().message().find('\n') == std::string::npos);
    return 0;
  }
  const auto again = parse_routing_log(format_routing_log(*log), "again");
  WIDEEP_CHECK(again.ok());
  WIDEEP_CHECK(*again == *log);
  return 0;
}
