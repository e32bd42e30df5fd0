// SPDX-License-Identifier: Apache-2.0
//
// A directory that appears with all of its files, or not at all, also where the process dies while
// it writes them.
//
//   WIDEEP_TRY_ASSIGN(WholeDirectory directory, WholeDirectory::create("records/dump-3"));
//   ... write files into directory.path() ...
//   WIDEEP_TRY(directory.finish());  // now it is "records/dump-3"
//
// Until then it is called "records/dump-3.unfinished" and locked, so that what a dead process has
// left is told from what another one is writing.
//
// Thread safety: a plain value; one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "formats/new_directories.h"
#include "wideep/status.h"

namespace wideep::formats {

class WholeDirectory {
 public:
  static constexpr std::string_view kUnfinished = ".unfinished";

  // Creates the parents of the path, too. Errors (invalid input): as NewDirectories; one of this
  // name is being written.
  static Result<WholeDirectory> create(const std::string& path);
  // Removes what is not finished, and the parents that create() made, if they are empty.
  ~WholeDirectory();
  WholeDirectory(WholeDirectory&& other) noexcept;
  WholeDirectory& operator=(WholeDirectory&&) = delete;

  // Where to write files.
  std::string path() const { return final_path_ + std::string(kUnfinished); }
  // Errors (failed): the name is taken, or cannot be given.
  Status finish();

  // Removes what processes that have died did not finish in this directory.
  static void remove_leftovers(const std::string& directory);

 private:
  WholeDirectory(std::string final_path, NewDirectories parents)
      : final_path_(std::move(final_path)), parents_(std::move(parents)) {}

  std::string final_path_;  // "": nothing is to be removed
  std::optional<NewDirectories> parents_;
  int lock_ = -1;
};

}  // namespace wideep::formats
