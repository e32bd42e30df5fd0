// SPDX-License-Identifier: Apache-2.0
//
// The access log: a line for each request when it is over, on stderr as all lines (base/log.h).
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "http/request_record.h"

namespace wideep::server {

// What the line says beside "access". Tokens and the time to the first one only where there are
// any; "cut" where the client left, or was disconnected, before it had the reply.
std::vector<log::Field> access_fields(const RequestRecord& record);
void log_access(const RequestRecord& record);

}  // namespace wideep::server
