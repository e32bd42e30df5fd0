// SPDX-License-Identifier: Apache-2.0
//
// What one layer costs as experts, slots and ranks grow, up to 4,096 experts and 1,024 ranks.
//
//   balance_scale [--csv FILE] [--svg FILE] [--rounds N]
//
// Lognormal loads (sigma 0.7), median of processor time of one thread. Beside the time stands the
// imbalance (max / mean - 1) that is left, and the proven lower bound of an equal split.
//   plan, weighted   planner wideep with equal split, with shares
//   heap             TensorRT-LLM's planner, as placement_trt.h does it
//   resplit, repair  after the load has drifted (lognormal factors, sigma 0.15); repair to 1 %
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>

#include "balance/placement_trt.h"
#include "command_line/command_line.h"
#include "loads.h"
#include "log_chart.h"
#include "stopwatch.h"
#include "wideep/balancer.h"

namespace wideep::bench {
namespace {

using balance::LayerPlan;
using balance::PlanShape;
using balance::Split;

struct Point {
  std::string series;
  double x;  // what grows
  PlanShape shape;
};

struct Measured {
  std::string what;
  double us;
  double imbalance;
};

double imbalance_of(const LayerPlan& plan, const Load& load) {
  return balance::imbalance_ratio(plan.placement, load, plan.shares);
}

std::vector<Point> points() {
  std::vector<Point> result;
  const auto add = [&](const char* series, double x, int experts, int ranks, int slots) {
    result.push_back({series, x, {.num_experts = experts, .ep_size = ranks, .num_slots = slots}});
  };
  for (int experts = 64; experts <= 4096; experts *= 2) {
    add("experts", experts, experts, 32, experts + 32);
  }
  for (int ranks = 4; ranks <= 1024; ranks *= 2) add("ranks", ranks, 4096, ranks, 4096 + ranks);
  for (int slots = 288; slots <= 2048; slots += slots < 512 ? 224 : slots) {
    add("slots", slots, 256, 32, slots);
  }
  return result;
}

// Everything that is measured for one shape.
class Layer {
 public:
  explicit Layer(const PlanShape& shape)
      : shape_(shape),
        load_(lognormal_load(shape.num_experts, 0.7, 1)),
        later_(drifted(load_, 0.15, 2)),
        planner_(balance::make_planner("wideep", shape, {}).value()),
        weighted_(balance::make_planner("wideep", shape, {.split = Split::kWeighted}).value()),
        repairer_(balance::make_repairer(shape, {}).value()) {
    planner_->plan(load_, &plan_);
    weighted_->plan(load_, &weighted_plan_);
    resplitter_.reset(plan_.placement);
    resplit_plan_ = plan_;
  }

  std::vector<Measured> measure(int rounds) {
    const std::vector<double> seconds = interleaved_medians(
        {[&] { planner_->plan(load_, &plan_); }, [&] { weighted_->plan(load_, &weighted_plan_); },
         [&] { plan_with_heaps(); }, [&] { resplitter_.resplit(later_, resplit_plan_.shares); },
         [&] { repairer_->repair(later_, plan_, &repaired_); }},
        rounds);
    return {{"plan", 1e6 * seconds[0], imbalance_of(plan_, load_)},
            {"weighted", 1e6 * seconds[1], imbalance_of(weighted_plan_, load_)},
            {"heap", 1e6 * seconds[2], imbalance_of(heap_plan_, load_)},
            {"resplit", 1e6 * seconds[3], imbalance_of(resplit_plan_, later_)},
            {"repair", 1e6 * seconds[4], imbalance_of(repaired_, later_)}};
  }

  double bound() const { return balance::imbalance_lower_bound(load_, shape_, Split::kEqual); }

 private:
  void plan_with_heaps() {
    heap_plan_.placement = *balance::plan_layer_trt(load_, shape_.ep_size, shape_.num_slots);
    heap_plan_.shares = balance::equal_shares(heap_plan_.placement);
  }

  PlanShape shape_;
  Load load_, later_;
  std::unique_ptr<balance::LayerPlanner> planner_, weighted_;
  std::unique_ptr<balance::Repairer> repairer_;
  balance::Resplitter resplitter_;
  LayerPlan plan_, weighted_plan_, heap_plan_, resplit_plan_, repaired_;
};

using Charts = std::map<std::string, std::map<std::string, Line>>;  // series, what

std::string csv_of(const Point& point, const std::vector<Measured>& measured, double bound) {
  std::string csv;
  for (const Measured& each : measured) {
    csv += fmt::format("{},{},{},{},{},{:.2f},{:.6f},{:.6f}\n", point.series,
                       point.shape.num_experts, point.shape.num_slots, point.shape.ep_size,
                       each.what, each.us, each.imbalance, bound);
  }
  return csv;
}

std::string picture(const Charts& charts) {
  const std::map<std::string, std::string> titles = {
      {"experts", "32 ranks, one spare slot each"},
      {"ranks", "4,096 experts, one spare slot per rank"},
      {"slots", "256 experts, 32 ranks"}};
  std::vector<Chart> all;
  for (const auto& [series, lines] : charts) {
    Chart chart{.title = titles.at(series), .x = series, .y = "µs a layer", .lines = {}};
    for (const auto& [what, line] : lines) chart.lines.push_back(line);
    all.push_back(chart);
  }
  return charts_svg(all);
}

bool write(const std::string& path, const std::string& content) {
  if (path.empty()) return true;
  std::ofstream file(path);
  file << content;
  if (file.flush()) return true;
  fmt::print(stderr, "{}: cannot be written\n", path);
  return false;
}

int run(const std::string& csv_file, const std::string& svg_file, int rounds) {
  std::string csv = "series,experts,slots,ranks,what,us,imbalance,bound\n";
  std::fputs(csv.c_str(), stdout);
  Charts charts;
  for (const Point& point : points()) {
    Layer layer(point.shape);
    const std::vector<Measured> measured = layer.measure(rounds);
    const std::string lines = csv_of(point, measured, layer.bound());
    std::fputs(lines.c_str(), stdout);
    std::fflush(stdout);
    csv += lines;
    for (const Measured& each : measured) {
      Line& line = charts[point.series][each.what];
      line.name = each.what;
      line.points.emplace_back(point.x, each.us);
    }
  }
  return write(csv_file, csv) && write(svg_file, picture(charts)) ? 0 : 1;
}

}  // namespace
}  // namespace wideep::bench

int main(int argc, char** argv) {
  wideep::command_line::Program program("What one layer costs as experts, slots and ranks grow");
  std::string csv, svg;
  int rounds = 5;
  program.add_option("--csv", csv, "A table to write");
  program.add_option("--svg", svg, "A picture to write");
  program.add_option("--rounds", rounds, "Times are medians of so many rounds").positive();
  if (const auto code = program.parse_main(argc, argv)) return *code;
  return wideep::bench::run(csv, svg, rounds);
}
