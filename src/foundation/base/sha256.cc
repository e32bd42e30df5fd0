// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "base/check.h"

namespace wideep::base {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  WIDEEP_CHECK_EQ(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr), 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(const void* data, size_t num_bytes) {
  WIDEEP_CHECK_EQ(EVP_DigestUpdate(state_->context, data, num_bytes), 1);
}

std::array<unsigned char, 32> Sha256::digest() const {
  // Finalising ends a context, so it is done on a copy: the stream can continue.
  State copy;
  WIDEEP_CHECK_EQ(EVP_MD_CTX_copy_ex(copy.context, state_->context), 1);
  std::array<unsigned char, 32> digest{};
  WIDEEP_CHECK_EQ(EVP_DigestFinal_ex(copy.context, digest.data(), nullptr), 1);
  return digest;
}

std::string Sha256::hex() const {
  std::string text;
  for (unsigned char byte : digest()) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace wideep::base
