// SPDX-License-Identifier: Apache-2.0
//
// What ranks that were started one by one must have been told alike, by name, so that the first
// difference can be named before anything is loaded. (What they make of it is compared again by
// engine/handshake.h.)
//
// Thread safety: pure function.
#pragma once

#include <span>

#include "engine/generate.h"
#include "engine/request.h"
#include "kernels/kernels.h"

namespace wideep::engine {

transport::Settings run_settings(const RunOptions& options, const kernels::Kernels& kernels);
// And what is to be generated.
transport::Settings generate_settings(const GenerateOptions& options,
                                      const kernels::Kernels& kernels,
                                      std::span<const Request> requests);

}  // namespace wideep::engine
