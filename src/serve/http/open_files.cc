// SPDX-License-Identifier: Apache-2.0
#include "http/open_files.h"

#include <sys/resource.h>

namespace wideep::server {

void allow_most_open_files() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace wideep::server
