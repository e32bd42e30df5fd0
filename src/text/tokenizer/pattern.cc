// SPDX-License-Identifier: Apache-2.0
//
// A pattern is compiled to machine code where PCRE2 can, and each match has a small number of steps
// for free. Only a match that needs more is repeated by find_slowly(), from one character after the
// other with growing limits, which are charged to the scratch. So usual texts pay nothing for the
// bound, and a text that was made to be slow ends in an error instead of blocking a thread.
#include "tokenizer/pattern.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "base/check.h"
#include "base/printable.h"
#include "base/try.h"
#include "tokenizer/pattern_syntax.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

// Steps of PCRE2 that a match may take before they are counted.
constexpr uint32_t kFreeSteps = 512;

struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

std::string pcre2_message(int error) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

MatchScratch::MatchScratch()
    : context_(pcre2_match_context_create(nullptr)), data_(pcre2_match_data_create(1, nullptr)) {
  WIDEEP_CHECK(context_ != nullptr);
  WIDEEP_CHECK(data_ != nullptr);
}

bool MatchScratch::spend(uint64_t steps) {
  exceeds_ |= steps > steps_left_;
  if (!exceeds_) steps_left_ -= steps;
  return !exceeds_;
}

void MatchScratch::reset() {
  steps_left_ = kStepsAtFirst;
  exceeds_ = false;
}

Result<Pattern> Pattern::from_regex(std::string_view regex) {
  WIDEEP_TRY_ASSIGN(const std::string translated, to_pcre2_syntax(regex));
  return compile(translated, regex, PCRE2_UTF | PCRE2_UCP);
}

Result<Pattern> Pattern::from_literal(std::string_view literal) {
  return compile(literal, literal, PCRE2_UTF | PCRE2_LITERAL);
}

Result<Pattern> Pattern::compile(std::string_view pattern, std::string_view in_file,
                                 uint32_t options) {
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // as in Oniguruma, '.' matches all but LF
  int error = 0;
  size_t offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options,
                          &error, &offset, context.get()));
  if (code == nullptr) {
    return invalid_input(fmt::format("the pattern '{}' is invalid: {}",
                                     base::printable(in_file, 200), pcre2_message(error)));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0 || pattern.empty()) {
    return invalid_input(
        fmt::format("the pattern '{}' matches the empty text", base::printable(in_file, 200)));
  }
  // Without JIT support the interpreter finds the same matches, more slowly.
  const bool has_jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
  return Pattern(std::move(code), has_jit ? &pcre2_jit_match : &pcre2_match);
}

// Whether there is a match at or after `start`.
bool Pattern::find(std::string_view text, size_t start, MatchScratch* scratch) const {
  if (scratch->exceeds()) return false;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  pcre2_match_context* const context = scratch->context();
  pcre2_set_match_limit(context, kFreeSteps);
  int found =
      match_(code_.get(), subject, text.size(), start, PCRE2_NO_UTF_CHECK, scratch->get(), context);
  // The machine code has a small stack. The interpreter keeps its state on the heap instead.
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    found = pcre2_match(code_.get(), subject, text.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        scratch->get(), context);
  }
  return found == PCRE2_ERROR_MATCHLIMIT ? find_slowly(text, start, scratch) : found > 0;
}

// The same from one character after the other, because PCRE2 counts from each anew: so the steps
// that are spent are, but for a factor, those that it takes.
bool Pattern::find_slowly(std::string_view text, size_t start, MatchScratch* scratch) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT | PCRE2_ANCHORED;
  while (start < text.size()) {
    for (uint32_t limit = kFreeSteps;; limit *= 2) {
      pcre2_set_match_limit(scratch->context(), limit);
      const int found = pcre2_match(code_.get(), subject, text.size(), start, kOptions,
                                    scratch->get(), scratch->context());
      if (found > 0) return true;
      const bool needs_more = found == PCRE2_ERROR_MATCHLIMIT;
      const bool is_free = limit == kFreeSteps && !needs_more;
      constexpr uint32_t kMaxLimit = uint32_t{1} << 31;
      if (!is_free && (!scratch->spend(limit) || limit == kMaxLimit)) return false;
      if (!needs_more) break;
    }
    start += first_unit(text.substr(start)).bytes;
  }
  return false;
}

void Pattern::find_all(std::string_view text, bool invert, MatchScratch* scratch,
                       std::vector<Stretch>* stretches) const {
  scratch->add_text(text);
  size_t done = 0;
  // Matches are not empty (see compile()), so that each step makes progress.
  while (done < text.size() && find(text, done, scratch)) {
    const size_t* bounds = pcre2_get_ovector_pointer(scratch->get());
    if (bounds[0] > done) stretches->push_back({text.substr(done, bounds[0] - done), invert});
    stretches->push_back({text.substr(bounds[0], bounds[1] - bounds[0]), !invert});
    done = bounds[1];
  }
  if (done < text.size()) stretches->push_back({text.substr(done), invert});
}

void Pattern::split(std::string_view text, MatchScratch* scratch,
                    std::vector<std::string_view>* pieces) const {
  scratch->add_text(text);
  size_t done = 0;
  while (done < text.size() && find(text, done, scratch)) {
    const size_t* bounds = pcre2_get_ovector_pointer(scratch->get());
    if (bounds[0] > done) pieces->push_back(text.substr(done, bounds[0] - done));
    pieces->push_back(text.substr(bounds[0], bounds[1] - bounds[0]));
    done = bounds[1];
  }
  if (done < text.size()) pieces->push_back(text.substr(done));
}

std::string Pattern::replace_all(std::string_view text, std::string_view content,
                                 MatchScratch* scratch) const {
  std::vector<Stretch> stretches;
  find_all(text, false, scratch, &stretches);
  std::string out;
  out.reserve(text.size());
  for (const Stretch& stretch : stretches) out += stretch.matches ? content : stretch.text;
  return out;
}

}  // namespace wideep::tokenizer
