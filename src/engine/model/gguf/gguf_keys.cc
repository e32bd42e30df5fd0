// SPDX-License-Identifier: Apache-2.0
//
// Every look-up goes through find(), which notes the key: what nobody has asked for at the end is
// named to the user. Values keep their types and wrong ones are passed on, because the reader of
// config.json refuses them with one message for both kinds of files; only integers are cut, so that
// arithmetic on them here cannot overflow.
#include "model/gguf/gguf_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/printable.h"

namespace wideep::model {
namespace {

using tensor_files::GgufValue;
using Json = nlohmann::ordered_json;

Json scalar(const GgufValue& value, size_t i) {
  if (const auto text = value.text(i)) return base::printable(*text);
  if (const auto boolean = value.boolean(i)) return *boolean;
  if (const auto integer = value.integer(i)) return *integer;
  if (value.type() == GgufValue::Type::kU64) return uint64_t{1} << 63;  // too large for any key
  const double number = value.number(i).value_or(0.0);
  if (value.type() != GgufValue::Type::kF32 || !std::isfinite(number)) return number;
  const double decimal =
      std::strtod(fmt::format("{}", static_cast<float>(number)).c_str(), nullptr);
  // Integral floats (10000.0) are integers to readers of config.json.
  return decimal;
}

}  // namespace

Json to_json(const GgufValue& value) {
  if (!value.is_list()) return scalar(value, 0);
  Json list = Json::array();
  for (size_t i = 0; i < value.size(); ++i) list.push_back(scalar(value, i));
  return list;
}

GgufKeys::GgufKeys(const tensor_files::GgufFiles& files, std::string architecture)
    : files_(files), architecture_(std::move(architecture)) {}

const GgufValue* GgufKeys::find(std::string_view key) const {
  const std::string whole = fmt::format("{}.{}", architecture_, key);
  asked_.insert(whole);
  return files_.first().find(whole);
}

Json GgufKeys::value(std::string_view key) const {
  const GgufValue* found = find(key);
  if (found == nullptr) return nullptr;
  const std::vector<int64_t> list = found->is_list() ? integers(key) : std::vector<int64_t>();
  if (list.empty()) return to_json(*found);
  const int64_t largest = *std::ranges::max_element(list);
  const bool alike =
      std::ranges::all_of(list, [&](int64_t each) { return each == largest || each == 0; });
  return alike ? Json(largest) : to_json(*found);
}

int64_t GgufKeys::integer_or(std::string_view key, int64_t otherwise) const {
  const GgufValue* found = find(key);
  if (found == nullptr || found->is_list()) return otherwise;
  constexpr int64_t kMax = int64_t{1} << 53;
  return std::clamp(found->integer().value_or(otherwise), -kMax, kMax);
}

double GgufKeys::number_or(std::string_view key, double otherwise) const {
  const Json found = value(key);
  return found.is_number() ? found.get<double>() : otherwise;
}

std::vector<int64_t> GgufKeys::integers(std::string_view key) const {
  const GgufValue* found = find(key);
  std::vector<int64_t> list;
  if (found == nullptr || !found->is_list()) return list;
  for (size_t i = 0; i < found->size(); ++i) {
    const auto integer = found->integer(i);
    const auto boolean = found->boolean(i);
    if (!integer && !boolean) return {};
    list.push_back(integer ? *integer : int64_t{*boolean});
  }
  return list;
}

std::vector<double> GgufKeys::numbers(std::string_view key) const {
  const GgufValue* found = find(key);
  std::vector<double> list;
  if (found == nullptr || !found->is_list()) return list;
  for (size_t i = 0; i < found->size(); ++i) {
    const Json number = scalar(*found, i);
    if (!number.is_number()) return {};
    list.push_back(number.get<double>());
  }
  return list;
}

std::string GgufKeys::text_or(std::string_view key, const std::string& otherwise) const {
  const GgufValue* found = find(key);
  if (found == nullptr || found->is_list()) return otherwise;
  return std::string(found->text().value_or(otherwise));
}

const tensor_files::GgufTensor* GgufKeys::tensor(std::string_view name) const {
  for (const tensor_files::GgufFile& file : files_.files()) {
    const auto found = file.tensors().find(name);
    if (found != file.tensors().end()) return &found->second;
  }
  return nullptr;
}

bool GgufKeys::some_layer_has(std::string_view name) const {
  // More layers than any model has are an error of the reader of config.json.
  const int64_t count = std::clamp<int64_t>(num_layers(), 0, 4096);
  for (int64_t layer = 0; layer < count; ++layer) {
    if (has_tensor(fmt::format("blk.{}.{}", layer, name))) return true;
  }
  return false;
}

void GgufKeys::copy(const char* key, std::string_view from) {
  set_origin(key, from);
  if (has(from)) config[key] = value(from);
}

void GgufKeys::copy_or(const char* key, std::string_view from, const Json& otherwise) {
  set_origin(key, from);
  config[key] = has(from) ? value(from) : otherwise;
}

void GgufKeys::rename(const char* from, const char* to) {
  config[to] = config[from];
  config.erase(from);
  const auto origin = origins_.extract(from);
  if (!origin.empty()) origins_.insert_or_assign(to, origin.mapped());
}

void GgufKeys::set_origin(const std::string& key, std::string_view from) {
  origins_.insert_or_assign(key, fmt::format("{}.{}", architecture_, from));
}

void GgufKeys::complain(std::string_view key, std::string_view what) {
  if (complaint_.empty()) complaint_ = fmt::format("{}.{}: {}", architecture_, key, what);
}

void GgufKeys::require(std::string_view key, const Json& expected) {
  if (!has(key) || value(key) == expected) return;
  complain(key, fmt::format("expected {}, or none, found {}; wideep computes no other in this "
                            "architecture",
                            expected.dump(), base::printable(value(key).dump(), 60)));
}

int64_t GgufKeys::num_layers() const {
  return integer_or("block_count", 0) - std::max<int64_t>(0, integer_or("nextn_predict_layers", 0));
}

int64_t GgufKeys::num_predicting() const {
  const int64_t count = integer_or("nextn_predict_layers", 0);
  // A file may name them and leave them out.
  const std::string first = fmt::format("blk.{}.nextn.eh_proj.weight", num_layers());
  return count > 0 && has_tensor(first) ? count : 0;
}

std::vector<std::string> GgufKeys::unasked() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : files_.first().metadata()) {
    if (key.starts_with(architecture_ + ".") && !asked_.contains(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace wideep::model
