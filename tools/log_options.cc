// SPDX-License-Identifier: Apache-2.0
#include "log_options.h"

#include "base/log.h"

namespace wideep::tools {

void LogOptions::apply() const { log::set_form(log::form_of_service(format)); }

void add_log_options(command_line::Command command, LogOptions* options) {
  command
      .add_option("--log-format", options->format,
                  "Lines on stderr: text: with times where it is no terminal; json: an object "
                  "each; auto: text, or with levels for systemd's journal if stderr leads there")
      .one_of({"auto", "text", "json"})
      .show_default();
  command.add_flag("--access-log", options->access,
                   "A line for each request: its id, client, method, path, status, tokens and "
                   "times");
}

}  // namespace wideep::tools
