// SPDX-License-Identifier: Apache-2.0
//
// The reader for a format. Thread safety: a pure function.
#pragma once

#include <memory>

#include "answer/answer_reader.h"

namespace wideep::answer {

// The settings outlive it.
std::unique_ptr<AnswerReader> make_answer_reader(const AnswerSettings& settings);

}  // namespace wideep::answer
