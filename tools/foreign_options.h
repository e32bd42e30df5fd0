// SPDX-License-Identifier: Apache-2.0
//
// Options of another program's command line that have no meaning here, as a table: each is accepted
// with a line that says why it has no effect, or refused by name. None is ignored silently, and
// --help does not list them.
//
// `wideep bench throughput`, `latency`, `prepare-dataset` (trtllm-bench's) and `serving`
// (benchmark_serving's) have one table each.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "command_line/command_line.h"
#include "wideep/status.h"

namespace wideep::tools {

struct ForeignOption {
  enum class Takes { kText, kNumber, kTexts, kNothing };

  const char* names;  // "--workspace", or several names of one option: "--workspace,-w"
  Takes takes;
  // The values that change nothing, with commas between them; nullptr: every one; "": none, it is
  // refused.
  const char* accepted;
  const char* why;  // what the line, or the refusal, says
};

// trtllm-bench's options before its sub-command, which all of these have here.
std::span<const ForeignOption> trtllm_bench_options();

class ForeignOptions {
 public:
  // `options` must outlive the calls of take(), and this object the parsing.
  void add_to(command_line::Command command, std::span<const ForeignOption> options);

  // Logs a line for each option that was given and is accepted. Errors (invalid input): one that
  // is refused; no number where one is expected.
  Status take() const;

 private:
  struct Given {
    const ForeignOption* option = nullptr;
    bool is_set = false;              // kNothing
    std::vector<std::string> values;  // the others
  };
  std::deque<Given> given_;  // addresses stay: the parser writes to them
};

}  // namespace wideep::tools
