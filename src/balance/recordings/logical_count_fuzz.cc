// SPDX-License-Identifier: Apache-2.0
// Any bytes as a logical_count file: one line of complaint, or statistics that have what they claim
// and every token of the file, whether it has steps or not.
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "recordings/statistics_reader.h"

namespace {

int64_t sum_of(const nlohmann::json& value) {
  if (!value.is_array()) return static_cast<int64_t>(value.get<double>());
  int64_t sum = 0;
  for (const nlohmann::json& each : value) sum += sum_of(each);
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::recordings;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto statistics = parse_logical_count(text, "fuzz");
  if (!statistics.ok()) {
    WIDEEP_CHECK(statistics.status().message().find('\n') == std::string::npos);
    return 0;
  }
  WIDEEP_CHECK(check_statistics(*statistics).ok());
  WIDEEP_CHECK_EQ(statistics->num_iterations(), 1);
  int64_t sum = 0;
  for (int layer = 0; layer < statistics->num_layers(); ++layer) {
    for (const int64_t tokens : statistics->layer_load(layer)) sum += tokens;
  }
  WIDEEP_CHECK_EQ(sum, sum_of(nlohmann::json::parse(text)["logical_count"]));
  return 0;
}
