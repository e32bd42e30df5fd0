// SPDX-License-Identifier: Apache-2.0
//
// What is said about a part of Jinja or Python that chat templates do not use. Thread safety: pure
// functions.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace wideep::jinja {

// "filter 'urlize': is not one that chat templates use; known: abs, …". known: names, or a map
// whose keys are names.
template <typename Known>
std::string not_used(std::string_view kind, std::string_view name, const Known& known) {
  std::string names;
  for (const auto& each : known) {
    if constexpr (requires { each.first; }) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", each.first);
    } else {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", each);
    }
  }
  return fmt::format("{} '{}': is not one that chat templates use; known: {}", kind, name, names);
}

}  // namespace wideep::jinja
