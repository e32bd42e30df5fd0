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
  explicit StopStrings(std::vector<std::string> stops)
      : stops_(std::make_shared<const std::vector<std::string>>(std::move(stops))) {}

  // Adds text. Returns the text that is now certain not to belong to a stop string.
  std::string push(std::string_view text);
  bool found() const { return match_ != nullptr; }
  std::string_view match() const;  // the stop string that was found; "": none
  // The reply has ended without a stop string: returns the text that was kept back.
  std::string flush();

 private:
  size_t longest_prefix_at_end() const;

  std::shared_ptr<const std::vector<std::string>> stops_;
  std::string kept_;
  const std::string* match_ = nullptr;  // one of stops_
};

}  // namespace wideep::server
