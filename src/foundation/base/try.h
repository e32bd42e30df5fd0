// SPDX-License-Identifier: Apache-2.0
//
// Return early with the Status of a step that failed.
//
//   WIDEEP_TRY(check_header(bytes));                       // Status
//   WIDEEP_TRY_ASSIGN(Config config, read_config(path));   // Result<Config>
#pragma once

#include "wideep/status.h"

#define WIDEEP_TRY(expression)                                          \
  do {                                                                  \
    if (::wideep::Status try_status = (expression); !try_status.ok()) { \
      return try_status;                                                \
    }                                                                   \
  } while (false)

#define WIDEEP_TRY_ASSIGN(declaration, expression) \
  WIDEEP_TRY_ASSIGN_(declaration, expression, WIDEEP_TRY_NAME_(__LINE__))
#define WIDEEP_TRY_NAME_(line) WIDEEP_TRY_NAME2_(line)
#define WIDEEP_TRY_NAME2_(line) try_result_##line
#define WIDEEP_TRY_ASSIGN_(declaration, expression, name) \
  auto name = (expression);                               \
  if (!name.ok()) return name.status();                   \
  declaration = std::move(name).value()
