// SPDX-License-Identifier: Apache-2.0
//
// What wideep serve tells the service manager that has started it, as systemd would hear it: from
// its main process alone.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/scratch_directory.h"
#include "command_model.h"
#include "command_server.h"
#include "fault_load.h"
#include "service_nodes.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A socket with an abstract name, which needs no file.
class Manager {
 public:
  Manager() : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data() + 1, name_.size() - 1);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size())),
              0);
  }
  ~Manager() { ::close(fd_); }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  const std::string& name() const { return name_; }
  // Takes what has come. Returns whether `text` is in one of all messages so far.
  bool has_heard(const std::string& text) {
    take();
    return std::ranges::any_of(
        heard_, [&](const Message& each) { return each.text.find(text) != std::string::npos; });
  }
  void forget() {
    take();
    heard_.clear();
  }
  // The messages of others than `process`.
  std::vector<std::string> of_others(pid_t process) {
    take();
    std::vector<std::string> texts;
    for (const Message& each : heard_) {
      if (each.sender != process) texts.push_back(each.text);
    }
    return texts;
  }

 private:
  struct Message {
    std::string text;
    pid_t sender;
  };
  void take() {
    for (;;) {
      char bytes[4096];
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
      iovec part{bytes, sizeof(bytes)};
      msghdr head{};
      head.msg_iov = &part;
      head.msg_iovlen = 1;
      head.msg_control = control;
      head.msg_controllen = sizeof(control);
      const ssize_t got = ::recvmsg(fd_, &head, MSG_DONTWAIT);
      if (got < 0) return;
      ucred sender{};
      if (const cmsghdr* each = CMSG_FIRSTHDR(&head); each != nullptr) {
        std::memcpy(&sender, CMSG_DATA(each), sizeof(sender));
      }
      heard_.push_back({std::string(bytes, static_cast<size_t>(got)), sender.pid});
    }
  }

  std::string name_ = fmt::format("@wideep-manager-{}", ::getpid());
  int fd_;
  std::vector<Message> heard_;
};

TEST(CommandServiceManager, HearsOfTheStartTheWorkAndTheEnd) {
  for (const char* on_loss : {"recover", "fail"}) {
    Manager manager;
    Server server(CommandOptions{
        .arguments = {"serve", "--model", small_model(), "--port", "0", "--served-model-name", "m",
                      "--ranks", "2", "--on-rank-loss", on_loss},
        .environment = {{"NOTIFY_SOCKET", manager.name()}, {"WATCHDOG_USEC", "60000000"}}});
    ASSERT_GT(server.port(), 0) << server.command().err();
    const auto hears = [&](const std::string& text) {
      return wait_until([&] { return manager.has_heard(text); }, 30s * kSlowdown);
    };
    EXPECT_TRUE(hears("READY=1\nSTATUS=serving m on "));
    EXPECT_TRUE(hears("WATCHDOG=1"));
    EXPECT_EQ(server::ask(server.port(), "POST", "/drain").status, 200);
    EXPECT_TRUE(hears("STATUS=draining"));
    manager.forget();
    EXPECT_EQ(server::ask(server.port(), "DELETE", "/drain").status, 200);
    EXPECT_TRUE(hears("STATUS=serving m on "));
    server.command().send(SIGTERM);
    EXPECT_TRUE(hears("STOPPING=1"));
    const CommandEnd end = server.command().wait();
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_THAT(manager.of_others(server.command().pid()), IsEmpty());
  }
}

// A serving process that hangs gives no sign of life; the one that follows it does.
TEST(CommandServiceManager, SignsOfLifeAreThoseOfTheServingProcess) {
  Manager manager;
  Server server(CommandOptions{
      .arguments = {"serve", "--model", small_model(), "--port", "0", "--served-model-name", "m",
                    "--ranks", "2"},
      .environment = {{"NOTIFY_SOCKET", manager.name()}, {"WATCHDOG_USEC", "4000000"}}});
  ASSERT_GT(server.port(), 0) << server.command().err();
  EXPECT_THAT(server.command().err(), HasSubstr("raise WatchdogSec to at least 45 s"));
  ASSERT_TRUE(wait_until([&] { return manager.has_heard("WATCHDOG=1"); }, 10s * kSlowdown));
  ::kill(front_processes(server.command()).at(0), SIGKILL);
  EXPECT_EQ(server.complete({}).status, 200);
  manager.forget();
  EXPECT_TRUE(wait_until([&] { return manager.has_heard("WATCHDOG=1"); }, 10s * kSlowdown));
  EXPECT_THAT(manager.of_others(server.command().pid()), IsEmpty());
}

