// SPDX-License-Identifier: Apache-2.0
//
// A rule and a name are lists of path parts, and a rule matches where its parts stand in the name,
// one after another: comparing parts and not text keeps "mlp" from matching inside "shared_mlp".
// The numbers that "*" has met are put into the published path in order; the one that is left
// over, if the tensor is that of all experts, is the expert.
#include "weights/tensor_names.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace wideep::weights {
namespace {

constexpr std::string_view kNumber = "*";

template <typename Part>
std::vector<Part> split(std::string_view path) {
  std::vector<Part> parts;
  while (true) {
    const size_t dot = path.find('.');
    parts.emplace_back(path.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    path.remove_prefix(dot + 1);
  }
}

// Layers and experts are counted in far less than ten digits.
bool is_number(std::string_view part) {
  return !part.empty() && part.size() < 10 &&
         std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void append(std::string_view part, std::string* path) {
  if (!path->empty()) *path += '.';
  *path += part;
}

// The published names of a module's tensor; tail: what follows the module, as ".weight". The fused
// experts of transformers are parameters, not modules: their names have "_bias" and "_scale_inv"
// for ".bias" and ".weight_scale_inv", and nothing for ".weight".
std::vector<std::string> with_tail(const std::string& module, std::string_view tail,
                                   bool all_experts) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> names = {module + std::string(tail)};
  if (!all_experts) return names;
  if (tail.starts_with(kWeight)) {
    names.push_back(module + std::string(tail.substr(kWeight.size())));
  } else if (!tail.empty()) {
    names.push_back(module + "_" + std::string(tail.substr(1)));
  }
  return names;
}

TensorPart half(bool second, GateUp rows, bool transposed) {
  using Rows = TensorPart::Rows;
  if (rows == GateUp::kHalves) return {second ? Rows::kSecondHalf : Rows::kFirstHalf, transposed};
  return {second ? Rows::kOdd : Rows::kEven, transposed};
}

}  // namespace

TensorNames& TensorNames::rename(std::string_view canonical, std::string_view published,
                                 TensorPart part) {
  const auto numbers = [](const std::vector<std::string>& path) {
    return std::count(path.begin(), path.end(), kNumber);
  };
  Rule rule{split<std::string>(canonical), split<std::string>(published), part};
  rule.all_experts = numbers(rule.published) + 1 == numbers(rule.canonical);
  WIDEEP_CHECK(rule.all_experts || numbers(rule.published) == numbers(rule.canonical));
  rules_.push_back(std::move(rule));
  return *this;
}

TensorNames& TensorNames::fuse_mlp(const std::string& mlp, const std::string& gate_up,
                                   const std::string& down) {
  rename(mlp + ".gate_proj", gate_up, half(false, GateUp::kHalves, false));
  rename(mlp + ".up_proj", gate_up, half(true, GateUp::kHalves, false));
  return rename(mlp + ".down_proj", down);
}

TensorNames& TensorNames::fuse_experts(const std::string& gate_up, const std::string& down,
                                       GateUp rows, bool transposed) {
  rename("mlp.experts.*.gate_proj", gate_up, half(false, rows, transposed));
  rename("mlp.experts.*.up_proj", gate_up, half(true, rows, transposed));
  return rename("mlp.experts.*.down_proj", down, {TensorPart::Rows::kAll, transposed});
}

TensorNames& TensorNames::prefix(std::string canonical, std::string published) {
  prefixes_.emplace_back(std::move(canonical), std::move(published));
  return *this;
}

// The layout in which transformers 5 holds the experts in memory: every family may be saved in it.
const std::vector<TensorNames::Rule>& TensorNames::fused_by_default() {
  static const std::vector<Rule> rules =
      TensorNames().fuse_experts("mlp.experts.gate_up_proj", "mlp.experts.down_proj").rules_;
  return rules;
}

void TensorNames::apply(const Rule& rule, const std::vector<std::string_view>& parts,
                        std::vector<PublishedTensor>* out) {
  const auto same = [](std::string_view part, const std::string& wanted) {
    return wanted == kNumber ? is_number(part) : part == wanted;
  };
  const auto begin =
      std::search(parts.begin(), parts.end(), rule.canonical.begin(), rule.canonical.end(), same);
  if (begin == parts.end()) return;
  const auto end = begin + static_cast<std::ptrdiff_t>(rule.canonical.size());
  std::vector<std::string_view> numbers;
  for (size_t i = 0; i < rule.canonical.size(); ++i) {
    if (rule.canonical[i] == kNumber) numbers.push_back(begin[static_cast<std::ptrdiff_t>(i)]);
  }
  std::string module, tail;
  for (auto part = parts.begin(); part != begin; ++part) append(*part, &module);
  auto number = numbers.begin();
  for (const std::string& part : rule.published) {
    append(part == kNumber ? *number++ : std::string_view(part), &module);
  }
  for (auto part = end; part != parts.end(); ++part) tail.append(".").append(*part);
  std::optional<int> expert;
  if (rule.all_experts) {
    const std::string_view digits = numbers.back();
    std::from_chars(digits.data(), digits.data() + digits.size(), expert.emplace());
  }
  for (std::string& name : with_tail(module, tail, rule.all_experts)) {
    out->push_back({std::move(name), rule.part, expert});
  }
}

std::vector<PublishedTensor> TensorNames::published(std::string_view name) const {
  const auto parts = split<std::string_view>(name);
  std::vector<PublishedTensor> out;
  for (const Rule& rule : rules_) apply(rule, parts, &out);
  out.push_back({std::string(name)});
  for (const Rule& rule : fused_by_default()) apply(rule, parts, &out);
  return out;
}

}  // namespace wideep::weights
