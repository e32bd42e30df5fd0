// SPDX-License-Identifier: Apache-2.0
#include "transport/cluster_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/log.h"

namespace wideep::transport {
namespace {

// Of a regular file; what is longer than any key is cut. Errors (invalid input): it cannot be read.
Result<std::string> text_of_key_file(const std::string& path) {
  const auto cannot = [&](const char* why) {
    return invalid_input(fmt::format("cannot read {}: {}", path, why));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return cannot(std::strerror(errno));
  struct stat about = {};
  std::string text(ClusterKey::kMaxBytes + 1, '\0');
  const bool is_file = ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  const ssize_t count = is_file ? ::read(fd, text.data(), text.size()) : 0;
  const int error = errno;
  ::close(fd);
  if (!is_file) return cannot("it is no regular file");
  if (count < 0) return cannot(std::strerror(error));
  if ((about.st_mode & S_IROTH) != 0) {
    log::warn("{}: every user of this machine can read it: chmod 600 keeps the key secret", path);
  }
  text.resize(static_cast<size_t>(count));
  return text;
}

}  // namespace

Result<ClusterKey> ClusterKey::read(const std::string& path) {
  Result<std::string> text = text_of_key_file(path);
  if (!text.ok()) return text.status();
  text->erase(text->find_last_not_of(" \t\r\n") + 1);
  if (text->size() >= kMinBytes && text->size() <= kMaxBytes) return ClusterKey(*text);
  return invalid_input(
      fmt::format("{}: expected a key of {} to {} bytes, found {}; write one with: openssl rand "
                  "-hex 32",
                  path, kMinBytes, kMaxBytes,
                  text->size() > kMaxBytes ? "more" : std::to_string(text->size())));
}

Digest ClusterKey::prove(std::string_view purpose, std::string_view bytes) const {
  // The purpose ends with a zero byte, which none contains.
  std::string all(purpose);
  all += '\0';
  all += bytes;
  Digest digest = {};
  unsigned length = 0;
  const auto* made = ::HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
                            reinterpret_cast<const unsigned char*>(all.data()), all.size(),
                            digest.data(), &length);
  WIDEEP_CHECK(made != nullptr && length == digest.size());
  return digest;
}

ClusterKey ClusterKey::for_links(uint64_t service) const {
  const Digest digest = prove("wideep links", memory_of(service));
  return ClusterKey(std::string(digest.begin(), digest.end()));
}

bool is_same(const Digest& a, const Digest& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Digest fresh_nonce() {
  Digest nonce;
  // Interrupted only before the kernel has gathered randomness, at boot; less comes never.
  while (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    WIDEEP_CHECK(errno == EINTR);
  }
  return nonce;
}

}  // namespace wideep::transport