// For however long a node is missing, its manager must not take a start for one that hangs.
TEST(CommandServiceManager, NodesThatWaitForOthersStart) {
  Manager manager;
  base::ScratchDirectory files;
  std::ofstream(files.file("key")) << "the secret of these nodes\n";
  ::chmod(files.file("key").c_str(), S_IRUSR);
  const std::string port = std::to_string(free_port());
  const auto node = [&](const char* number, bool tells) {
    CommandOptions options{.arguments = {"serve", "--model", small_model(), "--port", "0",
                                         "--ranks", "4", "--nnodes", "4", "--node-rank", number,
                                         "--master-addr", "127.0.0.1", "--master-port", port,
                                         "--cluster-key-file", files.file("key")}};
    if (tells) options.environment = {{"NOTIFY_SOCKET", manager.name()}};
    return options;
  };
  const auto hears = [&](const std::string& text) {
    return wait_until([&] { return manager.has_heard(text); }, 30s * kSlowdown);
  };
  {
    Command zero(node("0", true));
    EXPECT_TRUE(
        hears(fmt::format("STATUS=waiting on 127.0.0.1:{} for nodes 1, 2, 3\n"
                          "EXTEND_TIMEOUT_USEC=120000000",
                          port)));
    zero.send(SIGKILL);
    zero.wait();
  }
  Command zero(node("0", false)), one(node("1", true));
  EXPECT_TRUE(
      hears("STATUS=waiting for node 0 and the other nodes\n"
            "EXTEND_TIMEOUT_USEC=120000000"));
  // SIGHUP does not end a node, also where it waits.
  const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY);
  if (terminal >= 0) ::close(terminal);  // with one, SIGHUP says that it has gone
  if (terminal < 0) one.send(SIGHUP);
  one.send(SIGTERM);
  EXPECT_EQ(one.wait().exit_code, 128 + SIGTERM);
  zero.send(SIGTERM);
  zero.wait();
}

// A node stays as long as node 0 gives requests, and its manager has to wait for it. SIGHUP, which
// drains node 0, does not end it.
TEST(CommandServiceManager, ANodeAsksForTheGraceOfNode0) {
  Manager manager;
  ServiceNodes nodes(2, small_model(), {"--ranks", "2", "--grace-seconds", "77"});
  ASSERT_GT(nodes.port(), 0);
  nodes.kill(1);
  nodes.node(1).wait();
  nodes.start(1, {}, {{"NOTIFY_SOCKET", manager.name()}});
  const auto hears = [&](const std::string& text) {
    return wait_until([&] { return manager.has_heard(text); }, 30s * kSlowdown);
  };
  EXPECT_TRUE(hears("READY=1\nSTATUS=node 1 of 2: connected to node 0"));
  EXPECT_TRUE(wait_until([&] { return nodes.server().metric("wideep_ep_active_ranks") == 2; },
                         60s * kSlowdown));
  if (const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY); terminal >= 0) {
    ::close(terminal);  // with one, SIGHUP says that it has gone
  } else {
    nodes.node(1).send(SIGHUP);
    EXPECT_TRUE(wait_until(
        [&] { return nodes.node(1).err().find("SIGHUP has no effect here") != std::string::npos; },
        10s * kSlowdown));
    EXPECT_EQ(nodes.server().complete({}).status, 200);
  }
  nodes.server().command().send(SIGTERM);
  nodes.node(1).send(SIGTERM);
  EXPECT_TRUE(hears("STOPPING=1\n"));
  EXPECT_TRUE(manager.has_heard("EXTEND_TIMEOUT_USEC=92000000"));
  const CommandEnd end = nodes.server().command().wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const CommandEnd node_end = nodes.node(1).wait();
  EXPECT_EQ(node_end.exit_code, 0) << node_end.err;
}

}  // namespace
}  // namespace wideep::tests
