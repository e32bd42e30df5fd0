// Axes from numbers: {at(value): pixels, ticks: [{value, at}]}, linear or logarithmic.

// Round numbers that span the values, about `count` steps.
function linearAxisOf(values, from, to, count) {
  const low = Math.min(...values), high = Math.max(...values);
  const rough = (high - low) / count || Math.abs(high) / count || 1;
  const decade = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * decade).find((each) => each >= rough * 0.999);
  const first = Math.floor(low / step + 1e-9), last = Math.max(first + 1, Math.ceil(high / step - 1e-9));
  const at = (value) => from + (value / step - first) / (last - first) * (to - from);
  return {at, ticks: Array.from({length: last - first + 1}, (_, i) => Number(((first + i) * step).toPrecision(12))).map((value) => ({value, at: at(value)}))};
}

// Ticks at powers of ten, and where there are fewer than three, at their doubles and fives, too.
function logAxisOf(values, from, to) {
  const low = Math.min(...values), high = Math.max(...values), room = Math.max(1.12, (high / low) ** 0.04);
  const least = low / room, most = high * room;
  const at = (value) => from + Math.log(value / least) / Math.log(most / least) * (to - from);
  const ticksOf = (factors) => {
    const ticks = [];
    for (let power = Math.floor(Math.log10(least)); 10 ** power <= most; ++power) {
      for (const factor of factors) ticks.push(Number((factor * 10 ** power).toPrecision(12)));
    }
    return ticks.filter((tick) => tick >= least && tick <= most);
  };
  const decades = ticksOf([1]);
  const ticks = decades.length > 2 ? decades : ticksOf([1, 2, 5]);
  return {at, ticks: ticks.map((value) => ({value, at: at(value)}))};
}

// The axis over which bars, lines and points stand. Few values are ticks themselves: 2, 4, 8, 72.
function valueAxisOf(values, isLog, from, to) {
  const axis = isLog ? logAxisOf(values, from, to) : linearAxisOf(values, from, to, 8);
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  if (distinct.length <= 12) axis.ticks = distinct.map((value) => ({value, at: axis.at(value)}));
  return axis;
}

// Ticks whose texts do not touch, the first one among them.
function apart(ticks) {
  const kept = [];
  for (const tick of ticks) {
    const last = kept[kept.length - 1];
    if (!last || tick.at - last.at > (tick.text.length + last.text.length) * 3.3 + 8) kept.push(tick);
  }
  return kept;
}
