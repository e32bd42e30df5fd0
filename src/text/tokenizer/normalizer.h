// SPDX-License-Identifier: Apache-2.0
//
// Changes a text before it is cut into words. The tokenizers library has the tables of Unicode 9.0
// for the four normalisation forms: newer characters are not changed or moved. This matters only
// for newer combining marks, which are not sorted, and for a few newer characters with
// decompositions.
//
// Thread safety: functions are pure, a Normalizer is immutable after reading.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/pattern.h"
#include "wideep/status.h"

namespace wideep::tokenizer {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };
// kUnicode9: of the tokenizers library. kNewest: all that ICU knows, as Python's unicodedata.
enum class UnicodeTables { kUnicode9, kNewest };

// Checks that ICU has the data that to_form() needs. Errors (failed): ICU's data is missing.
Status check_form_available(UnicodeForm form);

// Takes linear time, whatever the order of the combining marks.
// REQUIRES: valid UTF-8, below 2 GiB; check_form_available() returned ok. Thread safe.
std::string to_form(UnicodeForm form, UnicodeTables tables, std::string_view text);

// NFC by the tables of Unicode 9.0. REQUIRES: as to_form().
std::string to_nfc(std::string_view text);

struct FormStep {
  UnicodeForm form;
  UnicodeTables tables = UnicodeTables::kUnicode9;
};
struct PrependStep {  // before a text that is not empty
  std::string content;
};
struct ReplaceStep {
  Pattern pattern;
  std::string content;
};
struct StripStep {  // white space at the ends
  bool left;
  bool right;
};
struct LowercaseStep {};     // character by character
struct StripAccentsStep {};  // leaves out combining marks
using NormalizerStep =
    std::variant<FormStep, PrependStep, ReplaceStep, StripStep, LowercaseStep, StripAccentsStep>;

class Normalizer {
 public:
  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }

  // REQUIRES: valid UTF-8. The result is that, too. *exceeds becomes true where a pattern takes too
  // much work (MatchScratch).
  std::string apply(std::string_view text, bool* exceeds = nullptr) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace wideep::tokenizer
