// SPDX-License-Identifier: Apache-2.0
//
// The places where prompts are kept beyond a rank's cache (store/place.h), as the options name them,
// the nearest first: the memory of the node, a directory, a server of Redis' protocol.
//
//   check_prompt_places()    once, before weights are loaded: what cannot work is an error
//   open_prompt_places()     each rank, on the thread that uses them: what does not work any more is
//                            a line, and the rank goes on without it
//
// Thread safety: functions for one thread.
#pragma once

#include <string>
#include <vector>

#include "base/shared_bytes.h"
#include "run/page_geometry.h"
#include "run/run_options.h"
#include "store/places.h"
#include "store/redis_address.h"
#include "wideep/status.h"

namespace wideep::run {

// A place needs room for so many pages of all layers and heads.
inline constexpr uint64_t kFewestPages = 4;

// That the options can keep prompts at all: without a place, always. Errors (invalid input): pages
// are not shared, so that nothing would be kept; an address or a size that is none.
Status check_prompt_options(const RunOptions& options);

// That the places are there: makes the directory, and asks the server. Errors (invalid input): too
// few bytes, a directory that cannot be made or read, a server that lets nobody in; (failed,
// deadline exceeded) it does not answer.
Status check_prompt_places(const RunOptions& options, const PageGeometry& geometry);

// host_memory: of store::HostTier::create_memory(), outlives the places; null: there is none.
// Errors (failed): it is not.
Result<std::vector<store::ListedPlace>> open_prompt_places(const RunOptions& options,
                                                           const PageGeometry& geometry,
                                                           const base::SharedBytes* host_memory);

// The address with the password that is given apart, and how long records stay.
Result<store::RedisOptions> redis_options(const RunOptions& options);

// "host 8.0 GiB, disk /nvme/prompts 32.0 GiB, redis://cache:6379"; "": nothing is kept.
std::string prompt_places_text(const RunOptions& options);

}  // namespace wideep::run
