// SPDX-License-Identifier: Apache-2.0
//
// ICU normalises the text, restricted to characters of Unicode 9.0. ICU sorts combining marks by
// insertion, so that a run of n marks takes n² steps, with which a request of some hundred
// kilobytes could block a server. Long runs are therefore decomposed and sorted first, in linear
// time; that text is canonically equivalent, and ICU finds the marks in order.
#include "tokenizer/normalizer.h"

#include <fmt/format.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/check.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

struct Nfc {
  UErrorCode error = U_ZERO_ERROR;
  icu::UnicodeSet old_enough;             // characters of Unicode 9.0
  icu::UnicodeSet marks;                  // those of them whose decomposition begins with a mark
  const icu::Normalizer2* all = nullptr;  // NFC for all characters that ICU knows
  std::unique_ptr<const icu::Normalizer2> normalizer;  // NFC for old_enough

  Nfc() {
    old_enough.applyPattern(icu::UnicodeString::fromUTF8("[:Age=9.0:]"), error);
    old_enough.freeze();
    marks.applyPattern(icu::UnicodeString::fromUTF8("[[:Age=9.0:]-[:lccc=0:]]"), error);
    marks.freeze();
    all = icu::Normalizer2::getNFCInstance(error);
    if (U_SUCCESS(error)) {
      normalizer = std::make_unique<icu::FilteredNormalizer2>(*all, old_enough);
    }
  }
};

const Nfc& nfc() {
  static const Nfc instance;
  return instance;
}

// U+0300, the first code point that NFC can change or combine, starts with the byte 0xCC.
bool may_change(char byte) { return static_cast<unsigned char>(byte) >= 0xCC; }

// Runs of marks above this length are sorted before ICU sees them.
constexpr size_t kLongRunBytes = 64;

// Combining class → the marks of that class, in the order of the text.
using Marks = std::map<uint8_t, std::string>;

// Adds the decomposition, because U+0F73 and a few others are two marks of different classes.
void add_decomposed(UChar32 code_point, Marks* marks) {
  const icu::Normalizer2& all = *nfc().all;
  icu::UnicodeString parts;
  if (!all.getDecomposition(code_point, parts)) parts = code_point;
  for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1)) {
    const UChar32 part = parts.char32At(i);
    append_utf8(static_cast<char32_t>(part), &(*marks)[all.getCombiningClass(part)]);
  }
}

// Appends a run of marks in Unicode's canonical order: by combining class, and within a class in
// the order of the text.
void append_in_order(std::string_view run, std::string* out) {
  Marks marks;
  while (!run.empty()) {
    add_decomposed(static_cast<UChar32>(first_code_point(run)), &marks);
    run.remove_prefix(first_unit(run).bytes);
  }
  for (const auto& [combining_class, texts] : marks) *out += texts;
}

// Returns canonically equivalent text in which long runs of marks are in order.
std::string with_marks_in_order(std::string_view text) {
  std::string out;
  const auto span = [&](std::string_view rest, USetSpanCondition condition) {
    return static_cast<size_t>(
        nfc().marks.spanUTF8(rest.data(), static_cast<int32_t>(rest.size()), condition));
  };
  while (!text.empty()) {
    const size_t before = span(text, USET_SPAN_NOT_CONTAINED);
    out += text.substr(0, before);
    text.remove_prefix(before);
    const std::string_view run = text.substr(0, span(text, USET_SPAN_CONTAINED));
    if (run.size() > kLongRunBytes) {
      append_in_order(run, &out);
    } else {
      out += run;
    }
    text.remove_prefix(run.size());
  }
  return out;
}

}  // namespace

Status check_nfc_available() {
  if (U_SUCCESS(nfc().error)) return {};
  return failed(fmt::format("ICU cannot normalise text: {}", u_errorName(nfc().error)));
}

std::string to_nfc(std::string_view text) {
  if (std::none_of(text.begin(), text.end(), may_change)) return std::string(text);
  const std::string ordered = with_marks_in_order(text);
  WIDEEP_CHECK_LE(ordered.size(), static_cast<size_t>(INT32_MAX));
  std::string out;
  out.reserve(ordered.size());
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode error = U_ZERO_ERROR;
  nfc().normalizer->normalizeUTF8(
      0, icu::StringPiece(ordered.data(), static_cast<int32_t>(ordered.size())), sink, nullptr,
      error);
  WIDEEP_CHECK(U_SUCCESS(error));
  return out;
}

}  // namespace wideep::tokenizer
