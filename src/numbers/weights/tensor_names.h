// SPDX-License-Identifier: Apache-2.0
//
// How the names of a family's published files differ from the names that the model asks for: a list
// of rules, which a family fills and NamedTensors applies.
//
// The model asks for canonical names, those of Qwen3-MoE and DeepSeek-V3 in transformers, such as
// "model.layers.3.mlp.experts.7.gate_proj.weight". A rule replaces path parts wherever they stand
// in a name; what stands before and after stays as it is:
//
//   names.rename("mlp.experts.*.gate_proj", "block_sparse_moe.experts.*.w1");
//   names.rename("mlp", "feed_forward");
//
// A part is what stands between dots, and "*" is a number. Several rules may match a name: they are
// tried in order, and the first published name that the files have is used. After the rules the
// canonical name itself is tried, and at last the fused experts of transformers 5. So an
// alternative is one more rule.
//
// The published tensor may contain the asked one as a part of itself (TensorPart). All of it holds
// for every tensor of a module: weight, bias, codes and scales.
//
// Thread safety: plain values; the functions are pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wideep::weights {

// Where an asked matrix [n, k] (or its bias [n]) lies in a published one. If the published tensor
// is that of all experts, the part lies in the matrix of one expert.
struct TensorPart {
  enum class Rows {
    kAll,         // [n, k]
    kFirstHalf,   // of [2 n, k]: rows 0 to n
    kSecondHalf,  // of [2 n, k]: rows n to 2 n
    kEven,        // of [2 n, k]: rows 0, 2, 4, …
    kOdd,         // of [2 n, k]: rows 1, 3, 5, …
    kRange,       // of [total, k]: rows first to first + n
  };
  Rows rows = Rows::kAll;
  // The file holds the matrix transposed, [k, n] or [k, 2 n]. A bias has no columns, so that it is
  // never transposed.
  bool transposed = false;
  int first = 0, total = 0;  // kRange
  bool operator==(const TensorPart&) const = default;
};

// How gate and up of experts share the rows of one tensor.
enum class GateUp { kHalves, kAlternating };

// A tensor of the files that may hold an asked one.
struct PublishedTensor {
  std::string name;
  TensorPart part = {};
  std::optional<int> expert = {};  // the index in the first dimension
  bool is_whole() const { return part == TensorPart{} && !expert; }
};

class TensorNames {
 public:
  // `canonical` is called `published`, or is a part of it. "*" in `published` stands for the
  // numbers of `canonical`, in order. With one "*" less, the tensor is that of all experts: the
  // last number counts its first dimension. REQUIRES: as many "*" as in `canonical`, or one less.
  TensorNames& rename(std::string_view canonical, std::string_view published, TensorPart part = {});

  // <mlp>.gate_proj and <mlp>.up_proj are the halves of the rows of one matrix, <mlp>.down_proj is
  // called otherwise.
  TensorNames& fuse_mlp(const std::string& mlp, const std::string& gate_up,
                        const std::string& down);
  // The same for mlp.experts.*: one tensor holds all experts. transposed: the files hold
  // [experts, hidden, 2 · intermediate] and [experts, intermediate, hidden].
  TensorNames& fuse_experts(const std::string& gate_up, const std::string& down,
                            GateUp rows = GateUp::kHalves, bool transposed = false);

  // Names that begin with `canonical` begin with `published` in files that have such names, as
  // those of a model around the text model do: prefix("model.", "model.language_model."). The first
  // prefix that the files have is used.
  TensorNames& prefix(std::string canonical, std::string published);

  using Prefix = std::pair<std::string, std::string>;  // canonical, published
  const std::vector<Prefix>& prefixes() const { return prefixes_; }

  // The tensors that may hold `name`, in the order in which they are tried; never empty. Without
  // prefixes.
  std::vector<PublishedTensor> published(std::string_view name) const;

 private:
  struct Rule {
    std::vector<std::string> canonical;
    std::vector<std::string> published;
    TensorPart part;
    bool all_experts = false;  // one "*" less in `published`
  };
  static const std::vector<Rule>& fused_by_default();
  // Appends the published tensors of the rule if it matches.
  static void apply(const Rule& rule, const std::vector<std::string_view>& parts,
                    std::vector<PublishedTensor>* out);

  std::vector<Rule> rules_;
  std::vector<Prefix> prefixes_;
};

}  // namespace wideep::weights
