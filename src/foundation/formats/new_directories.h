// SPDX-License-Identifier: Apache-2.0
//
// Directories for files that a run will write later. They are created at the start, so that a wrong
// path is an early error, and those that stay empty are removed again.
//
//   WIDEEP_TRY_ASSIGN(NewDirectories directories, NewDirectories::create("results/statistics"));
//   ... write files into it, or fail ...
//
// Thread safety: a plain value; one thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "wideep/status.h"

namespace wideep::formats {

class NewDirectories {
 public:
  // Creates the directory and its parents where they are missing, and checks that a file can be
  // written in it. Errors (invalid input): it cannot be created or written, with the reason; then
  // nothing is left.
  static Result<NewDirectories> create(const std::string& directory);

  // Removes those that create() made and that are empty.
  ~NewDirectories();
  NewDirectories(NewDirectories&& other) noexcept : created_(std::exchange(other.created_, {})) {}
  NewDirectories& operator=(NewDirectories&& other) noexcept {
    std::swap(created_, other.created_);
    return *this;
  }

 private:
  NewDirectories() = default;

  std::vector<std::string> created_;  // outermost first
};

}  // namespace wideep::formats
