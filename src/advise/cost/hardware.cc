// SPDX-License-Identifier: Apache-2.0
//
// Reader and writer stand side by side: what hardware_text() writes, parse_hardware() reads to an
// equal value, so a key needs a line in both (hardware_test.cc). Values that are possible alone but
// not together are judged at the end, in check(). Shipped machines are the members of one YAML text
// in the program, and go through the same reader as a user's file.
#include "cost/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "base/spelling.h"
#include "base/try.h"
#include "cost/shipped_hardware.h"
#include "formats/yaml.h"

namespace wideep::cost {
namespace {

using formats::NumberRange;
using formats::YamlMap;
using kernels::WeightFormat;

constexpr NumberRange kSeconds{.min = 0.0, .max = 1.0};
constexpr NumberRange kRate{.min = 1.0, .max = 1e18};
constexpr NumberRange kShare{.min = 1e-3, .max = 1e3};

Link read_link(YamlMap& map) {
  return {.latency = map.number("latency", kSeconds), .bandwidth = map.number("bandwidth", kRate)};
}

Link read_network(YamlMap& root) {
  if (!root.has("network")) return {};
  YamlMap map = root.map("network");
  Link link = read_link(map);
  link.message = map.number_or("message", 0.0, kSeconds);
  map.refuse_unknown_keys();
  return link;
}

std::map<WeightFormat, double> read_peak(YamlMap map) {
  std::map<WeightFormat, double> peak;
  for (const std::string& key : map.keys()) {
    const double rate = map.number(key, kRate);
    if (const auto format = kernels::weight_format_from_name(key)) {
      peak[*format] = rate;
    } else {
      map.complain(key, "is no format of weights");
    }
  }
  if (peak.empty()) map.complain("", "expected the peak of at least one format of weights");
  return peak;
}

ProductKernel read_product(YamlMap map) {
  const ProductKernel kernel{
      .overhead = map.number("overhead", kSeconds),
      .memory = map.number("memory", kShare),
      .compute = map.number("compute", kShare),
      .row_traffic = map.number("row_traffic", {.min = 0.0, .max = 1e3}),
      .activation = map.number_or("activation", 0.0, {.min = 0.0, .max = 1e4}),
      .matrix = map.number_or("matrix", 0.0, kSeconds),
      .tile = static_cast<int>(map.integer("tile", {.min = 1, .max = 4096})),
  };
  map.refuse_unknown_keys();
  return kernel;
}

// {bytes: bytes per second, …}
std::map<double, double> read_curve(YamlMap map) {
  std::map<double, double> curve;
  for (const std::string& key : map.keys()) {
    char* end = nullptr;
    const double bytes = std::strtod(key.c_str(), &end);
    if (*end != '\0' || !kRate.contains(bytes)) map.complain(key, "expected a number of bytes");
    curve[bytes] = map.number(key, kRate);
  }
  return curve;
}

AttentionKernel read_attention(YamlMap map) {
  const AttentionKernel kernel{
      .overhead = map.number("overhead", kSeconds),
      .memory = map.number("memory", kShare),
      .compute = map.number("compute", kShare),
  };
  map.refuse_unknown_keys();
  return kernel;
}

std::map<WeightFormat, FormatKernels> read_formats(YamlMap map) {
  std::map<WeightFormat, FormatKernels> formats;
  for (const std::string& key : map.keys()) {
    YamlMap kernels = map.map(key);
    const FormatKernels found{.experts = read_product(kernels.map("experts")),
                              .dense = read_product(kernels.map("dense"))};
    kernels.refuse_unknown_keys();
    if (const auto format = kernels::weight_format_from_name(key)) {
      formats[*format] = found;
    } else {
      map.complain(key, "is no format of weights");
    }
  }
  return formats;
}

ExchangeKernel read_exchange(YamlMap map) {
  const ExchangeKernel kernel{
      .overhead = map.number("overhead", kSeconds),
      .latency = map.number("latency", {.min = 0.0, .max = 1e3}),
      .link = map.number("link", kShare),
      .serial = map.number("serial", kSeconds),
  };
  map.refuse_unknown_keys();
  return kernel;
}

KernelErrors read_errors(YamlMap map) {
  const KernelErrors errors{
      .experts = map.number("experts", {.min = 0.0, .max = 10.0}),
      .exchange = map.number("exchange", {.min = 0.0, .max = 10.0}),
  };
  map.refuse_unknown_keys();
  return errors;
}

CalibratedRange read_range(YamlMap map) {
  CalibratedRange range;
  range.min_hidden = map.number("hidden_from", kRate);
  range.max_hidden = map.number("hidden_to", kRate);
  if (range.min_hidden > range.max_hidden) map.complain("hidden_to", "is below hidden_from");
  range.max_tokens = map.number("tokens", kRate);
  range.max_ranks = static_cast<int>(map.integer("ranks", {.min = 1, .max = 1 << 16}));
  std::istringstream names(map.string_or("formats", ""));
  for (std::string name; names >> name;) {
    if (const auto format = kernels::weight_format_from_name(name)) {
      range.formats.push_back(*format);
    } else {
      map.complain("formats", fmt::format("'{}' is no format of weights", name));
    }
  }
  if (range.formats.empty()) map.complain("formats", "expected names of formats, as in: bf16 fp8");
  map.refuse_unknown_keys();
  return range;
}

void check_formats(YamlMap& root, std::string_view key,
                   const std::map<WeightFormat, FormatKernels>& formats, const Hardware& hardware) {
  for (const auto& [format, kernels] : formats) {
    if (hardware.supports(format)) continue;
    root.map("kernels").complain(key, fmt::format("has constants of {}, which has no peak",
                                                  kernels::weight_format_name(format)));
  }
}

void check(YamlMap& root, const Hardware& hardware) {
  if (hardware.node_link_ranks < hardware.devices_per_node) {
    root.complain("node_link",
                  fmt::format("joins {} ranks, but a node has {} devices (devices_per_node)",
                              hardware.node_link_ranks, hardware.devices_per_node));
  }
  if (hardware.host_link_ranks > hardware.devices_per_node) {
    root.complain("host_link",
                  fmt::format("is shared by {} ranks, but a node has {} devices (devices_per_node)",
                              hardware.host_link_ranks, hardware.devices_per_node));
  }
  if (hardware.nodes > 1 && hardware.network.bandwidth <= 0.0) {
    root.complain("nodes", fmt::format("{} of them need a network between them, as in: network: "
                                       "{{latency: 50e-6, bandwidth: 1.25e9}}",
                                       hardware.nodes));
  }
  if (hardware.network.message > 0.0 && !hardware.divisible) {
    root.complain("network", "has seconds of a core for a message, but its devices are no cores");
  }
  if (hardware.network.bandwidth > hardware.node_link.bandwidth) {
    root.complain("network", "is faster than node_link; exchange the two, or leave one out");
  }
  if (hardware.node_link.bandwidth > std::max(hardware.memory_bandwidth, hardware.node_bandwidth)) {
    root.complain("node_link", "is faster than the memory that it reads");
  }
  check_formats(root, "formats", hardware.of_formats, hardware);
  check_formats(root, "formats_of_all_cores", hardware.of_all_cores, hardware);
}

Hardware read(YamlMap& root) {
  Hardware hardware;
  hardware.name = root.string_or("name", "");
  if (hardware.name.empty()) root.complain("name", "missing; expected a name");
  hardware.device = root.string_or("device", hardware.name);
  const formats::IntegerRange count{.min = 1, .max = 1 << 16};
  hardware.devices_per_node = static_cast<int>(root.integer("devices_per_node", count));
  hardware.processors = static_cast<int>(root.integer("processors", count));
  YamlMap memory = root.map("memory");
  hardware.memory_bytes = memory.number("bytes", kRate);
  hardware.memory_bandwidth = memory.number("bandwidth", kRate);
  hardware.divisible = root.boolean_or("divisible", false);
  if (hardware.divisible) {
    hardware.node_bandwidth = memory.number("node_bandwidth", kRate);
    hardware.nodes = static_cast<int>(root.integer_or("nodes", 1, count));
    if (root.has("disk")) {
      YamlMap disk = root.map("disk");
      hardware.disk_bandwidth = disk.number("bandwidth", kRate);
      disk.refuse_unknown_keys();
    }
    if (memory.has("cached")) hardware.cached_bandwidth = read_curve(memory.map("cached"));
    if (memory.has("cached_node")) {
      hardware.cached_node_bandwidth = read_curve(memory.map("cached_node"));
    }
  }
  memory.refuse_unknown_keys();
  hardware.peak = read_peak(root.map("peak"));
  YamlMap node = root.map("node_link");
  hardware.node_link = read_link(node);
  hardware.node_link_ranks = static_cast<int>(node.integer("ranks", count));
  node.refuse_unknown_keys();
  hardware.network = read_network(root);
  if (root.has("host_link")) {
    YamlMap host = root.map("host_link");
    hardware.host_link = read_link(host);
    hardware.host_link_ranks = static_cast<int>(host.integer_or("ranks", 1, count));
    host.refuse_unknown_keys();
  }
  YamlMap kernels = root.map("kernels");
  hardware.experts = read_product(kernels.map("experts"));
  hardware.dense = read_product(kernels.map("dense"));
  if (kernels.has("formats")) hardware.of_formats = read_formats(kernels.map("formats"));
  if (kernels.has("formats_of_all_cores")) {
    hardware.of_all_cores = read_formats(kernels.map("formats_of_all_cores"));
  }
  hardware.shared_reads = kernels.number_or("shared_reads", 0.0, {.min = 0.0, .max = 1.0});
  hardware.turns_loss = kernels.number_or("turns_loss", 0.0, {.min = 0.0, .max = 10.0});
  hardware.attention = read_attention(kernels.map("attention"));
  hardware.iteration = kernels.number("iteration", kSeconds);
  hardware.calibrated_dense = kernels.boolean_or("calibrated_dense", false);
  hardware.dispatch = read_exchange(kernels.map("dispatch"));
  hardware.combine = read_exchange(kernels.map("combine"));
  hardware.bulk_dispatch = read_exchange(kernels.map("bulk_dispatch"));
  hardware.bulk_combine = read_exchange(kernels.map("bulk_combine"));
  if (kernels.has("errors")) hardware.errors = read_errors(kernels.map("errors"));
  kernels.refuse_unknown_keys();
  if (root.has("range")) hardware.range = read_range(root.map("range"));
  root.refuse_unknown_keys();
  check(root, hardware);
  return hardware;
}

std::string text_of(const ProductKernel& kernel) {
  std::string more;
  if (kernel.activation > 0.0) more += fmt::format(", activation: {:.4g}", kernel.activation);
  if (kernel.matrix > 0.0) more += fmt::format(", matrix: {:.4g}", kernel.matrix);
  return fmt::format(
      "{{overhead: {:.4g}, memory: {:.4g}, compute: {:.4g}, row_traffic: {:.4g}{}, tile: {}}}",
      kernel.overhead, kernel.memory, kernel.compute, kernel.row_traffic, more, kernel.tile);
}

std::string text_of(std::string_view key, const std::map<WeightFormat, FormatKernels>& formats) {
  if (formats.empty()) return "";
  std::string text = fmt::format("  {}:\n", key);
  for (const auto& [format, kernels] : formats) {
    text += fmt::format("    {}:\n      experts: {}\n      dense: {}\n",
                        kernels::weight_format_name(format), text_of(kernels.experts),
                        text_of(kernels.dense));
  }
  return text;
}

std::string text_of(const CalibratedRange& range) {
  if (range.max_hidden <= 0.0) return "";
  std::vector<std::string_view> names;
  for (const WeightFormat format : range.formats) {
    names.push_back(kernels::weight_format_name(format));
  }
  return fmt::format(
      "range: {{hidden_from: {}, hidden_to: {}, tokens: {}, ranks: {}, formats: {}}}\n",
      range.min_hidden, range.max_hidden, range.max_tokens, range.max_ranks, fmt::join(names, " "));
}

std::string text_of(std::string_view key, const std::map<double, double>& curve) {
  std::vector<std::string> points;
  for (const auto& [bytes, rate] : curve)
    points.push_back(fmt::format("{:.4g}: {:.4g}", bytes, rate));
  return points.empty() ? "" : fmt::format(",\n         {}: {{{}}}", key, fmt::join(points, ", "));
}

// Between two points in proportion to the logarithm of the bytes; beyond the ends as there.
double value_at(const std::map<double, double>& curve, double bytes) {
  const auto above = curve.lower_bound(bytes);
  if (above == curve.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == curve.end()) return below->second;
  const double part = std::log(bytes / below->first) / std::log(above->first / below->first);
  return below->second + part * (above->second - below->second);
}

std::string text_of(const ExchangeKernel& kernel) {
  return fmt::format("{{overhead: {:.4g}, latency: {:.4g}, link: {:.4g}, serial: {:.4g}}}",
                     kernel.overhead, kernel.latency, kernel.link, kernel.serial);
}

std::string text_of(std::string_view key, const Link& link, const std::string& more = "") {
  if (link.bandwidth <= 0.0) return "";
  return fmt::format("{}: {{latency: {:.4g}, bandwidth: {:.4g}{}}}\n", key, link.latency,
                     link.bandwidth, more);
}

Result<formats::YamlDocument> shipped() {
  return formats::YamlDocument::parse(std::string(shipped_hardware_file()),
                                      "shipped_hardware.yaml");
}

}  // namespace

PartFactors IterationFactors::at(double share_of_prompts) const {
  const auto between = [&](double PartFactors::* part) {
    return generating.*part + share_of_prompts * (prompts.*part - generating.*part);
  };
  return {.experts = between(&PartFactors::experts),
          .dense = between(&PartFactors::dense),
          .exchange = between(&PartFactors::exchange)};
}

double Hardware::bandwidth_of(double bytes) const {
  return cached_bandwidth.empty() ? memory_bandwidth : value_at(cached_bandwidth, bytes);
}

double Hardware::node_bandwidth_of(double bytes) const {
  return cached_node_bandwidth.empty() ? node_bandwidth : value_at(cached_node_bandwidth, bytes);
}

Result<Hardware> parse_hardware(const std::string& text, const std::string& name) {
  WIDEEP_TRY_ASSIGN(const formats::YamlDocument document, formats::YamlDocument::parse(text, name));
  YamlMap root = document.root();
  Hardware hardware = read(root);
  WIDEEP_TRY(document.status());
  return hardware;
}

Result<Hardware> read_hardware(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
  return parse_hardware(text, path);
}

std::string hardware_text(const Hardware& hardware) {
  std::string text = fmt::format("name: {}\ndevice: {}\n", hardware.name, hardware.device);
  if (hardware.divisible) text += "divisible: true\n";
  if (hardware.nodes > 1) text += fmt::format("nodes: {}\n", hardware.nodes);
  text += fmt::format("devices_per_node: {}\nprocessors: {}\n", hardware.devices_per_node,
                      hardware.processors);
  text += fmt::format("memory: {{bytes: {:.6g}, bandwidth: {:.4g}", hardware.memory_bytes,
                      hardware.memory_bandwidth);
  if (hardware.divisible) {
    text += fmt::format(", node_bandwidth: {:.4g}", hardware.node_bandwidth);
    text += text_of("cached", hardware.cached_bandwidth);
    text += text_of("cached_node", hardware.cached_node_bandwidth);
  }
  text += "}\n";
  if (hardware.disk_bandwidth > 0.0) {
    text += fmt::format("disk: {{bandwidth: {:.4g}}}\n", hardware.disk_bandwidth);
  }
  std::vector<std::string> peaks;
  for (const auto& [format, peak] : hardware.peak) {
    peaks.push_back(fmt::format("{}: {:.4g}", kernels::weight_format_name(format), peak));
  }
  text += fmt::format("peak: {{{}}}\n", fmt::join(peaks, ", "));
  text += text_of("node_link", hardware.node_link,
                  fmt::format(", ranks: {}", hardware.node_link_ranks));
  const double message = hardware.network.message;
  text += text_of("network", hardware.network,
                  message > 0.0 ? fmt::format(", message: {:.4g}", message) : "");
  text += text_of(
      "host_link", hardware.host_link,
      hardware.host_link_ranks > 1 ? fmt::format(", ranks: {}", hardware.host_link_ranks) : "");
  text += fmt::format("kernels:\n  experts: {}\n  dense: {}\n", text_of(hardware.experts),
                      text_of(hardware.dense));
  text += text_of("formats", hardware.of_formats) +
          text_of("formats_of_all_cores", hardware.of_all_cores);
  const AttentionKernel& attention = hardware.attention;
  text += fmt::format("  attention: {{overhead: {:.4g}, memory: {:.4g}, compute: {:.4g}}}\n",
                      attention.overhead, attention.memory, attention.compute);
  text += fmt::format("  iteration: {:.4g}\n  calibrated_dense: {}\n", hardware.iteration,
                      hardware.calibrated_dense);
  if (hardware.turns_loss > 0.0) text += fmt::format("  turns_loss: {:.4g}\n", hardware.turns_loss);
  if (hardware.shared_reads > 0.0) {
    text += fmt::format("  shared_reads: {:.4g}\n", hardware.shared_reads);
  }
  text += fmt::format("  dispatch: {}\n  combine: {}\n  bulk_dispatch: {}\n  bulk_combine: {}\n",
                      text_of(hardware.dispatch), text_of(hardware.combine),
                      text_of(hardware.bulk_dispatch), text_of(hardware.bulk_combine));
  if (hardware.errors != KernelErrors{}) {
    text += fmt::format("  errors: {{experts: {:.4g}, exchange: {:.4g}}}\n",
                        hardware.errors.experts, hardware.errors.exchange);
  }
  text += text_of(hardware.range);
  return text;
}

std::vector<std::string> shipped_hardware_names() {
  std::vector<std::string> names;
  if (auto document = shipped(); document.ok()) names = document->root().keys();
  std::sort(names.begin(), names.end());
  return names;
}

Result<Hardware> shipped_hardware(std::string_view name) {
  WIDEEP_TRY_ASSIGN(const formats::YamlDocument document, shipped());
  YamlMap root = document.root();
  // "h200" is the one that is shipped of it.
  const std::string of_board = std::string(name) + "_sxm";
  if (!root.has(name) && root.has(of_board)) name = of_board;
  if (!root.has(name)) {
    const std::vector<std::string> names = shipped_hardware_names();
    return invalid_input(fmt::format("hardware: no description '{}'{}; there are {}, or a file",
                                     name, base::did_you_mean(name, names),
                                     fmt::join(names, ", ")));
  }
  YamlMap map = root.map(name);
  Hardware hardware = read(map);
  WIDEEP_TRY(document.status());
  return hardware;
}

}  // namespace wideep::cost
