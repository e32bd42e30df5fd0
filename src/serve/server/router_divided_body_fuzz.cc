// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/router_divided_body.h"

// Of JSON that may be divided, both bodies say what it says, and their parameters.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using nlohmann::json;
  namespace server = wideep::server;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  server::generation_params_of(body);
  if (!server::can_divide(body)) return 0;
  const std::string context =
      server::context_body(body, {.request_id = 7, .style = server::ScheduleStyle::kContextFirst});
  const std::string generation = server::generation_body(body, R"({"a":1})");
  json expected = json::parse(body, nullptr, false);
  if (expected.is_discarded()) return 0;
  expected["disaggregated_params"] = {{"a", 1}};
  if (json::parse(generation, nullptr, false) != expected) std::abort();
  for (const char* name : {"stream", "stream_options", "store", "background"}) {
    expected.erase(name);
  }
  expected["disaggregated_params"] = {{"request_type", "context_only"},
                                      {"disagg_request_id", 7},
                                      {"schedule_style", "context_first"}};
  if (json::parse(context, nullptr, false) != expected) std::abort();
  return 0;
}
