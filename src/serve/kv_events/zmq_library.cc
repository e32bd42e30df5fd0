// SPDX-License-Identifier: Apache-2.0
#include "kv_events/zmq_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"

namespace wideep::kv_events {
namespace {

constexpr const char* kZmqFile = "libzmq.so.5";

template <typename Function>
bool find_function(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

Result<ZmqLibrary> load_zmq() {
  void* const library = ::dlopen(kZmqFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return invalid_input(
        fmt::format("KV events are published with ZeroMQ, and {} cannot be loaded ({}); install it "
                    "(Debian, Ubuntu: libzmq5; Fedora: zeromq), or set publisher to \"null\": then "
                    "they are there over HTTP only",
                    kZmqFile, ::dlerror()));
  }
  ZmqLibrary zmq;
  const bool is_whole = find_function(library, "zmq_ctx_new", &zmq.ctx_new) &&
                        find_function(library, "zmq_ctx_term", &zmq.ctx_term) &&
                        find_function(library, "zmq_socket", &zmq.socket) &&
                        find_function(library, "zmq_close", &zmq.close) &&
                        find_function(library, "zmq_setsockopt", &zmq.setsockopt) &&
                        find_function(library, "zmq_getsockopt", &zmq.getsockopt) &&
                        find_function(library, "zmq_bind", &zmq.bind) &&
                        find_function(library, "zmq_connect", &zmq.connect) &&
                        find_function(library, "zmq_send", &zmq.send) &&
                        find_function(library, "zmq_recv", &zmq.recv) &&
                        find_function(library, "zmq_errno", &zmq.error_number) &&
                        find_function(library, "zmq_strerror", &zmq.error_text);
  if (is_whole) return zmq;
  return invalid_input(fmt::format(
      "{} lacks functions of ZeroMQ 4: another library has its name; install Debian's libzmq5",
      kZmqFile));
}

}  // namespace

Result<const ZmqLibrary*> ZmqLibrary::load() {
  static const Result<ZmqLibrary> library = load_zmq();
  WIDEEP_TRY(library.status());
  return &*library;
}

ZmqSocket::ZmqSocket(const ZmqLibrary& library, int type, int64_t max_received_bytes)
    : library_(library),
      max_received_bytes_(static_cast<size_t>(max_received_bytes)),
      context_(library.ctx_new()),
      socket_(context_ == nullptr ? nullptr : library.socket(context_, type)) {
  if (socket_ == nullptr) return;  // out of descriptors: every call fails, and says so
  library.setsockopt(socket_, ZmqLibrary::kMaxMessageSize, &max_received_bytes,
                     sizeof(max_received_bytes));
  set(ZmqLibrary::kLinger, 0);
}

ZmqSocket::~ZmqSocket() {
  if (socket_ != nullptr) library_.close(socket_);
  if (context_ != nullptr) library_.ctx_term(context_);
}

bool ZmqSocket::set(int option, int value) {
  return library_.setsockopt(socket_, option, &value, sizeof(value)) == 0;
}

bool ZmqSocket::set(int option, const std::string& value) {
  return library_.setsockopt(socket_, option, value.data(), value.size()) == 0;
}

bool ZmqSocket::send(const std::string& part, bool has_more) {
  const int flags = ZmqLibrary::kDontWait | (has_more ? ZmqLibrary::kSendMore : 0);
  return library_.send(socket_, part.data(), part.size(), flags) >= 0;
}

bool ZmqSocket::receive(std::string* part, bool waits) {
  part->resize(max_received_bytes_);
  const int size =
      library_.recv(socket_, part->data(), part->size(), waits ? 0 : ZmqLibrary::kDontWait);
  part->resize(std::min(part->size(), static_cast<size_t>(std::max(size, 0))));
  return size >= 0;
}

bool ZmqSocket::has_more() {
  int more = 0;
  size_t size = sizeof(more);
  return library_.getsockopt(socket_, ZmqLibrary::kReceiveMore, &more, &size) == 0 && more != 0;
}

}  // namespace wideep::kv_events
