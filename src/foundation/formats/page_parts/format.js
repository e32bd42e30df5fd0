// Numbers as people read them, text made safe for HTML and SVG, and sums.

function escapeText(text) {
  return String(text).replace(/[&<>"]/g, (c) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})[c]);
}

// 1,234,567
function formatCount(value) {
  return Math.round(value).toLocaleString("en-US");
}

// For cells, where room is scarce: 950, 1,234, 12.3k, 4.56M
function formatShort(value) {
  if (value < 10000) return Number.isInteger(value) ? formatCount(value) : trimZeros(value.toPrecision(3));
  if (value < 999500) return trimZeros((value / 1e3).toPrecision(3)) + "k";
  if (value < 999500000) return trimZeros((value / 1e6).toPrecision(3)) + "M";
  return trimZeros((value / 1e9).toPrecision(3)) + "G";
}

function trimZeros(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

// Imbalance ratios and multiples of the mean.
function formatRatio(value) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en-US", {minimumFractionDigits: 2, maximumFractionDigits: 2});
}

// Three digits that count: 0.482, 12.3, 1,234
function formatNumber(value) {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en-US", {maximumFractionDigits: Math.min(digits, 6)});
}

// At least so many digits: of three, 19.0
function formatDigits(value, count) {
  const digits = Math.max(0, count - 1 - Math.floor(Math.log10(value)));
  return value.toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

// 850 µs, 12.3 ms, 4.56 s, 3 min 20 s
function formatTime(ms) {
  return timeText(ms, 3);
}

// 850 µs, 12 ms, 4.6 s
function formatRoughTime(ms) {
  return timeText(ms, 2);
}

function timeText(ms, digits) {
  if (ms === 0) return "0 ms";
  if (ms < 0.9995) return formatDigits(ms * 1000, digits) + " µs";
  if (ms < 999.5) return formatDigits(ms, digits) + " ms";
  if (ms < 119500) return formatDigits(ms / 1000, digits) + " s";
  const seconds = Math.round(ms / 1000);
  return `${formatCount(Math.floor(seconds / 60))} min ${seconds % 60} s`;
}

// 12.3 GiB
function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.length; ++unit) bytes /= 1024;
  return `${formatNumber(bytes)} ${units[unit]}`;
}

// "1 rank", "8 ranks"
function formatMany(count, noun) {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

// Ticks from 0 up to the first round number that is at least `max`, about `count` of them.
function niceTicks(max, count) {
  if (!(max > 0)) return [0, 1];
  const rough = max / count;
  const decade = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * decade).find((each) => each >= rough * 0.999);
  const ticks = [];
  for (let i = 0; i === 0 || ticks[i - 1] < max * 0.9999; ++i) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function maxOf(values) {
  return values.reduce((most, value) => Math.max(most, value), 0);
}

function indexOfMax(values) {
  return values.reduce((best, value, i) => (value > values[best] ? i : best), 0);
}
