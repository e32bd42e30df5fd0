// SPDX-License-Identifier: Apache-2.0
//
// The kernel's and the resolver's own timeouts are minutes. A connection never blocks, and who
// wants to wait polls until the deadline. A name is looked up by a thread of its own, which is left
// to itself where the deadline is over: getaddrinfo() cannot be called off.
#include "store/redis_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/no_pipe_signals.h"
#include "base/try.h"

namespace wideep::store {
namespace {

using Clock = std::chrono::steady_clock;

struct KernelAddress {
  sockaddr_storage bytes = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

struct Found {
  int error = 0;  // of getaddrinfo
  std::vector<KernelAddress> addresses;
};

Found look_up(const std::string& name, uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  Found found;
  found.error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (found.error != 0) return found;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    KernelAddress& address = found.addresses.emplace_back();
    std::memcpy(&address.bytes, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
  }
  ::freeaddrinfo(list);
  return found;
}

struct LookUp {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;  // guarded, as is what it found
  Found found;
};

Result<std::vector<KernelAddress>> addresses_of(const RedisHost& host, Deadline deadline) {
  Found found = look_up(host.name, host.port, AI_NUMERICHOST);
  if (found.error == 0) return std::move(found.addresses);
  const auto shared = std::make_shared<LookUp>();
  std::thread([shared, host] {
    Found result = look_up(host.name, host.port, 0);
    const std::lock_guard lock(shared->mutex);
    shared->found = std::move(result);
    shared->is_done = true;
    shared->changed.notify_one();
  }).detach();
  std::unique_lock lock(shared->mutex);
  if (!shared->changed.wait_until(lock, deadline, [&] { return shared->is_done; })) {
    return deadline_exceeded(fmt::format("the look-up of '{}' took too long", host.name));
  }
  if (shared->found.error != 0) {
    return failed(
        fmt::format("'{}' has no address: {}", host.name, ::gai_strerror(shared->found.error)));
  }
  return std::move(shared->found.addresses);
}

// Whether the socket is ready, or broken, in time.
bool wait_for(int socket, int16_t events, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd ready{socket, events, 0};
    const int64_t milliseconds = std::clamp<int64_t>(left.count(), 0, 1 << 30);
    const int found = ::poll(&ready, 1, static_cast<int>(milliseconds));
    if (found > 0) return true;
    if (found == 0) return false;
    if (errno != EINTR) return true;  // the next call on the socket says what is wrong
  }
}

Status connect_socket(int socket, const KernelAddress& address, Deadline deadline) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  int error = ::connect(socket, address.get(), address.length) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    if (!wait_for(socket, POLLOUT, deadline)) return deadline_exceeded("no answer in time");
    socklen_t length = sizeof(error);
    ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  }
  return error == 0 ? Status() : failed(std::strerror(error));
}

std::string tls_error() {
  const unsigned long code = ::ERR_get_error();
  ::ERR_clear_error();
  if (code == 0) return "no reason is given";
  const char* reason = ::ERR_reason_error_string(code);
  return reason != nullptr ? reason : fmt::format("error {:#x}", code);
}

// Where the system keeps its authorities: a program that is linked with OpenSSL's archives knows
// only where the system has them on which it was built.
void trust_the_system(SSL_CTX* context) {
  ::SSL_CTX_set_default_verify_paths(context);
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem"}) {
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    ::SSL_CTX_load_verify_locations(context, file, nullptr);
    break;
  }
  ::ERR_clear_error();
}

}  // namespace

void TlsContext::Free::operator()(ssl_ctx_st* context) const { ::SSL_CTX_free(context); }

Result<TlsContext> TlsContext::make(const RedisOptions& options) {
  TlsContext context;
  context.context_.reset(::SSL_CTX_new(::TLS_client_method()));
  SSL_CTX* raw = context.get();
  if (raw == nullptr) return failed(fmt::format("TLS: {}", tls_error()));
  ::SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  ::SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
  ::SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  const auto check = [](int result, const std::string& file, std::string_view what) {
    if (result == 1) return Status();
    return invalid_input(fmt::format("'{}': expected {}: {}", file, what, tls_error()));
  };
  if (options.ca_file.empty()) {
    trust_the_system(raw);
  } else {
    WIDEEP_TRY(check(::SSL_CTX_load_verify_locations(raw, options.ca_file.c_str(), nullptr),
                     options.ca_file, "certificates of authorities, in PEM"));
  }
  if (!options.certificate_file.empty()) {
    WIDEEP_TRY(check(::SSL_CTX_use_certificate_chain_file(raw, options.certificate_file.c_str()),
                     options.certificate_file, "a certificate in PEM"));
    WIDEEP_TRY(check(::SSL_CTX_use_PrivateKey_file(raw, options.key_file.c_str(), SSL_FILETYPE_PEM),
                     options.key_file, "the key of that certificate, in PEM"));
  }
  return context;
}

void RedisSocket::FreeTls::operator()(ssl_st* tls) const { ::SSL_free(tls); }

RedisSocket::RedisSocket(RedisSocket&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), tls_(std::move(other.tls_)) {}

RedisSocket& RedisSocket::operator=(RedisSocket&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(tls_, other.tls_);
  return *this;
}

RedisSocket::~RedisSocket() {
  tls_.reset();
  if (socket_ >= 0) ::close(socket_);
}

