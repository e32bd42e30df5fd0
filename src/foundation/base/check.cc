// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace wideep::base {

void check_failed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: internal check failed: %s\n", file, line, what.c_str());
  std::abort();
}

}  // namespace wideep::base
