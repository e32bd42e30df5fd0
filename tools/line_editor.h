// SPDX-License-Identifier: Apache-2.0
//
// Reads lines from the terminal of this process, which the user edits: libedit, behind this file.
// Earlier lines come back with the arrow keys and Ctrl-R, also those of other runs, from a file. A
// text of several lines that is pasted ends no line for good, where the terminal tells what is
// pasted (bracketed paste): the user may go on, and ends it with Enter.
//
// Thread safety: one thread.
#pragma once

#include <memory>
#include <string>

#include "chat_signals.h"
#include "wideep/status.h"

namespace wideep::tools {

class LineEditor {
 public:
  enum class Outcome {
    kLine,
    kPart,         // a line of a text that is pasted; its rest comes next
    kEnd,          // Ctrl-D
    kInterrupted,  // Ctrl-C
    kStopped,      // SIGTERM, SIGHUP
  };

  static constexpr int kMaxLines = 1000;         // of the history
  static constexpr size_t kMaxLineBytes = 4096;  // longer ones are not kept

  // history: its file; "": none is kept. A file that is no history is left as it is, with a warning.
  // Errors (failed): libedit cannot use the terminal.
  static Result<std::unique_ptr<LineEditor>> open(const std::string& history,
                                                  const ChatSignals& signals);
  virtual ~LineEditor() = default;
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // *line: what was typed, without its end, in UTF-8; of kInterrupted: what was there.
  virtual Outcome read(const std::string& prompt, std::string* line) = 0;
  virtual void remember(const std::string& line) = 0;

 protected:
  LineEditor() = default;
};

// $XDG_STATE_HOME/wideep/chat_history (~/.local/state/...), whose directory is made if need be. "":
// there is no home directory, or it cannot be made.
std::string chat_history_file();

}  // namespace wideep::tools
