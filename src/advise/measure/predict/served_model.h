// SPDX-License-Identifier: Apache-2.0
//
// `wideep serve` as a program of its own, whose clients measure it.
//
// Thread safety: one thread per object.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "client/event_stream.h"
#include "wideep/status.h"

namespace wideep::measure {

class ServedModel {
 public:
  static constexpr const char* kName = "m";  // the model's, for clients

  // program: `wideep`. arguments: of `wideep serve`, without name and port. Returns when it serves.
  // Errors (failed): it cannot be started, or ends, with its last line; it takes two minutes.
  static Result<std::unique_ptr<ServedModel>> start(const std::string& program,
                                                    std::vector<std::string> arguments);
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;
  ~ServedModel();  // ends it, and waits for that

  const client::HttpAddress& address() const { return address_; }

 private:
  ServedModel() = default;
  Status spawn(const std::string& program, std::vector<std::string> arguments);
  Status await_address();

  base::ScratchDirectory files_;
  pid_t pid_ = -1;
  client::HttpAddress address_;
};

// Writes a model directory for random weights: this config.json, and the tokenizer with a text for
// each token of the config that it lacks, since clients count texts.
// Errors: a file cannot be read or written; it is no such JSON; (invalid input) a size or an id that
// no model has.
Status write_model_directory(const std::string& directory, const std::string& config,
                             const std::string& tokenizer_path);

}  // namespace wideep::measure
