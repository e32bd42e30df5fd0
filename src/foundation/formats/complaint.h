// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::formats {

// Holds the first error that was found in a document. All views into the document share it. Not
// thread safe.
class Complaint {
 public:
  explicit Complaint(std::string file) : file_(std::move(file)) {}

  // Sets the status (invalid input) to "<file>: <key>: <what>", or "<file>:<line>: <key>: <what>"
  // if the line is known (from 1). An empty key is left out. Only the first report has an effect:
  // later errors are usually consequences of it.
  void report(std::string_view key, std::string_view what) { report(0, key, what); }
  void report(int line, std::string_view key, std::string_view what);

  const Status& status() const { return status_; }

 private:
  std::string file_;
  Status status_;
};

}  // namespace wideep::formats
