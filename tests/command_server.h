// SPDX-License-Identifier: Apache-2.0
//
// For tests: `wideep serve` or `wideep route` on a port of its own.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "http/http_client_testing.h"

namespace wideep::tests {

// A value of GET /metrics at a port that somebody listens on; its labels, if it has some, are part
// of the name. −1: there is none.
double metric_at(int port, const std::string& name);

class Server {
 public:
  // Starts the command and waits until it serves. The model's name for clients is "m".
  Server(const std::string& model, const std::vector<std::string>& more);
  // With all arguments, of which one is "--port 0".
  explicit Server(const CommandOptions& options);
  explicit Server(const std::vector<std::string>& arguments)
      : Server(CommandOptions{.arguments = arguments}) {}

  int port() const { return port_; }  // 0: it does not serve
  Command& command() { return command_; }

  // Of at most kMaxTokens tokens, at temperature 0, unless `more` says otherwise.
  server::Reply complete(const nlohmann::json& more) const;
  double metric(const std::string& name) const { return metric_at(port_, name); }

  static constexpr int kMaxTokens = 24;

 private:
  Command command_;
  int port_ = 0;
};

// A process of the server by its name, as ps shows it: "wideep-front", "wideep-rank-1"; -1: none.
pid_t process_named(Server& server, const std::string& name);

}  // namespace wideep::tests
