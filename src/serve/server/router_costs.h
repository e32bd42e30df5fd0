// SPDX-License-Identifier: Apache-2.0
//
// Which replica a request goes to with `wideep route --policy prefix`: to the healthy one that
// costs least,
//
//   cost = work in progress there + what it would have to compute of this prompt
//
// in bytes of prompts. Work in progress is, of each request that runs there, what had to be
// computed of its prompt, until its answer comes, and kRequestBytes for the answer. So a prompt of
// which no replica knows a beginning goes to the least loaded. And a beginning that all requests
// have in common makes no replica busier than the others by more than it takes to compute it: by
// bytes ÷ kRequestBytes requests at most.
//
// Thread safety: a plain value; a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace wideep::server {

// A request that generates slows the others down as a prompt of so many bytes does, of about 1,000
// tokens.
inline constexpr uint64_t kRequestBytes = 4096;

struct ReplicaCost {
  bool is_tried = false;  // by this request: it is not chosen again
  bool is_up = true;      // if not, it comes after all that are
  uint64_t work = 0;      // in progress there, bytes
  uint64_t known = 0;     // bytes of this prompt that it need not compute
};

inline constexpr size_t kNoReplica = SIZE_MAX;

// The index of the best replica; kNoReplica: all are tried. Equal ones take turns: the first from
// `first` on wins (any number).
size_t cheapest_replica(std::span<const ReplicaCost> replicas, uint64_t prompt_bytes, size_t first);

}  // namespace wideep::server
