// SPDX-License-Identifier: Apache-2.0
#include "trace_variables.h"

#include <cstdlib>

namespace wideep::tools {

Result<std::optional<traces::TraceSettings>> read_trace_variables() {
  return traces::read_trace_settings([](const char* name) { return std::getenv(name); },
                                     WIDEEP_VERSION);
}

}  // namespace wideep::tools
