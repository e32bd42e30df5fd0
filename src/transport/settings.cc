// SPDX-License-Identifier: Apache-2.0
#include "transport/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace wideep::transport {

Status check_settings_match(const Settings& first, const Settings& other, int number,
                            const char* who) {
  for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    const bool both = i < first.size() && i < other.size();
    if (both && first[i] == other[i]) continue;
    const std::string name = i < first.size() ? first[i].first : other[i].first;
    const bool same_name = both && first[i].first == other[i].first;
    return invalid_input(
        fmt::format("{} 0 and {} differ in {}: {} and {}; start all {} with the same settings", who,
                    number, name, i < first.size() ? first[i].second : "nothing",
                    same_name ? other[i].second : "nothing", who));
  }
  return {};
}

// Name and value of each, with their lengths before them.
std::string to_text(const Settings& settings) {
  std::string text;
  const auto add = [&](const std::string& each) {
    const auto length = static_cast<uint32_t>(each.size());
    text.append(reinterpret_cast<const char*>(&length), sizeof(length));
    text += each;
  };
  for (const auto& [name, value] : settings) {
    add(name);
    add(value);
  }
  return text;
}

Settings settings_from(const std::string& text) {
  Settings settings;
  std::vector<std::string> parts;
  for (size_t at = 0; at + sizeof(uint32_t) <= text.size();) {
    uint32_t length = 0;
    std::memcpy(&length, text.data() + at, sizeof(length));
    at += sizeof(length);
    parts.push_back(text.substr(std::min(at, text.size()), length));
    at += length;
  }
  for (size_t i = 0; i + 1 < parts.size(); i += 2) settings.emplace_back(parts[i], parts[i + 1]);
  return settings;
}

}  // namespace wideep::transport
