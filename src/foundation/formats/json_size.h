// SPDX-License-Identifier: Apache-2.0
//
// How much memory a JSON value takes: some sixteen times its text for lists of lists, for example.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>

namespace wideep::formats {

// In bytes, about: with what the allocator adds.
size_t json_bytes(const nlohmann::ordered_json& value);

}  // namespace wideep::formats
