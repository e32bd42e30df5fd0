// SPDX-License-Identifier: Apache-2.0
//
// What a router counts of its replicas, for /metrics.
//
// Thread safety: the serving thread.
#pragma once

#include <string>

#include "server/router_replicas.h"

namespace wideep::server {

std::string metrics_of(const RouterReplicas& replicas);

}  // namespace wideep::server
