// SPDX-License-Identifier: Apache-2.0
//
// For tests: a service over several nodes, whose processes all run on this machine and talk over
// its loopback (`wideep serve --nnodes`).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_server.h"

namespace wideep::tests {

// A port that nobody uses at present.
int free_port();

class ServiceNodes {
 public:
  // Starts the command on every node, and waits until node 0 serves. more: for all of them.
  ServiceNodes(int num_nodes, const std::string& model, const std::vector<std::string>& more);

  Server& server() { return *server_; }  // that of node 0
  int port() const { return server_->port(); }
  // node: 1 or more.
  Command& node(int node) { return *others_[static_cast<size_t>(node - 1)]; }
  int num_nodes() const { return static_cast<int>(others_.size()) + 1; }
  // Kills all processes of the node at once, as a loss of power does, or starts it again.
  void kill(int node);
  void start(int node, const std::vector<std::string>& more = {},
             const std::vector<std::pair<std::string, std::string>>& environment = {});
  // Starts node 0 again, after its end.
  void restart_server() { server_ = std::make_unique<Server>(options_of(0)); }
  // Stops all processes of the node, or lets them go on: so long it is silent.
  void signal(int node, int signal);

  // All processes of all nodes with such a name (processes_named).
  std::vector<pid_t> processes(const std::string& beginning);
  // Ends the service, and expects that every node ends with exit code 0 and leaves nothing.
  void end();

 private:
  CommandOptions options_of(int node) const;
  base::ScratchDirectory directory_;  // with the nodes' key
  std::string model_;
  std::vector<std::string> more_;
  int num_nodes_;
  int port_between_;
  std::vector<std::unique_ptr<Command>> others_;
  std::unique_ptr<Server> server_;
};

}  // namespace wideep::tests
