// SPDX-License-Identifier: Apache-2.0
//
// Raises the library's errors as Python exceptions: invalid input as ValueError, a deadline as
// TimeoutError, any other failure as RuntimeError.
//
// Thread safety: with or without the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>
#include <utility>

#include "wideep/status.h"

namespace wideep::python {

inline void raise_unless_ok(const Status& status) {
  if (status.ok()) return;
  if (status.code() == StatusCode::kInvalidInput) {
    throw nanobind::value_error(status.message().c_str());
  }
  if (status.code() == StatusCode::kDeadlineExceeded) {
    // The C API needs the lock; nanobind sets the other exceptions itself, when it has the lock
    // again.
    const nanobind::gil_scoped_acquire lock;
    PyErr_SetString(PyExc_TimeoutError, status.message().c_str());
    throw nanobind::python_error();
  }
  throw std::runtime_error(status.message());
}

template <typename T>
T value_or_raise(Result<T> result) {
  raise_unless_ok(result.status());
  return std::move(result).value();
}

}  // namespace wideep::python
