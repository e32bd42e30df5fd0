// SPDX-License-Identifier: Apache-2.0
#include "answer/make_answer_reader.h"

#include "answer/harmony_answer.h"
#include "answer/tagged_answer.h"

namespace wideep::answer {

std::unique_ptr<AnswerReader> make_answer_reader(const AnswerSettings& settings) {
  if (settings.format.is_harmony) return std::make_unique<HarmonyAnswer>(settings);
  return std::make_unique<TaggedAnswer>(settings);
}

}  // namespace wideep::answer
