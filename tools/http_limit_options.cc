// SPDX-License-Identifier: Apache-2.0
#include "http_limit_options.h"

#include <cstdint>

#include "command_line/options_file.h"

namespace wideep::tools {

void add_http_limit_options(command_line::Command command, server::HttpOptions* http) {
  command
      .add_option("--allowed-hosts", http->allowed_hosts,
                  "Name by which clients may ask, beside localhost and --host, where no key is "
                  "needed on a loopback address, or where any is named; repeat it for more")
      .one_value_each();  // what follows may be MODEL
  command
      .add_option("--max-connections", http->max_connections,
                  "Most connections of clients; more wait until others are closed")
      .range(uint64_t{1}, uint64_t{1} << 20)
      .show_default();
  command
      .add_option("--max-request-bytes", http->max_request_bytes_of_all,
                  "Most bytes of all requests together that are read or answered; more are refused "
                  "with 503, but for small ones")
      .range(uint64_t{1} << 20, uint64_t{1} << 40)
      .show_default();
  command
      .add_option("--max-unread-bytes", http->max_unread_bytes_of_all,
                  "Most bytes of all replies together that clients have not read; beyond, who has "
                  "left most unread is disconnected")
      .range(uint64_t{1} << 20, uint64_t{1} << 40)
      .show_default();
}

void add_options_file_option(command_line::Command command, std::string* file) {
  command
      .add_option(command_line::OptionsFile::kOption, *file,
                  "YAML file with options, by their names without dashes; those of the command "
                  "line win")
      .path();
}

void add_grace_option(command_line::Command command, int* seconds) {
  command
      .add_option("--grace-seconds", *seconds,
                  "Seconds that running requests have to finish after SIGTERM; after SIGINT as "
                  "many, but at most 5")
      .range(0, 24 * 60 * 60)
      .show_default();
}

}  // namespace wideep::tools
