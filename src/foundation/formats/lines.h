// SPDX-License-Identifier: Apache-2.0
//
// The lines of a text, for files with one record per line.
//
// Thread safety: one thread per object.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace wideep::formats {

class NonBlankLines {
 public:
  struct Line {
    int number;             // from 1, blank lines counted
    std::string_view text;  // without the end of the line; valid while the NonBlankLines exist
  };

  explicit NonBlankLines(std::string content) : content_(std::move(content)) {}
  NonBlankLines(const NonBlankLines&) = delete;
  NonBlankLines& operator=(const NonBlankLines&) = delete;

  // The next line that is not white space alone; null: there is none.
  std::optional<Line> next();

 private:
  std::string content_;
  size_t at_ = 0;
  int number_ = 0;
};

}  // namespace wideep::formats
