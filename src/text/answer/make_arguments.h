// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "answer/arguments.h"

namespace wideep::answer {

// The reader of the arguments that a format writes. The format and the tool outlive it.
std::unique_ptr<Arguments> make_arguments(const CallFormat& format, const Tool& tool);

}  // namespace wideep::answer
