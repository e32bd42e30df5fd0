// SPDX-License-Identifier: Apache-2.0
//
// Walking the tree of a tokenizer.json: objects, most of them with a "type", some with lists of
// further ones. Complains about what wideep does not know instead of passing over it.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "formats/complaint.h"
#include "formats/json.h"

namespace wideep::tokenizer {

// Not thread safe (the complaint is shared); valid as long as the JSON value and the complaint.
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

  // The object at `key`, the objects of the list at `key`. Complains and returns an empty one, or
  // none, where there is something else.
  Component child(std::string_view key) const;
  std::vector<Component> children(std::string_view key) const;

  // Complains about a key that is not among these.
  void allow_keys(std::initializer_list<std::string_view> keys) const;

  // Complains "<key>: <value> is not supported; expected <expected>" unless the condition holds.
  void expect(bool condition, std::string_view key, std::string_view expected) const;

  // Complains about the component as a whole.
  void complain(std::string_view what) const { complaint_->report(path_, what); }
  void complain_at(std::string_view key, std::string_view what) const {
    object_.complain(key, what);
  }

  // The first complaint of the whole document.
  const Status& status() const { return complaint_->status(); }
  bool ok() const { return status().ok(); }

 private:
  std::string path_of(std::string_view key) const;

  formats::JsonObject object_;
  std::string path_;
  formats::Complaint* complaint_;
};

}  // namespace wideep::tokenizer
