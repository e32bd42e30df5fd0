// SPDX-License-Identifier: Apache-2.0
// Any bytes as a logical_count file: statistics of a consistent shape or one line of complaint.
#include <string>

#include "base/check.h"
#include "recordings/statistics_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::recordings;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto statistics = parse_logical_count(text, "fuzz");
  if (!statistics.ok()) return 0;
  WIDEEP_CHECK_EQ(statistics->counts.size(),
                  statistics->layers.size() * static_cast<size_t>(statistics->num_experts));
  for (int64_t count : statistics->counts) WIDEEP_CHECK_GE(count, 0);
  return 0;
}
