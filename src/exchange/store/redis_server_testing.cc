// SPDX-License-Identifier: Apache-2.0
#include "store/redis_server_testing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "transport/programs_testing.h"
#include "transport/tcp.h"

namespace wideep::store {
namespace {

using std::chrono::milliseconds;

transport::PeerAddress local(int port) { return transport::resolve("127.0.0.1", port).value(); }

}  // namespace

RedisServerForTest::RedisServerForTest(std::vector<std::string> arguments, RedisOptions client)
    : arguments_(std::move(arguments)),
      client_(std::move(client)),
      port_(transport::free_port()),
      cluster_port_(transport::free_port()) {
  client_.hosts = {{.name = "127.0.0.1", .port = static_cast<uint16_t>(port_)}};
  start();
}

std::string RedisServerForTest::url() const {
  return fmt::format("{}://127.0.0.1:{}", client_.is_tls ? "rediss" : "redis", port_);
}

void RedisServerForTest::start() {
  std::vector<std::string> line = {"redis-server", client_.is_tls ? "--tls-port" : "--port",
                                   std::to_string(port_)};
  if (client_.is_tls) line.insert(line.end(), {"--port", "0"});
  line.insert(line.end(), {"--bind", "127.0.0.1", "--dir", folder_.path(), "--save", "",
                           "--appendonly", "no", "--logfile", folder_.file("log")});
  line.insert(line.end(), arguments_.begin(), arguments_.end());
  if (std::find(line.begin(), line.end(), "--cluster-enabled") != line.end()) {
    line.insert(line.end(), {"--cluster-port", std::to_string(cluster_port_)});
  }
  std::vector<char*> words;
  for (std::string& word : line) words.push_back(word.data());
  words.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execvp(words[0], words.data());
    ::_exit(127);
  }
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (say({"PING"}).text != "PONG") {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "redis-server does not answer";
    std::this_thread::sleep_for(milliseconds(10));
  }
}

void RedisServerForTest::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

RedisReply RedisServerForTest::say(std::initializer_list<std::string_view> words) const {
  RedisReply none{.type = RedisReply::Type::kError, .text = "no connection"};
  std::unique_ptr<TlsContext> tls;
  if (client_.is_tls) tls = std::make_unique<TlsContext>(TlsContext::make(client_).value());
  Result<RedisConnection> connection =
      RedisConnection::open(client_.hosts.front(), client_, tls.get());
  if (!connection.ok()) {
    none.text = connection.status().message();
    return none;
  }
  std::string command;
  append_command(command, words);
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  if (!connection->send(command, 1, deadline).ok()) return none;
  Result<RedisReply> reply = connection->receive(size_t{1} << 30, deadline);
  return reply.ok() ? *reply : none;
}

RelayForTest::RelayForTest(int server_port)
    : server_port_(server_port), listener_(transport::listen_on(local(0)).value()) {
  port_ = transport::local_address(listener_).port;
  thread_ = std::thread([this] { run(); });
}

RelayForTest::~RelayForTest() {
  ends_ = true;
  thread_.join();
  ::close(listener_);
}

void RelayForTest::run() {
  while (!ends_) {
    pollfd ready{listener_, POLLIN, 0};
    if (::poll(&ready, 1, 10) <= 0) continue;
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    ++num_clients;
    serve(client);
    ::close(client);
  }
}

// Until one of both ends, or another client comes: the first has dropped its connection then.
void RelayForTest::serve(int client) const {
  const Result<int> server = transport::connect_to(local(server_port_), milliseconds(1000));
  if (!server.ok()) return;
  int64_t passed = 0;
  std::vector<char> bytes(16384);
  bool goes_on = true;
  while (goes_on && !ends_) {
    pollfd ready[] = {{client, POLLIN, 0}, {*server, POLLIN, 0}};
    if (::poll(ready, 2, 10) <= 0) continue;
    for (int i = 0; i < 2 && goes_on; ++i) {
      if (ready[i].revents == 0) continue;
      ssize_t count = ::read(ready[i].fd, bytes.data(), bytes.size());
      goes_on = count > 0;
      if (i == 1 && goes_on) {
        std::this_thread::sleep_for(milliseconds(delay_ms));
        const int64_t limit = max_bytes;
        if (limit >= 0 && passed + count > limit) {
          count = std::max<int64_t>(0, limit - passed);
          goes_on = !cuts;
        }
        passed += count;
      }
      if (count > 0) {
        (void)!::send(ready[1 - i].fd, bytes.data(), static_cast<size_t>(count), MSG_NOSIGNAL);
      }
    }
  }
  ::close(*server);
}

}  // namespace wideep::store
