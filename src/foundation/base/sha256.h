// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

namespace wideep::base {

// SHA-256 of a stream of bytes. Not thread safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(const void* data, size_t num_bytes);
  // The digest of all bytes so far. More updates may follow.
  std::array<unsigned char, 32> digest() const;
  std::string hex() const;  // the same as 64 lower-case hex digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace wideep::base
