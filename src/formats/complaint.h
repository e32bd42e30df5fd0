// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::formats {

// Collects the first complaint of a document; shared by all views into it.
class Complaint {
 public:
  explicit Complaint(std::string file) : file_(std::move(file)) {}

  // Makes the status "<file>: <key>: <what>", or "<file>:<line>: <key>: <what>" when the line (from
  // 1) is known; an empty key is left out. Keeps the first: later ones are usually consequences.
  void say(std::string_view key, std::string_view what) { say(0, key, what); }
  void say(int line, std::string_view key, std::string_view what);

  const Status& status() const { return status_; }

 private:
  std::string file_;
  Status status_;
};

}  // namespace wideep::formats
