// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_level.h"

#include <array>

#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

constexpr char32_t kFirstSubstitute = 0x100;
constexpr int kNumSubstitutes = 68;

bool stands_for_itself(char32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> chars;                             // byte -> UTF-8 character
  std::array<int16_t, kFirstSubstitute + kNumSubstitutes> bytes;  // character -> byte, or -1

  Alphabet() {
    bytes.fill(-1);
    char32_t next = kFirstSubstitute;
    for (int byte = 0; byte < 256; ++byte) {
      const auto same = static_cast<char32_t>(byte);
      const char32_t code_point = stands_for_itself(same) ? same : next++;
      append_utf8(code_point, &chars[static_cast<size_t>(byte)]);
      bytes[code_point] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_level_char(uint8_t byte) { return alphabet().chars[byte]; }

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 2);
  for (const char byte : bytes) out += byte_level_char(static_cast<uint8_t>(byte));
  return out;
}

std::string bytes_of_token(std::string_view token) {
  const auto& bytes = alphabet().bytes;
  std::string out;
  out.reserve(token.size());
  for (std::string_view rest = token; !rest.empty(); rest.remove_prefix(first_unit(rest).bytes)) {
    if (first_unit(rest).kind != Utf8Kind::kValid) return std::string(token);
    const char32_t code_point = first_code_point(rest);
    if (code_point >= bytes.size() || bytes[code_point] < 0) return std::string(token);
    out.push_back(static_cast<char>(bytes[code_point]));
  }
  return out;
}

}  // namespace wideep::tokenizer
