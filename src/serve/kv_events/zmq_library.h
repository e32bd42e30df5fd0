// SPDX-License-Identifier: Apache-2.0
//
// libzmq, loaded when it is asked for, so that neither the build nor a package needs it. Its binary
// interface is the same since version 3; the numbers are those of zmq.h.
//
// Thread safety: load() from any thread; the functions as libzmq says: a socket belongs to a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "wideep/status.h"

namespace wideep::kv_events {

struct ZmqLibrary {
  // Types of sockets.
  static constexpr int kPub = 1, kSub = 2, kReq = 3, kDealer = 5, kRouter = 6;
  // Options.
  static constexpr int kSubscribe = 6, kReceiveMore = 13, kLinger = 17, kMaxMessageSize = 22,
                       kSendHighWaterMark = 23, kReceiveHighWaterMark = 24, kReceiveTimeout = 27,
                       kIpv6 = 42;
  // Flags of a message's part.
  static constexpr int kDontWait = 1, kSendMore = 2;

  void* (*ctx_new)() = nullptr;
  int (*ctx_term)(void* context) = nullptr;
  void* (*socket)(void* context, int type) = nullptr;
  int (*close)(void* socket) = nullptr;
  int (*setsockopt)(void* socket, int option, const void* value, size_t size) = nullptr;
  int (*getsockopt)(void* socket, int option, void* value, size_t* size) = nullptr;
  int (*bind)(void* socket, const char* endpoint) = nullptr;
  int (*connect)(void* socket, const char* endpoint) = nullptr;
  int (*send)(void* socket, const void* data, size_t size, int flags) = nullptr;
  int (*recv)(void* socket, void* data, size_t size, int flags) = nullptr;
  int (*error_number)() = nullptr;
  const char* (*error_text)(int number) = nullptr;

  // The library of this process. Starts no thread. Errors (invalid input): it is not there, and the
  // package that has it.
  static Result<const ZmqLibrary*> load();
};

// A socket with a context, and so a thread, of its own. After an error: text() says which.
class ZmqSocket {
 public:
  // What a peer sends may have at most max_received_bytes, else it is cut off.
  ZmqSocket(const ZmqLibrary& library, int type, int64_t max_received_bytes);
  ~ZmqSocket();  // drops what has not been sent
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  bool set(int option, int value);
  bool set(int option, const std::string& value);
  bool bind(const std::string& endpoint) { return library_.bind(socket_, endpoint.c_str()) == 0; }
  bool connect(const std::string& endpoint) {
    return library_.connect(socket_, endpoint.c_str()) == 0;
  }
  // Never waits.
  bool send(const std::string& part, bool has_more);
  // The next part of a message, cut to the size of max_received_bytes. false: there is none, now or
  // within the receive timeout.
  bool receive(std::string* part, bool waits = false);
  bool has_more();  // parts of the message whose last part was received
  std::string text() const { return library_.error_text(library_.error_number()); }

 private:
  const ZmqLibrary& library_;
  const size_t max_received_bytes_;
  void* const context_;
  void* const socket_;
};

}  // namespace wideep::kv_events
