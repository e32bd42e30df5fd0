// SPDX-License-Identifier: Apache-2.0
//
// Starts lm_eval (lm-evaluation-harness) as a program of its own, which asks a server.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/event_stream.h"
#include "measure/accuracy/scored_requests.h"

namespace wideep::measure {

struct LmEvalOptions {
  std::string environment;  // with bin/python, as scripts/install_lm_eval.sh makes it
  std::string_view client;  // Python: tools/accuracy_client.py
  std::vector<std::string> tasks;
  std::string include_path;  // folder of further tasks, and where the client runs; "": none
  int batch_size = 1;
  std::optional<int> limit;  // examples of each task
};

// Errors (invalid input): lm_eval is not in the environment, with how to install it; the folder of
// tasks is not there.
Status check_lm_eval(const LmEvalOptions& options);

// REQUIRES: check_lm_eval(). model: its name on the server. Waits until the client ends.
// Errors (failed): it cannot be started, fails (the message has the end of what it wrote), or writes
// no result.
Result<Evaluation> run_lm_eval(const LmEvalOptions& options, const client::HttpAddress& server,
                               const std::string& model);

}  // namespace wideep::measure
