// SPDX-License-Identifier: Apache-2.0
//
// Against a socket as systemd has it.
#include "base/service_notifier.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "base/scratch_directory.h"

namespace wideep::base {
namespace {

using namespace std::chrono_literals;

class Manager {
 public:
  // name: a path, or one that begins with '@'.
  explicit Manager(const std::string& name) : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    size_t length = offsetof(sockaddr_un, sun_path) + name.size();
    if (name[0] == '@') {
      address.sun_path[0] = '\0';
    } else {
      ++length;
    }
    EXPECT_EQ(
        ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length)), 0)
        << std::strerror(errno);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Manager() {
    ::close(fd_);
    for (const char* each : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(each);
  }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // The next message; "": there is none now.
  std::string next() const {
    char bytes[4096];
    const ssize_t got = ::recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
    return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : "";
  }

 private:
  int fd_;
};

void watch(std::chrono::microseconds time, pid_t process = ::getpid()) {
  ::setenv("WATCHDOG_USEC", std::to_string(time.count()).c_str(), 1);
  ::setenv("WATCHDOG_PID", std::to_string(process).c_str(), 1);
}

TEST(ServiceNotifier, WithoutAManagerNothingIsSent) {
  ::unsetenv("NOTIFY_SOCKET");
  const ServiceNotifier notifier = ServiceNotifier::take_from_environment();
  EXPECT_FALSE(notifier.is_there());
  notifier.ready("r");
  notifier.alive();
}

TEST(ServiceNotifier, TellsAPathAndAnAbstractName) {
  const ScratchDirectory directory;
  for (const std::string& name :
       {directory.path() + "/notify", fmt::format("@wideep-test-{}", ::getpid())}) {
    const Manager manager(name);
    const ServiceNotifier notifier = ServiceNotifier::take_from_environment();
    EXPECT_TRUE(notifier.is_there());
    EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr);
    notifier.loading("loading weights 42 %");
    notifier.loading("loading weights 43 %");  // within the same second
    notifier.ready("serving m");
    notifier.status("two\nlines");
    notifier.stopping("stopping", 40s);
    EXPECT_EQ(manager.next(), "STATUS=loading weights 42 %\nEXTEND_TIMEOUT_USEC=120000000");
    EXPECT_EQ(manager.next(), "READY=1\nSTATUS=serving m");
    EXPECT_EQ(manager.next(), "STATUS=two lines");
    EXPECT_EQ(manager.next(), "STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=40000000");
    EXPECT_EQ(manager.next(), "");
  }
}

TEST(ServiceNotifier, SignsOfLifeAreAsManyAsTheManagerNeeds) {
  const ScratchDirectory directory;
  const Manager manager(directory.path() + "/notify");
  watch(400ms);
  const ServiceNotifier notifier = ServiceNotifier::take_from_environment();
  EXPECT_EQ(notifier.watchdog(), 400ms);
  EXPECT_EQ(std::getenv("WATCHDOG_USEC"), nullptr);
  EXPECT_EQ(std::getenv("WATCHDOG_PID"), nullptr);
  for (int i = 0; i < 100; ++i) notifier.alive();
  EXPECT_EQ(manager.next(), "WATCHDOG=1");
  EXPECT_EQ(manager.next(), "");
  std::this_thread::sleep_for(110ms);
  notifier.alive();
  EXPECT_EQ(manager.next(), "WATCHDOG=1");
}

TEST(ServiceNotifier, AnotherProcessesWatchdogIsNotFed) {
  const ScratchDirectory directory;
  const Manager manager(directory.path() + "/notify");
  watch(1s, ::getppid());
  const ServiceNotifier notifier = ServiceNotifier::take_from_environment();
  EXPECT_EQ(notifier.watchdog(), 0s);
  notifier.alive();
  EXPECT_EQ(manager.next(), "");
}

TEST(ServiceNotifier, AddressesOfOtherKindsAreLeftAlone) {
  for (const std::string& other : {std::string("vsock:2:1"), "/" + std::string(200, 'x')}) {
    ::setenv("NOTIFY_SOCKET", other.c_str(), 1);
    EXPECT_FALSE(ServiceNotifier::take_from_environment().is_there()) << other;
    EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr);
  }
}

// A start would wait for ever for a word that has found no room.
TEST(ServiceNotifier, ReadinessIsSaidAgainUntilThereIsRoom) {
  const ScratchDirectory directory;
  const Manager manager(directory.path() + "/notify");
  const ServiceNotifier notifier = ServiceNotifier::take_from_environment();
  for (int i = 0; i < 10'000; ++i) notifier.status(std::string(100, 'x'));
  notifier.ready("r");
  notifier.alive();
  for (std::string text = manager.next(); !text.empty(); text = manager.next()) {
    EXPECT_EQ(text.find("READY"), text.npos) << "there was room";
  }
  notifier.alive();
  notifier.alive();
  EXPECT_EQ(manager.next(), "READY=1");
  EXPECT_EQ(manager.next(), "");
}

// A manager that does not read, or has gone, delays nobody.
TEST(ServiceNotifier, NeverWaits) {
  const ScratchDirectory directory;
  auto manager = std::make_unique<Manager>(directory.path() + "/notify");
  const ServiceNotifier notifier = ServiceNotifier::take_from_environment();
  for (int i = 0; i < 10'000; ++i) notifier.status(std::string(100, 'x'));
  manager.reset();
  notifier.ready("r");
}

}  // namespace
}  // namespace wideep::base
