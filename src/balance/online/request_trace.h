// SPDX-License-Identifier: Apache-2.0
//
// Per-token traces of many requests: which experts each token of each request chose.
//
// A directory holds trace_index.csv, a line for each request, and the ids
// (recordings/token_trace.h):
//
//   trace_index.csv   columns token_offset and n_tokens: the request's tokens in the file of ids;
//                     domain or else dataset: the kind of text; other columns are ignored
//   <domain>.ids.u8   (or .u16) one file for each domain, if there is a column domain;
//   trace_ids.u8      (or .u16) one for all otherwise
//
// Thread safety: plain values; pure function of the files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "recordings/token_trace.h"
#include "wideep/status.h"

namespace wideep::online {

struct Request {
  int domain = 0;  // index into RequestTrace::domains
  int file = 0;    // index into RequestTrace::ids
  int64_t token_offset = 0;
  int64_t num_tokens = 0;
};

struct RequestTrace {
  recordings::TraceShape shape;
  std::vector<std::string> domains;        // in the order of their first line in the index
  std::vector<Request> requests;           // in the index's order
  std::vector<std::vector<uint16_t>> ids;  // [file] of [token][layer][top_k]

  int64_t num_tokens() const;  // of all requests
  // Experts of one layer's token, [top_k].
  std::span<const uint16_t> experts(int file, int64_t token, int layer_idx) const;
};

struct DividedTrace {
  RequestTrace earlier, later;
};

// Divides the requests of each domain: `later` gets the last `fraction` of them, rounded, but at
// least one and never all; those of a domain with a single request are all earlier. Errors (invalid
// input): a fraction that is not between 0 and 1; no domain has two requests.
Result<DividedTrace> hold_out_requests(RequestTrace trace, double fraction);

// Errors (invalid input) name file and line or column: no index, a missing column, an invalid
// number, requests without a token or beyond the end of their file, no request at all; and those of
// recordings::visit_trace.
Result<RequestTrace> read_request_trace(const std::string& directory,
                                        const recordings::TraceShape& shape);

// A file of ids alone (recordings/token_trace.h), in requests of request_tokens tokens (≥ 1), of one
// domain "all". Errors: those of recordings::visit_trace.
Result<RequestTrace> read_token_trace(const std::string& path, const recordings::TraceShape& shape,
                                      int64_t request_tokens);

// The indices of these domains. Errors (invalid input): one that the trace does not have.
Result<std::vector<int>> find_domains(const RequestTrace& trace,
                                      std::span<const std::string> names);

}  // namespace wideep::online
