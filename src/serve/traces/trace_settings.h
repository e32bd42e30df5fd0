// SPDX-License-Identifier: Apache-2.0
//
// Where traces go and what they say of this process, from the variables that OpenTelemetry has for
// it (docs/operate.md has the table). What is asked for and not had (https, protobuf, gRPC) is an
// error that names the variable.
//
// Thread safety: a plain value.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "traces/sampler.h"
#include "traces/span.h"
#include "wideep/status.h"

namespace wideep::traces {

struct Collector {
  std::string url;      // as the variable has it, for messages
  std::string host;     // as the header Host has it
  std::string address;  // numeric
  int port = 4318;
  std::string path = "/v1/traces";
  std::vector<std::pair<std::string, std::string>> headers;
  int timeout_ms = 10'000;  // of a request
};

struct TraceSettings {
  Collector collector;
  Resource resource;
  Sampler sampler;
};

// variable: as std::getenv; an empty value counts as none. nullopt: no traces are wanted. Looks up
// the collector's host. version: of this program. Errors (invalid input): a value; (failed): the
// host has no address.
using Variables = std::function<const char*(const char* name)>;
Result<std::optional<TraceSettings>> read_trace_settings(const Variables& variable,
                                                         const std::string& version);

}  // namespace wideep::traces
