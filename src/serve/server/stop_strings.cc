// SPDX-License-Identifier: Apache-2.0
#include "server/stop_strings.h"

#include <algorithm>

namespace wideep::server {

std::string_view StopStrings::match() const {
  return found() ? std::string_view(*match_) : std::string_view();
}

std::string StopStrings::push(std::string_view text) {
  if (found()) return "";
  if (stops_->empty()) return std::string(text);
  kept_ += text;
  size_t first = kept_.npos;
  for (const std::string& stop : *stops_) {
    const size_t place = kept_.find(stop);
    if (place >= first) continue;
    first = place;
    match_ = &stop;
  }
  if (found() && includes_match_) first += match_->size();
  const size_t certain = found() ? first : kept_.size() - longest_prefix_at_end();
  std::string out = kept_.substr(0, certain);
  kept_ = found() ? "" : kept_.substr(certain);
  return out;
}

std::string StopStrings::flush() {
  std::string rest;
  rest.swap(kept_);
  return rest;
}

// The length of the longest end of kept_ that is a proper prefix of a stop string.
size_t StopStrings::longest_prefix_at_end() const {
  size_t longest = 0;
  for (const std::string& stop : *stops_) {
    for (size_t n = std::min(stop.size() - 1, kept_.size()); n > longest; --n) {
      if (kept_.ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

}  // namespace wideep::server
