// SPDX-License-Identifier: Apache-2.0
//
// What a server of a group prefers to do: prompts, answers, or both. A preference: every server does
// whatever it is asked, and what runs when it changes goes on where it is.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace wideep::engine {

enum class Role : uint8_t { kBoth, kPrefill, kDecode };

constexpr std::string_view name_of(Role role) {
  return role == Role::kPrefill ? "prefill" : role == Role::kDecode ? "decode" : "both";
}

constexpr std::optional<Role> role_named(std::string_view name) {
  for (const Role each : {Role::kBoth, Role::kPrefill, Role::kDecode}) {
    if (name == name_of(each)) return each;
  }
  return std::nullopt;
}

}  // namespace wideep::engine
