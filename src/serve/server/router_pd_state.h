// SPDX-License-Identifier: Apache-2.0
//
// What a server says of itself as one of a group that divides requests, at GET /v1/pd_role:
//
//   {"role": "prefill", "instance": "5f…", "version": "0.3.0", "record_class": "a7…",
//    "encoded_opaque_state": "1;10.0.0.1:7000;t;a7…;;", "load": {"prompt_tokens": 512, "running": 3,
//    "prefill_seconds_per_token": 0.0004, "pages_per_second": 2500, "kv_share": 0.4}, …}
//
// and which servers may be of one group: those of one version and of one class of records. Pages of
// others would be refused one by one.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "schedule/role.h"
#include "wideep/status.h"

namespace wideep::server {

struct PdState {
  engine::Role role = engine::Role::kBoth;
  std::string instance;  // another one: the server has begun anew
  std::string version;
  std::string record_class;    // "": it has no pages for others
  std::string opaque_state;    // what another one finds its pages by; "": likewise
  uint64_t prompt_tokens = 0;  // to compute, of requests without a token yet
  uint64_t running = 0;        // requests
  std::optional<double> prefill_seconds_per_token;
  std::optional<double> pages_per_second;  // that come to it from others
  double kv_share = 0;                     // of its KV cache, that running requests use
};

// Errors (invalid input): what of it is missing, or is something else.
Result<PdState> read_pd_state(std::string_view reply);

// What all servers of a group have in common, and whose values these are.
struct PdGroup {
  std::string version;
  std::string record_class;  // "": not known yet
  std::string url;

  // Why this server is none of the group: both values, both servers. "": it may be.
  std::string refusal(const PdState& state, std::string_view its_url) const;
};

}  // namespace wideep::server
