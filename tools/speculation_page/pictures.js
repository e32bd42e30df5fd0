// Drawings of cells: one drafter with one batch in one turn.

const kChartHeight = 260, kLeastChartWidth = 420;

function frameOf(width) {
  return {left: 52, right: width - 12, top: 14, bottom: kChartHeight - 44};
}

function svgOf(width, label, inside) {
  return `<svg viewBox="0 0 ${width} ${kChartHeight}" role="img" aria-label="${escapeText(label)}">${inside}</svg>`;
}

// From 0 to the first round number above `most`, in four to six steps.
function roundTicks(most) {
  const rough = Math.max(most, 1e-9) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  return Array.from({length: Math.ceil(most / step) + 1}, (_, i) => i * step);
}

function barSvg({left, width, y, bottom, name, tip}) {
  return `<rect class="bar-shape ${name}" x="${left.toFixed(1)}" y="${y.toFixed(1)}" width="${width.toFixed(1)}" ` +
      `height="${Math.max(bottom - y, 0).toFixed(1)}"><title>${escapeText(tip)}</title></rect>`;
}

// Tokens per second with drafts over those without, by batch: both turns side by side.
function ratiosSvg(cells, width) {
  const frame = frameOf(width), batches = [...new Set(cells.map((each) => each.batch))];
  const ticks = roundTicks(Math.max(1.2, ...cells.map((each) => each.ratio)));
  const axis = linearAxis(frame, ticks, (value) => `${formatNumber(value)} ×`);
  const room = (frame.right - frame.left) / batches.length, bar = Math.min(room * 0.32, 60);
  const bars = cells.map((each) => {
    const middle = frame.left + (batches.indexOf(each.batch) + 0.5) * room, y = axis.y(each.ratio);
    const left = middle + (each.turn === 1 ? -bar - 2 : 2);
    return barSvg({left, width: bar, y, bottom: frame.bottom, name: each.turn === 1 ? "first" : "second",
                   tip: `${each.tokens_per_second.toFixed(0)} tokens/s, without drafts ${each.tokens_per_second_without.toFixed(0)}`}) +
        `<text class="value" x="${(left + bar / 2).toFixed(1)}" y="${(y - 4).toFixed(1)}">${each.ratio.toFixed(2)}</text>`;
  });
  const columns = batches.map((batch, i) => ({at: frame.left + (i + 0.5) * room, text: batch}));
  return svgOf(width, "Tokens per second with drafts over those without, by requests at the same time", axis.svg + bars.join("") + `<path class="even" d="M${frame.left} ${axis.y(1).toFixed(1)}H${frame.right}"/>` +
      columnTicksSvg(frame, columns) + axisTitlesSvg(frame, {x: "requests at the same time"}));
}

// How many steps of requests accepted 0, 1, … drafts.
function histogramSvg(cell, width) {
  const frame = frameOf(width), counts = cell.accepted_histogram, all = counts.reduce((sum, each) => sum + each, 0);
  if (all === 0) return `<div class="empty">No draft was worth verifying.</div>`;
  const shares = counts.map((each) => 100 * each / all);
  const axis = linearAxis(frame, roundTicks(Math.max(...shares)), (value) => `${formatNumber(value)} %`);
  const room = (frame.right - frame.left) / counts.length, bar = Math.min(room * 0.7, 80);
  const bars = shares.map((share, i) => barSvg({
    left: frame.left + (i + 0.5) * room - bar / 2, width: bar, y: axis.y(share), bottom: frame.bottom,
    name: i === 0 ? "none" : i + 1 === counts.length ? "all" : "some",
    tip: `${i} accepted: ${counts[i]} of ${all} steps of requests`}));
  const columns = counts.map((_, i) => ({at: frame.left + (i + 0.5) * room, text: i}));
  return svgOf(width, "How many drafts a request accepted in a step", axis.svg + bars.join("") + columnTicksSvg(frame, columns) + axisTitlesSvg(frame, {x: "drafts accepted in a step"}));
}

// What each step has yielded per request; the fainter, the fewer requests were under way.
function stepsSvg(cell, width) {
  const frame = frameOf(width), steps = cell.steps;
  if (steps.length === 0) return `<div class="empty">No step was without prompt tokens.</div>`;
  const most = Math.max(...steps.map(([requests]) => requests));
  const axis = linearAxis(frame, roundTicks(Math.max(2, ...steps.map(([, tokens]) => tokens))), formatNumber);
  const x = (i) => frame.left + (i + 0.5) / steps.length * (frame.right - frame.left);
  const dots = steps.map(([requests, tokens], i) => `<circle class="step" cx="${x(i).toFixed(1)}" cy="${axis.y(tokens).toFixed(1)}" r="2.6" ` +
      `fill-opacity="${(0.15 + 0.85 * requests / most).toFixed(2)}"><title>step ${i + 1}: ${tokens.toFixed(2)} tokens for each of ${requests}</title></circle>`);
  const columns = [{at: x(0), text: "1"}, {at: x(steps.length - 1), text: steps.length}].slice(0, steps.length);
  return svgOf(width, "Tokens that each step has yielded for a request", axis.svg + dots.join("") + columnTicksSvg(frame, columns) + axisTitlesSvg(frame, {x: "step"}));
}
