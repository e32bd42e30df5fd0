// SPDX-License-Identifier: Apache-2.0
//
// Fields of /proc/[pid]/stat are counted behind the name of the command, which may have spaces and
// brackets of its own.
#include "server/process_metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <iterator>
#include <vector>

#include "formats/files.h"
#include "server/prometheus_text.h"

namespace wideep::server {
namespace {

// Fields of proc(5), less those of the pid and of the name.
enum StatField : size_t { kUtime = 11, kStime = 12, kThreads = 17, kStart = 19, kSize = 20, kRss };

// When the machine was started; nullopt: nobody says it.
std::optional<double> boot_seconds() {
  const auto text = formats::read_file("/proc/stat");
  if (!text.ok()) return std::nullopt;
  constexpr std::string_view kName = "\nbtime ";
  const size_t at = text->find(kName);
  if (at == text->npos) return std::nullopt;
  int64_t seconds = 0;
  const char* begin = text->data() + at + kName.size();
  if (std::from_chars(begin, text->data() + text->size(), seconds).ec != std::errc()) {
    return std::nullopt;
  }
  return static_cast<double>(seconds);
}

}  // namespace

std::optional<ProcessUse> read_stat(std::string_view stat, double boot) {
  const size_t name = stat.rfind(')');
  if (name == stat.npos) return std::nullopt;
  std::vector<uint64_t> fields;
  for (size_t at = name + 1; at < stat.size();) {
    at = stat.find_first_not_of(" \n", at);
    if (at == stat.npos) break;
    const size_t end = std::min(stat.find_first_of(" \n", at), stat.size());
    uint64_t value = 0;  // of the state, a letter, and of those that may be negative
    std::from_chars(stat.data() + at, stat.data() + end, value);
    fields.push_back(value);
    at = end;
  }
  if (fields.size() <= kRss) return std::nullopt;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  ProcessUse use;
  use.cpu_seconds = static_cast<double>(fields[kUtime] + fields[kStime]) / ticks;
  use.start_seconds = boot + static_cast<double>(fields[kStart]) / ticks;
  use.threads = static_cast<int64_t>(fields[kThreads]);
  use.virtual_bytes = fields[kSize];
  use.resident_bytes = fields[kRss] * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return use;
}

std::optional<ProcessUse> this_process() {
  const auto stat = formats::read_file("/proc/self/stat");
  const auto boot = boot_seconds();
  if (!stat.ok() || !boot) return std::nullopt;
  std::optional<ProcessUse> use = read_stat(*stat, *boot);
  if (!use) return std::nullopt;
  std::error_code error;
  const std::filesystem::directory_iterator fds("/proc/self/fd", error);
  // Less the one that lists them.
  if (!error) use->open_fds = std::distance(begin(fds), end(fds)) - 1;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    use->max_fds = limit.rlim_cur;
  }
  return use;
}

std::string process_metrics() {
  const std::optional<ProcessUse> use = this_process();
  if (!use) return "";
  std::string text =
      metric("process_cpu_seconds_total", "counter", "Processor time of this process.",
             use->cpu_seconds) +
      metric("process_start_time_seconds", "gauge", "When it was started, since 1970.",
             fmt::format("{:.2f}", use->start_seconds)) +
      metric("process_virtual_memory_bytes", "gauge", "Its virtual memory.", use->virtual_bytes) +
      metric("process_resident_memory_bytes", "gauge",
             "Its resident memory, shared memory that it has touched included.",
             use->resident_bytes) +
      metric("process_threads", "gauge", "Its threads.", use->threads) +
      metric("process_open_fds", "gauge", "Its open file descriptors.", use->open_fds);
  if (use->max_fds) {
    text += metric("process_max_fds", "gauge", "The most file descriptors that it may have.",
                   *use->max_fds);
  }
  return text;
}

std::string build_info(const BuildInfo& build) {
  constexpr std::string_view kName = "wideep_build_info";
  return metric_head(kName, "gauge",
                     "1: the build, the kernels that this machine runs, and the model.") +
         fmt::format("{0}{{version=\"{1}\",commit=\"{2}\",isa=\"{3}\",model=\"{4}\"}} 1\n", kName,
                     label_text(build.version), label_text(build.commit), label_text(build.isa),
                     label_text(build.model));
}

}  // namespace wideep::server
