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
#include "tokenizer/char_kinds.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

// What the steps of a form need. The sets are of characters that the form's tables know.
struct Form {
  UErrorCode error = U_ZERO_ERROR;
  icu::UnicodeSet old_enough;                        // characters of Unicode 9.0
  icu::UnicodeSet marks;                             // those whose decomposition begins with a mark
  const icu::Normalizer2* all = nullptr;             // the form for all characters that ICU knows
  std::unique_ptr<const icu::Normalizer2> filtered;  // the form for old_enough
  char min;                                          // no smaller byte changes

  Form(UnicodeForm form, UnicodeTables tables) {
    const char* known = tables == UnicodeTables::kUnicode9 ? "[:Age=9.0:]" : "[:Any:]";
    old_enough.applyPattern(icu::UnicodeString::fromUTF8(known), error);
    old_enough.freeze();
    marks.applyPattern(icu::UnicodeString::fromUTF8(fmt::format("[{}-[:lccc=0:]]", known)), error);
    const bool is_compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
    // The only characters that become a mark with their compatibility decomposition alone.
    if (is_compatible) marks.add(UChar32{0xFF9E}, UChar32{0xFF9F});
    marks.freeze();
    switch (form) {
      case UnicodeForm::kNfc:
        all = icu::Normalizer2::getNFCInstance(error);
        break;
      case UnicodeForm::kNfd:
        all = icu::Normalizer2::getNFDInstance(error);
        break;
      case UnicodeForm::kNfkc:
        all = icu::Normalizer2::getNFKCInstance(error);
        break;
      case UnicodeForm::kNfkd:
        all = icu::Normalizer2::getNFKDInstance(error);
        break;
    }
    if (U_SUCCESS(error)) {
      filtered = std::make_unique<icu::FilteredNormalizer2>(*all, old_enough);
    }
    // U+0300, the first code point that NFC can change or combine, starts with the byte 0xCC; the
    // other forms change U+00A0 and more.
    min = static_cast<char>(form == UnicodeForm::kNfc ? 0xCC : 0xC2);
  }
};

const Form& form_of(UnicodeForm form, UnicodeTables tables) {
  static const Form unicode9[] = {
      {UnicodeForm::kNfc, UnicodeTables::kUnicode9},
      {UnicodeForm::kNfd, UnicodeTables::kUnicode9},
      {UnicodeForm::kNfkc, UnicodeTables::kUnicode9},
      {UnicodeForm::kNfkd, UnicodeTables::kUnicode9},
  };
  static const Form newest[] = {
      {UnicodeForm::kNfc, UnicodeTables::kNewest},
      {UnicodeForm::kNfd, UnicodeTables::kNewest},
      {UnicodeForm::kNfkc, UnicodeTables::kNewest},
      {UnicodeForm::kNfkd, UnicodeTables::kNewest},
  };
  const auto index = static_cast<size_t>(form);
  return tables == UnicodeTables::kUnicode9 ? unicode9[index] : newest[index];
}

// Runs of marks above this length are sorted before ICU sees them.
constexpr size_t kLongRunBytes = 64;

// Combining class → the marks of that class, in the order of the text.
using Marks = std::map<uint8_t, std::string>;

// Adds the decomposition, because U+0F73 and a few others are two marks of different classes.
void add_decomposed(const icu::Normalizer2& all, UChar32 code_point, Marks* marks) {
  icu::UnicodeString parts;
  if (!all.getDecomposition(code_point, parts)) parts = code_point;
  for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1)) {
    const UChar32 part = parts.char32At(i);
    append_utf8(static_cast<char32_t>(part), &(*marks)[all.getCombiningClass(part)]);
  }
}

// Appends a run of marks in Unicode's canonical order: by combining class, and within a class in
// the order of the text.
void append_in_order(const Form& form, std::string_view run, std::string* out) {
  Marks marks;
  while (!run.empty()) {
    add_decomposed(*form.all, static_cast<UChar32>(first_code_point(run)), &marks);
    run.remove_prefix(first_unit(run).bytes);
  }
  for (const auto& [combining_class, texts] : marks) *out += texts;
}

