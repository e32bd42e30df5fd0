// SPDX-License-Identifier: Apache-2.0
//
// Standard input that is no terminal, or whose lines nobody edits: read while signals are waited
// for, which are blocked (chat_signals.h) and would not interrupt a read.
//
// Thread safety: one thread.
#pragma once

#include <optional>
#include <string>

#include "chat_signals.h"
#include "wideep/status.h"

namespace wideep::tools {

class PipedInput {
 public:
  static constexpr size_t kMaxBytes = size_t{64} << 20;  // of a message

  explicit PipedInput(const ChatSignals& signals) : signals_(signals) {}

  // The next line, without its end; nothing: there is none. Errors: (invalid input) it is longer
  // than kMaxBytes; (interrupted) a signal has come.
  Result<std::optional<std::string>> line();
  // All that is left. Errors: the same.
  Result<std::string> all();

 private:
  Result<bool> read_more();  // false: the end

  const ChatSignals& signals_;
  std::string bytes_;    // read and not taken
  size_t searched_ = 0;  // bytes of them that have no end of a line
};

}  // namespace wideep::tools
