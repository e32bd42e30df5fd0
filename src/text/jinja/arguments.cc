// SPDX-License-Identifier: Apache-2.0
#include "jinja/arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::jinja {

const Value* ArgumentReader::take(std::string_view name) {
  if (position_ < arguments_.positional.size()) return &arguments_.positional[position_++];
  return take_named(name);
}

const Value* ArgumentReader::take_named(std::string_view name) {
  const auto found = std::find_if(arguments_.named.begin(), arguments_.named.end(),
                                  [&](const auto& each) { return each.first == name; });
  if (found == arguments_.named.end()) return nullptr;
  named_taken_.push_back(found->first);
  return &found->second;
}

void ArgumentReader::complain(std::string what) {
  if (status_.ok()) status_ = invalid_input(fmt::format("{}: {}", callee_, what));
}

Value ArgumentReader::value(std::string_view name) {
  const Value* found = take(name);
  if (found != nullptr) return *found;
  complain(fmt::format("the argument '{}' is missing", name));
  return {};
}

Value ArgumentReader::value_or(std::string_view name, Value fallback) {
  const Value* found = take(name);
  return found != nullptr ? *found : std::move(fallback);
}

std::string ArgumentReader::string(std::string_view name) {
  const Value found = value(name);
  if (found.is_string()) return found.string();
  complain(fmt::format("'{}': expected a string, found {}", name, found.type_name()));
  return "";
}

int64_t ArgumentReader::integer_or(std::string_view name, int64_t fallback) {
  const Value found = value_or(name, fallback);
  if (found.is_none()) return fallback;
  if (found.is_whole() && !found.is_large()) return found.integer();
  complain(fmt::format("'{}': expected an integer, found {}", name, found.type_name()));
  return fallback;
}

int64_t ArgumentReader::strict_integer_or(std::string_view name, int64_t fallback) {
  const Value found = value_or(name, fallback);
  if (found.is_whole() && !found.is_large()) return found.integer();
  complain(fmt::format("'{}': expected an integer, found {}", name, found.type_name()));
  return fallback;
}

bool ArgumentReader::truth_or(std::string_view name, bool fallback) {
  return value_or(name, fallback).truth();
}

Arguments ArgumentReader::rest() {
  Arguments rest(arguments_.budget);
  const auto& places = arguments_.positional;
  rest.positional.assign(places.begin() + static_cast<ptrdiff_t>(position_), places.end());
  position_ = places.size();
  for (const auto& [name, value] : arguments_.named) {
    const bool taken =
        std::find(named_taken_.begin(), named_taken_.end(), name) != named_taken_.end();
    if (taken) continue;
    named_taken_.push_back(name);
    rest.named.emplace_back(name, value);
  }
  return rest;
}

Status ArgumentReader::status() {
  if (position_ < arguments_.positional.size()) {
    complain(fmt::format("expected at most {} arguments, found {}", position_,
                         arguments_.positional.size()));
  } else if (named_taken_.size() < arguments_.named.size()) {
    complain("unknown named argument");
  }
  return status_;
}

}  // namespace wideep::jinja
