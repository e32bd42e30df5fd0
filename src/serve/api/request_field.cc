// SPDX-License-Identifier: Apache-2.0
#include "api/request_field.h"

namespace wideep::server {

std::string_view text_of(FieldUse use) {
  return use == FieldUse::kHonoured        ? "yes"
         : use == FieldUse::kWithoutEffect ? "no effect"
                                           : "refused";
}

}  // namespace wideep::server
