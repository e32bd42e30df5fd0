// Numbers as people read them.

function formatCount(value) {
  if (value >= 1e9) return (value / 1e9).toFixed(2) + " G";
  if (value >= 1e7) return (value / 1e6).toFixed(1) + " M";
  return Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f");
}

function formatRate(value) {
  return value < 10 && !Number.isInteger(value) ? value.toFixed(1) : formatCount(value);
}

function formatSeconds(seconds) {
  if (seconds >= 100) return Math.round(seconds) + " s";
  if (seconds >= 1) return seconds.toFixed(seconds >= 10 ? 1 : 2) + " s";
  const ms = seconds * 1000;
  return (ms >= 20 ? Math.round(ms) : ms.toFixed(1)) + " ms";
}

function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.length; ++unit) bytes /= 1024;
  return (unit === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)) + " " + units[unit];
}

function formatRatio(value) {
  return value.toFixed(value >= 10 ? 1 : 2);
}

function formatDuration(seconds) {
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  return minutes > 0 ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

// 0 … the first round number that is not below the largest value, in few steps.
function niceTicks(max, most) {
  const rough = Math.max(max, 1e-9) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.9999);
  const ticks = [0];
  while (ticks[ticks.length - 1] < max * 0.9999 || ticks.length === 1) ticks.push(step * ticks.length);
  return ticks;
}
