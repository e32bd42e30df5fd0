// SPDX-License-Identifier: Apache-2.0
//
// The spans of a request that is over: one of the server, and of a request for text one for each
// phase below it.
//
//   chat MODEL  ├──────────────────────────────────────────────┤   the complete request … its end
//     prepare   ├──┤                                               template, tokens
//     queue        ├─────┤                                         until a rank begins the prompt
//     prefill            ├────────┤                                until the first token
//     decode                      ├──────────────────┤             until the last one
//     transfer                                       ├─────────┤   until the system has the reply
//
// A phase whose begin is not known has no span; one that has not ended ends with the request. Of an
// answer that another process has gone on with only the server's span is true.
//
// Thread safety: a function of its arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "http/request_record.h"
#include "traces/span.h"

namespace wideep::server {

// to_unix_ns: what makes a time of the steady clock one since 1970. REQUIRES: record.trace.
std::vector<traces::Span> spans_of(const RequestRecord& record, int64_t to_unix_ns);

}  // namespace wideep::server
