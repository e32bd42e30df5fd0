// SPDX-License-Identifier: Apache-2.0
#include "group/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/printable.h"

namespace wideep::transport {

namespace {

// Values may be of another node, which may be anybody.
constexpr size_t kMaxShown = 200;

std::string shown(const Settings& settings, size_t index) {
  return index < settings.size() ? base::printable(settings[index].second, kMaxShown) : "nothing";
}

// The first that differs; the number of settings: none does.
size_t find_difference(const Settings& first, const Settings& other) {
  size_t i = 0;
  while (i < std::min(first.size(), other.size()) && first[i] == other[i]) ++i;
  return i;
}

}  // namespace

std::string name_of_difference(const Settings& first, const Settings& other) {
  const size_t i = find_difference(first, other);
  if (i < first.size()) return first[i].first;
  return i < other.size() ? base::printable(other[i].first, kMaxShown) : "";
}

Status check_settings_match(const Settings& first, const Settings& other, int number,
                            const char* who) {
  const std::string name = name_of_difference(first, other);
  if (name.empty()) return {};
  const size_t i = find_difference(first, other);
  const bool same_name = i < first.size() && i < other.size() && first[i].first == other[i].first;
  return invalid_input(fmt::format(
      "{} 0 and {} differ in {}: {} and {}; start all {} with the same settings", who, number, name,
      shown(first, i), same_name || i >= first.size() ? shown(other, i) : "nothing", who));
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
