// SPDX-License-Identifier: Apache-2.0
//
// Ends a reply's text before the first stop string. A stop string may arrive in pieces, so text
// that may be the beginning of one is kept back until this is decided.
//
// Not thread safe. Copies share the strings.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wideep::server {

class StopStrings {
 public:
  // includes_match: the text ends after the stop string.
  explicit StopStrings(std::vector<std::string> stops, bool includes_match = false)
      : stops_(std::make_shared<const std::vector<std::string>>(std::move(stops))),
        includes_match_(includes_match) {}

  // Adds text. Returns the text that is now certain not to belong to a stop string.
  std::string push(std::string_view text);
  bool found() const { return match_ != nullptr; }
  std::string_view match() const;  // the stop string that was found; "": none
  // The reply has ended without a stop string: returns the text that was kept back.
  std::string flush();

 private:
  size_t longest_prefix_at_end() const;

  std::shared_ptr<const std::vector<std::string>> stops_;
  bool includes_match_;
  std::string kept_;
  const std::string* match_ = nullptr;  // one of stops_
};

}  // namespace wideep::server
