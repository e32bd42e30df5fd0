// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/normalizer.h"

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <memory>

#include "base/check.h"

namespace wideep::tokenizer {
namespace {

struct Nfc {
  UErrorCode error = U_ZERO_ERROR;
  icu::UnicodeSet old_enough;
  std::unique_ptr<const icu::Normalizer2> normalizer;

  Nfc() {
    old_enough.applyPattern(icu::UnicodeString::fromUTF8("[:Age=9.0:]"), error);
    old_enough.freeze();
    const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(error);
    if (U_SUCCESS(error)) {
      normalizer = std::make_unique<icu::FilteredNormalizer2>(*nfc, old_enough);
    }
  }
};

const Nfc& nfc() {
  static const Nfc instance;
  return instance;
}

// U+0300, the first code point that NFC can change or combine, starts with the byte 0xCC.
bool may_change(char byte) { return static_cast<unsigned char>(byte) >= 0xCC; }

}  // namespace

Status check_nfc_available() {
  if (U_SUCCESS(nfc().error)) return {};
  return failed(fmt::format("ICU cannot normalise text: {}", u_errorName(nfc().error)));
}

std::string to_nfc(std::string_view text) {
  if (std::none_of(text.begin(), text.end(), may_change)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode error = U_ZERO_ERROR;
  nfc().normalizer->normalizeUTF8(
      0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr, error);
  WIDEEP_CHECK(U_SUCCESS(error));
  return out;
}

}  // namespace wideep::tokenizer
