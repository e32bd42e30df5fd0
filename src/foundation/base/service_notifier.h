// SPDX-License-Identifier: Apache-2.0
//
// Tells the service manager that has started this process how it does, by sd_notify(3)'s protocol,
// without its library: systemd's units of Type=notify wait for it, and watch over it.
//
//   ServiceNotifier manager = ServiceNotifier::take_from_environment();
//   manager.loading("loading weights 42 %");    // also: gives a start that goes on more time
//   manager.ready("serving m on ...");
//   if (still_works) manager.alive();           // as often as one likes
//   manager.stopping("stopping", 30s);
//
// Without a manager nothing is sent, and each call is a comparison. What cannot be sent is dropped:
// the service never waits for its manager.
//
// Thread safety: all but moves. A forked process must not use it: managers heed the main process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace wideep::base {

class ServiceNotifier {
 public:
  // As NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID say, which are removed, so that no process that
  // is started from here takes itself for the service. REQUIRES: no other thread runs.
  static ServiceNotifier take_from_environment();

  ServiceNotifier() = default;
  ~ServiceNotifier();
  ServiceNotifier(ServiceNotifier&& other) noexcept;
  ServiceNotifier& operator=(ServiceNotifier&&) = delete;

  bool is_there() const { return socket_ >= 0; }
  // How long the manager waits for a sign of life; 0: it does not watch.
  std::chrono::microseconds watchdog() const { return watchdog_; }

  // A start that goes on: it may take two more minutes from now. At most one message each second is
  // sent.
  void loading(std::string_view text) const;
  // The manager waits for this word: if it has no room for it now, the next alive() says it again.
  void ready(std::string_view text) const;
  void status(std::string_view text) const;  // one line for people
  // It ends, and may take so long.
  void stopping(std::string_view text, std::chrono::milliseconds most) const;
  // A sign of life, of which as many are sent as the manager needs: four in its time.
  void alive() const;

 private:
  ServiceNotifier(std::string address, std::chrono::microseconds watchdog);
  bool send(std::string_view message) const;
  // Whether `interval` has passed since the last time, and takes it as passed.
  static bool is_due(std::atomic<int64_t>* next, std::chrono::nanoseconds interval);

  std::string address_;  // a path, or a name that begins with NUL
  int socket_ = -1;
  std::chrono::microseconds watchdog_{0};
  mutable std::atomic<int64_t> next_loading_ = 0, next_alive_ = 0;  // ns
  mutable std::atomic<bool> is_unheard_ = false;                    // that it is ready
};

}  // namespace wideep::base