// Returns text with the same normal form in which long runs of marks are in order.
std::string with_marks_in_order(const Form& form, std::string_view text) {
  std::string out;
  const auto span = [&](std::string_view rest, USetSpanCondition condition) {
    return static_cast<size_t>(
        form.marks.spanUTF8(rest.data(), static_cast<int32_t>(rest.size()), condition));
  };
  while (!text.empty()) {
    const size_t before = span(text, USET_SPAN_NOT_CONTAINED);
    out += text.substr(0, before);
    text.remove_prefix(before);
    const std::string_view run = text.substr(0, span(text, USET_SPAN_CONTAINED));
    if (run.size() > kLongRunBytes) {
      append_in_order(form, run, &out);
    } else {
      out += run;
    }
    text.remove_prefix(run.size());
  }
  return out;
}

std::string without_ends(std::string_view text, const StripStep& step) {
  while (step.left && !text.empty() && is_white_space(first_code_point(text))) {
    text.remove_prefix(first_unit(text).bytes);
  }
  while (step.right && !text.empty()) {
    const char32_t last = last_code_point(text);
    if (!is_white_space(last)) break;
    text.remove_suffix(last < 0x80 ? 1 : last < 0x800 ? 2 : 3);  // all are below U+10000
  }
  return std::string(text);
}

struct Applier {
  std::string_view text;
  bool* exceeds;

  std::string operator()(const FormStep& step) const {
    return to_form(step.form, step.tables, text);
  }
  std::string operator()(const PrependStep& step) const {
    return text.empty() ? std::string() : step.content + std::string(text);
  }
  std::string operator()(const ReplaceStep& step) const {
    MatchScratch scratch;
    std::string out = step.pattern.replace_all(text, step.content, &scratch);
    if (scratch.exceeds() && exceeds != nullptr) *exceeds = true;
    return out;
  }
  std::string operator()(const StripStep& step) const { return without_ends(text, step); }
  std::string operator()(const LowercaseStep&) const {
    std::string out;
    for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(first_unit(rest).bytes)) {
      append_lower_case(first_code_point(rest), &out);
    }
    return out;
  }
  std::string operator()(const StripAccentsStep&) const {
    std::string out;
    for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(first_unit(rest).bytes)) {
      const char32_t c = first_code_point(rest);
      if (!is_mark(c)) append_utf8(c, &out);
    }
    return out;
  }
};

}  // namespace

Status check_form_available(UnicodeForm form) {
  for (const UnicodeTables tables : {UnicodeTables::kUnicode9, UnicodeTables::kNewest}) {
    const UErrorCode error = form_of(form, tables).error;
    if (U_FAILURE(error)) {
      return failed(fmt::format("ICU cannot normalise text: {}", u_errorName(error)));
    }
  }
  return {};
}

std::string to_form(UnicodeForm form, UnicodeTables tables, std::string_view text) {
  const Form& with = form_of(form, tables);
  const auto may_change = [&](char byte) {
    return static_cast<unsigned char>(byte) >= static_cast<unsigned char>(with.min);
  };
  if (std::none_of(text.begin(), text.end(), may_change)) return std::string(text);
  const std::string ordered = with_marks_in_order(with, text);
  WIDEEP_CHECK_LE(ordered.size(), static_cast<size_t>(INT32_MAX));
  std::string out;
  out.reserve(ordered.size());
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode error = U_ZERO_ERROR;
  with.filtered->normalizeUTF8(
      0, icu::StringPiece(ordered.data(), static_cast<int32_t>(ordered.size())), sink, nullptr,
      error);
  WIDEEP_CHECK(U_SUCCESS(error));
  return out;
}

std::string to_nfc(std::string_view text) {
  return to_form(UnicodeForm::kNfc, UnicodeTables::kUnicode9, text);
}

std::string Normalizer::apply(std::string_view text, bool* exceeds) const {
  std::string out(text);
  for (const NormalizerStep& step : steps_) out = std::visit(Applier{out, exceeds}, step);
  return out;
}

}  // namespace wideep::tokenizer