// One address after the other, as far as the time allows: of "localhost" the first may be IPv6,
// where nobody listens.
Result<RedisSocket> RedisSocket::connect(const RedisHost& host, const TlsContext* tls,
                                         Deadline deadline) {
  WIDEEP_TRY_ASSIGN(const std::vector<KernelAddress> addresses, addresses_of(host, deadline));
  Status status = failed("no address");
  for (const KernelAddress& address : addresses) {
    const int fd =
        ::socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      status = failed(std::strerror(errno));
      continue;
    }
    RedisSocket socket(fd);
    status = connect_socket(fd, address, deadline);
    if (!status.ok()) continue;
    if (tls != nullptr) status = socket.begin_tls(host, *tls, deadline);
    if (status.ok()) return socket;
    break;  // somebody is there, and it is not whom we want
  }
  return status.at(fmt::format("no connection to {}", host.text()));
}

Status RedisSocket::begin_tls(const RedisHost& host, const TlsContext& tls, Deadline deadline) {
  tls_.reset(::SSL_new(tls.get()));
  if (tls_ == nullptr) return failed(fmt::format("TLS: {}", tls_error()));
  ::SSL_set_fd(tls_.get(), socket_);
  in6_addr number = {};
  const bool is_number = ::inet_pton(AF_INET, host.name.c_str(), &number) == 1 ||
                         ::inet_pton(AF_INET6, host.name.c_str(), &number) == 1;
  if (is_number) {
    ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(tls_.get()), host.name.c_str());
  } else {
    ::SSL_set_tlsext_host_name(tls_.get(), host.name.c_str());
    ::SSL_set1_host(tls_.get(), host.name.c_str());
  }
  const base::NoPipeSignals no_pipe_signals;
  for (;;) {
    ::ERR_clear_error();
    const int result = ::SSL_connect(tls_.get());
    if (result == 1) return {};
    if (const long found = ::SSL_get_verify_result(tls_.get()); found != X509_V_OK) {
      return failed(
          fmt::format("TLS: the server's certificate is refused: {}; ?ssl_ca_certs=FILE "
                      "names the authorities to trust",
                      ::X509_verify_cert_error_string(found)));
    }
    WIDEEP_TRY(wait_for_tls(result, "TLS", deadline));
  }
}

// After a call of OpenSSL that has not done what it should: waits for what it needs.
Status RedisSocket::wait_for_tls(int result, std::string_view what, Deadline deadline) {
  switch (::SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      if (wait_for(socket_, POLLIN, deadline)) return {};
      break;
    case SSL_ERROR_WANT_WRITE:
      if (wait_for(socket_, POLLOUT, deadline)) return {};
      break;
    case SSL_ERROR_SYSCALL:
      if (errno != 0) return failed(fmt::format("{}: {}", what, std::strerror(errno)));
      [[fallthrough]];
    case SSL_ERROR_ZERO_RETURN:
      return failed(fmt::format("{}: the server has ended the connection", what));
    default:
      return failed(fmt::format("{}: {}", what, tls_error()));
  }
  return deadline_exceeded(fmt::format("{}: no answer in time", what));
}

Result<size_t> RedisSocket::write_some(std::string_view bytes, Deadline deadline) {
  for (;;) {
    if (tls_ != nullptr) {
      ::ERR_clear_error();
      size_t written = 0;
      const int result = ::SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &written);
      if (result == 1) return written;
      WIDEEP_TRY(wait_for_tls(result, "writing", deadline));
      continue;
    }
    const ssize_t written = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written >= 0) return static_cast<size_t>(written);
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket_, POLLOUT, deadline)) {
        return deadline_exceeded("the server takes nothing more in time");
      }
    } else if (errno != EINTR) {
      return failed(std::strerror(errno));
    }
  }
}

Status RedisSocket::write(std::string_view bytes, Deadline deadline) {
  const base::NoPipeSignals no_pipe_signals;  // OpenSSL writes without MSG_NOSIGNAL
  while (!bytes.empty()) {
    WIDEEP_TRY_ASSIGN(const size_t written, write_some(bytes, deadline));
    bytes.remove_prefix(written);
    if (Clock::now() >= deadline && !bytes.empty()) {
      return deadline_exceeded("the server takes bytes too slowly");
    }
  }
  return {};
}

Result<size_t> RedisSocket::read_tls(std::span<std::byte> into, Deadline deadline) {
  const base::NoPipeSignals no_pipe_signals;  // an answer to the peer's renewal of keys
  for (;;) {
    ::ERR_clear_error();
    size_t count = 0;
    errno = 0;
    const int result = ::SSL_read_ex(tls_.get(), into.data(), into.size(), &count);
    if (result == 1) return count;
    if (::SSL_get_error(tls_.get(), result) == SSL_ERROR_ZERO_RETURN) return size_t{0};
    WIDEEP_TRY(wait_for_tls(result, "reading", deadline));
  }
}

Result<size_t> RedisSocket::read(std::span<std::byte> into, Deadline deadline) {
  if (tls_ != nullptr) return read_tls(into, deadline);
  for (;;) {
    const ssize_t count = ::recv(socket_, into.data(), into.size(), 0);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket_, POLLIN, deadline)) return deadline_exceeded("no answer in time");
    } else if (errno != EINTR) {
      return failed(std::strerror(errno));
    }
  }
}

bool RedisSocket::is_open() const {
  char byte = 0;
  const ssize_t count = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

}  // namespace wideep::store
