// The colours of heat maps. A scale is {classOf(value), toneOf(value), classes}: which class of CSS
// colours a cell, which text reads well on it, and all classes from the least value to the greatest.
// Classes rather than colours are in the drawing, so that the page turns dark, or light for print,
// without drawing again.

const kSteps = 64;
const kLegendStep = 4;  // pixels

// From 0 to max: evenly spaced OKLab lightness, so that equal steps of the value look equally large,
// and every step can be told by lightness alone, whatever colours the reader sees. On a light page
// zero is pale and much is dark; on a dark page the other way round.
function sequentialScale(max) {
  return {
    classOf: (value) => `q${stepAt(value / max)}`,
    // The middle takes dark text in both schemes.
    toneOf: (value) => value < 0.44 * max ? "faint" : value > 0.56 * max ? "full" : "middle",
    classes: classesOf("q"),
  };
}

// Around 1, the mean: as much is grey, less is cold and more is warm, up to `most` away.
function divergingScale(most) {
  return {
    classOf: (value) => `d${stepAt(0.5 + (value - 1) / most / 2)}`,
    toneOf: () => "middle",
    classes: classesOf("d"),
  };
}

function stepAt(share) {
  return Math.min(kSteps - 1, Math.max(0, Math.round(share * (kSteps - 1))));
}

function classesOf(prefix) {
  return Array.from({length: kSteps}, (_, i) => `${prefix}${i}`);
}

// Hue runs from yellow over green and blue to violet along with the lightness from pale to dark.
function oklchOf(depth) {  // 0: pale, 1: dark
  return {
    lightness: 0.985 - 0.715 * depth,
    chroma: 0.03 + 0.095 * Math.sin(Math.PI * (0.04 + depth * 0.86)),
    hue: 105 + 175 * depth ** 0.85,
  };
}

function toLinear({lightness, chroma, hue}) {
  const a = chroma * Math.cos(hue * Math.PI / 180);
  const b = chroma * Math.sin(hue * Math.PI / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
          -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
          -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s];
}

// Where a screen cannot show the colour, it loses chroma rather than lightness.
function toHex(color) {
  let linear = toLinear(color);
  for (let chroma = color.chroma; linear.some((x) => x < 0 || x > 1) && chroma > 0; chroma -= 0.002) {
    linear = toLinear({...color, chroma});
  }
  return "#" + linear.map(toSrgbByte).map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function toSrgbByte(linear) {
  const x = Math.min(1, Math.max(0, linear));
  return Math.round(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055));
}

const kDivergingLight = {cold: [86, 152, 212], even: [238, 240, 243], warm: [196, 64, 8]};
const kDivergingDark = {cold: [46, 116, 181], even: [38, 44, 53], warm: [245, 138, 66]};

function divergingColor(share, {cold, even, warm}) {
  const far = Math.abs(2 * share - 1) ** 0.85;
  const end = share < 0.5 ? cold : warm;
  return `rgb(${even.map((each, i) => Math.round(each + (end[i] - each) * far))})`;
}

function paletteRules(depthOf, diverging) {
  const shares = Array.from({length: kSteps}, (_, i) => i / (kSteps - 1));
  return shares.map((share, i) => `.q${i}{fill:${toHex(oklchOf(depthOf(share)))}}` +
                                  `.d${i}{fill:${divergingColor(share, diverging)}}`).join("");
}

function installPalette() {
  const style = document.createElement("style");
  style.textContent = paletteRules((t) => t, kDivergingLight) +
      `@media screen and (prefers-color-scheme: dark){${paletteRules((t) => 1 - t, kDivergingDark)}}`;
  document.head.append(style);
}

// A bar of a scale's colours.
function rampSvg({classes}, {top, step, height}) {
  const rects = classes.map((each, i) => `<rect class="${each}" x="${step * i}" y="${top}" width="${step}" height="${height}"/>`);
  return rects.join("") + `<rect class="frame" x="0" y="${top}" width="${step * classes.length}" height="${height}"/>`;
}

// The bar with its numbers. ticks: from niceTicks; title: what is coloured, with its unit.
function legendSvg(scale, ticks, title) {
  const width = kLegendStep * kSteps;
  const max = ticks[ticks.length - 1];
  let svg = `<svg class="fixed" width="${width + 24}" height="44" viewBox="-12 0 ${width + 24} 44" ` +
      `role="img" aria-label="Colours from 0 to ${formatShort(max)} ${escapeText(title)}">`;
  svg += `<text x="0" y="10">${escapeText(title)}</text>` + rampSvg(scale, {top: 15, step: kLegendStep, height: 11});
  for (const tick of ticks) {
    const x = (tick / max * width).toFixed(1);
    svg += `<path class="grid" d="M${x} 26v4"/><text x="${x}" y="41" text-anchor="middle">${formatShort(tick)}</text>`;
  }
  return svg + "</svg>";
}
