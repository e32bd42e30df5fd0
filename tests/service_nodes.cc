// SPDX-License-Identifier: Apache-2.0
#include "service_nodes.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>

#include "fault_load.h"

namespace wideep::tests {

using namespace std::chrono_literals;

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), length), 0);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(socket);
  return ntohs(address.sin_port);
}

ServiceNodes::ServiceNodes(int num_nodes, const std::string& model,
                           const std::vector<std::string>& more)
    : model_(model), more_(more), num_nodes_(num_nodes), port_between_(free_port()) {
  std::ofstream(directory_.file("key")) << "the secret of these nodes\n";
  ::chmod(directory_.file("key").c_str(), S_IRUSR);
  for (int node = 1; node < num_nodes; ++node) {
    others_.push_back(std::make_unique<Command>(options_of(node)));
  }
  server_ = std::make_unique<Server>(options_of(0));
}

CommandOptions ServiceNodes::options_of(int node) const {
  CommandOptions options{
      .arguments = {"serve", "--model", model_, "--port", "0", "--served-model-name", "m",
                    "--nnodes", std::to_string(num_nodes_), "--node-rank", std::to_string(node),
                    "--master-addr", "127.0.0.1", "--master-port", std::to_string(port_between_),
                    "--cluster-key-file", directory_.file("key")}};
  options.arguments.insert(options.arguments.end(), more_.begin(), more_.end());
  return options;
}

void ServiceNodes::kill(int node) { signal(node, SIGKILL); }

void ServiceNodes::start(int node, const std::vector<std::string>& more,
                         const std::vector<std::pair<std::string, std::string>>& environment) {
  CommandOptions options = options_of(node);
  options.environment = environment;
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  others_[static_cast<size_t>(node - 1)] = std::make_unique<Command>(options);
}

void ServiceNodes::signal(int number, int signal) {
  ::kill(-node(number).pid(), signal);  // its process group
}

std::vector<pid_t> ServiceNodes::processes(const std::string& beginning) {
  std::vector<pid_t> all = processes_named(server_->command(), beginning);
  for (const auto& each : others_) {
    const std::vector<pid_t> there = processes_named(*each, beginning);
    all.insert(all.end(), there.begin(), there.end());
  }
  return all;
}

void ServiceNodes::end() {
  server_->command().send(SIGTERM);
  const CommandEnd end = server_->command().wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(server_->command().ranks(), testing::IsEmpty()) << "processes that outlived wideep";
  for (const auto& each : others_) {
    const CommandEnd node_end = each->wait();
    EXPECT_EQ(node_end.exit_code, 0) << node_end.err;
    EXPECT_THAT(each->ranks(), testing::IsEmpty()) << "processes that outlived a node";
  }
}

}  // namespace wideep::tests
