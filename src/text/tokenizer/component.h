// SPDX-License-Identifier: Apache-2.0
//
// An object in the tree of a tokenizer.json. Most objects have a "type", some contain lists of
// further objects. Everything that wideep does not support is reported as an error, never ignored.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "formats/complaint.h"
#include "formats/json.h"

namespace wideep::tokenizer {

// Not thread safe, because all components of a document share its Complaint. Valid as long as the
// JSON value and the Complaint.
class Component {
 public:
  // `path` leads to the value ("pre_tokenizer.pretokenizers[0]"), "" to the root.
  // REQUIRES: `value` is an object.
  Component(const nlohmann::json* value, std::string path, formats::Complaint* complaint)
      : object_(value, path, complaint), path_(std::move(path)), complaint_(complaint) {}

  // The accessors of formats::JsonObject.
  const formats::JsonObject& object() const { return object_; }
  const nlohmann::json& raw() const { return object_.raw(); }

  std::string type() const { return object_.string("type"); }
  bool has(std::string_view key) const { return object_.has(key); }

  // The object at `key`; the objects of the list at `key`. Another type is an error; the result is
  // then empty.
  Component child(std::string_view key) const;
  std::vector<Component> children(std::string_view key) const;

  // Reports a key of this object that is not one of `keys`.
  void allow_keys(std::initializer_list<std::string_view> keys) const;

  // Unless the condition holds, reports "<key>: <value> is not supported; expected <expected>".
  void expect(bool condition, std::string_view key, std::string_view expected) const;

  // Report an error of the caller's about the whole object, or about one of its keys.
  void complain(std::string_view what) const { complaint_->report(path_, what); }
  void complain_at(std::string_view key, std::string_view what) const {
    object_.complain(key, what);
  }

  // The first error of the whole document.
  const Status& status() const { return complaint_->status(); }
  bool ok() const { return status().ok(); }

 private:
  std::string path_of(std::string_view key) const;

  formats::JsonObject object_;
  std::string path_;
  formats::Complaint* complaint_;
};

}  // namespace wideep::tokenizer
