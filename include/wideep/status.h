// SPDX-License-Identifier: Apache-2.0
//
// How wideep reports what the caller or the world did wrong.
//
// A function that can fail for such a reason returns Status (no value) or Result<T> (a value or
// the Status that explains its absence). Bugs inside wideep are not reported this way: they stop
// the process with both compared values (WIDEEP_CHECK_EQ and its kin). No exception leaves a
// public function.
//
// A message is one line: what went wrong, where (file, key or tensor), what was expected, what was
// found, and, where it is not obvious, what to do.
//
// Thread safety: as a plain value; different objects may be used from different threads.
//
//   Result<Placement> placement = read_placement("moe_load_balancer.yaml");
//   if (!placement.ok()) return placement.status();
//   use(*placement);
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace wideep {

enum class StatusCode {
  kOk = 0,
  kInvalidInput,      // the caller's data or options are wrong          exit code 2
  kFailed,            // the world failed: disk full, peer died, ...      exit code 1
  kDeadlineExceeded,  // a wait ended without what it waited for          exit code 1
  kInterrupted,       // the user asked to stop (SIGINT, SIGTERM)         exit code 130
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The exit code of a program that ends because of this status: 0, 1, 2 or 130.
  int exit_code() const {
    switch (code_) {
      case StatusCode::kOk:
        return 0;
      case StatusCode::kInvalidInput:
        return 2;
      case StatusCode::kInterrupted:
        return 130;
      default:
        return 1;
    }
  }

  // The same status with "<where>: " in front of the message; ok stays ok.
  Status at(const std::string& where) const {
    return ok() ? *this : Status(code_, where + ": " + message_);
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status invalid_input(std::string message) {
  return {StatusCode::kInvalidInput, std::move(message)};
}
inline Status failed(std::string message) { return {StatusCode::kFailed, std::move(message)}; }
inline Status deadline_exceeded(std::string message) {
  return {StatusCode::kDeadlineExceeded, std::move(message)};
}
inline Status interrupted(std::string message) {
  return {StatusCode::kInterrupted, std::move(message)};
}

// A T, or the Status that explains why there is none.
// REQUIRES: a Result made from a Status holds one that is not ok; value() and the operators are
// called only after ok().
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace wideep
