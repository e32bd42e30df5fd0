// SPDX-License-Identifier: Apache-2.0
#include "answer/make_arguments.h"

#include "answer/bare_key_arguments.h"
#include "answer/element_arguments.h"
#include "answer/tagged_arguments.h"

namespace wideep::answer {

std::unique_ptr<Arguments> make_arguments(const CallFormat& format, const Tool& tool) {
  switch (format.form) {
    case ArgumentsForm::kTags:
      return std::make_unique<TaggedArguments>(format, tool);
    case ArgumentsForm::kBareKeys:
      return std::make_unique<BareKeyArguments>(format, tool);
    case ArgumentsForm::kElements:
      return std::make_unique<ElementArguments>(format, tool);
    case ArgumentsForm::kPython:
      return std::make_unique<PythonArguments>();
    default:
      return std::make_unique<JsonArguments>(format.call_end);
  }
}

}  // namespace wideep::answer
