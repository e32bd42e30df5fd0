// Lines and bars over the last seconds. Every chart has the same time axis, and a cursor that shows
// the second under the mouse.

// Seconds shown: all that there are, up to three minutes.
let span = 60;

function fitSpan(seconds, end) {
  const first = Math.min(end, ...seconds.keys());
  span = Math.min(180, Math.max(60, Math.ceil((end - first) / 30) * 30));
}

const kMargin = {left: 44, right: 8, top: 6, bottom: 18};
const kSvg = "http://www.w3.org/2000/svg";

function element(name, attributes, text) {
  const made = document.createElementNS(kSvg, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

class TimeFrame {
  constructor(holder, end) {
    this.width = holder.clientWidth;
    this.height = holder.clientHeight;
    this.end = end;  // the first second that is not shown
    this.left = kMargin.left;
    this.right = this.width - kMargin.right;
    this.top = kMargin.top;
    this.bottom = this.height - kMargin.bottom;
  }
  x(time) { return this.right - (this.end - time) / span * (this.right - this.left); }
  second(x) { return this.end - Math.ceil((this.right - x) / (this.right - this.left) * span); }

  svg(label) {
    return element("svg", {width: this.width, height: this.height, role: "img", "aria-label": label});
  }
  drawTimes(svg) {
    for (let ago = 0; ago <= span; ago += span > 90 ? 60 : 30) {
      const x = this.x(this.end - ago);
      svg.append(element("text", {
        x, y: this.height - 4, "text-anchor": ago === 0 ? "end" : ago === span ? "start" : "middle",
      }, ago === 0 ? "now" : ago % 60 !== 0 ? `${ago} s ago` : `${ago / 60} min ago`));
    }
  }
  drawTicks(svg, ticks, format) {
    const max = ticks[ticks.length - 1];
    const y = (value) => this.bottom - value / max * (this.bottom - this.top);
    for (const tick of ticks) {
      svg.append(element("path", {class: "grid", d: `M${this.left} ${Math.round(y(tick)) + 0.5}H${this.right}`}),
                 element("text", {x: this.left - 6, y: y(tick) + 4, "text-anchor": "end"}, format(tick)));
    }
    return y;
  }
}

// series: [{name, class, of(second) → number or null}], the first on top.
function drawLines(holder, {label, seconds, end, series, format, least, most, gaps}) {
  const frame = new TimeFrame(holder, end);
  const svg = frame.svg(label);
  const shown = [];
  for (let time = end - span; time < end; ++time) shown.push({time, second: seconds.get(time)});
  const valueOf = (each, one) => one.second ? each.of(one.second) : gaps ? null : 0;
  const values = series.flatMap((each) => shown.map((one) => valueOf(each, one) ?? 0));
  const y = frame.drawTicks(svg, niceTicks(Math.max(least, ...values), most ?? 4), format);
  frame.drawTimes(svg);
  for (const each of [...series].reverse()) {
    for (const run of runsOf(shown, (one) => valueOf(each, one))) {
      const points = run.map(({time, value}) => `${frame.x(time + 0.5).toFixed(1)} ${y(value).toFixed(1)}`);
      if (points.length === 1) {
        const [x, at] = points[0].split(" ");
        svg.append(element("circle", {class: `dot ${each.class}`, cx: x, cy: at, r: 2}));
        continue;
      }
      const first = points[0].split(" ")[0], last = points[points.length - 1].split(" ")[0];
      if (each.filled) {
        svg.append(element("path", {class: `area ${each.class}`,
                                    d: `M${first} ${frame.bottom}L${points.join("L")}L${last} ${frame.bottom}Z`}));
      }
      svg.append(element("path", {class: `line ${each.class}`, d: `M${points.join("L")}`}));
    }
  }
  show(holder, svg, frame, (time) => series.map((each) => {
    const value = valueOf(each, {second: seconds.get(time)});
    return `${each.name} <b>${value === null ? "–" : format(value)}</b>`;
  }));
}

// Unbroken runs of seconds that have a value.
function runsOf(shown, valueOf) {
  const runs = [];
  let run = null;
  for (const one of shown) {
    const value = valueOf(one);
    if (value === null) { run = null; continue; }
    if (run === null) runs.push(run = []);
    run.push({time: one.time, value});
  }
  return runs;
}

function drawBars(holder, {label, seconds, end, of, format, tell, empty}) {
  const frame = new TimeFrame(holder, end);
  const svg = frame.svg(label);
  const bars = [...seconds.values()].filter((each) => each.time >= end - span && each.time < end && of(each) > 0);
  const y = frame.drawTicks(svg, niceTicks(Math.max(4, ...bars.map(of)), 3), format);
  frame.drawTimes(svg);
  const width = Math.max(1.5, (frame.right - frame.left) / span - 0.5);
  for (const each of bars) {
    svg.append(element("rect", {class: "bar after", x: frame.x(each.time).toFixed(1), width, rx: 0.5,
                                y: y(of(each)).toFixed(1), height: (frame.bottom - y(of(each))).toFixed(1)}));
  }
  if (bars.length === 0 && empty) {
    svg.append(element("text", {class: "empty", x: (frame.left + frame.right) / 2, "text-anchor": "middle",
                                y: (frame.top + frame.bottom) / 2 + 4}, empty));
  }
  show(holder, svg, frame, (time) => seconds.has(time) ? tell(seconds.get(time)) : []);
}

// Puts the drawing in place of the last. tell(second, y): lines of the tooltip.
function show(holder, drawing, frame, tell) {
  const cursor = element("path", {class: "cursor"});
  const over = drawing instanceof SVGElement ? drawing : null;
  over?.append(cursor);
  holder.replaceChildren(drawing);
  holder.drawn = {frame, tell, cursor};
  if (holder.mouse) pointAt(holder, holder.mouse);
  if (holder.listens) return;
  holder.listens = true;
  holder.addEventListener("mousemove", (event) => pointAt(holder, holder.mouse = event));
  holder.addEventListener("mouseleave", () => {
    holder.mouse = null;
    holder.drawn.cursor.removeAttribute("d");
    document.getElementById("tooltip").hidden = true;
  });
}

function pointAt(holder, {clientX, clientY}) {
  const {frame, tell, cursor} = holder.drawn;
  const box = holder.getBoundingClientRect();
  const x = clientX - box.left, time = frame.second(x);
  const tooltip = document.getElementById("tooltip");
  const lines = x >= frame.left && x <= frame.right ? tell(time, clientY - box.top) : [];
  tooltip.hidden = lines.length === 0;
  cursor.removeAttribute("d");
  if (tooltip.hidden) return;
  cursor.setAttribute("d", `M${frame.x(time + 0.5)} ${frame.top}V${frame.bottom}`);
  tooltip.innerHTML = [new Date(time * 1000).toLocaleTimeString("en-GB"), ...lines].join("<br>");
  const left = Math.min(clientX + 14, innerWidth - tooltip.offsetWidth - 8);
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${Math.max(8, clientY - tooltip.offsetHeight - 10)}px`;
}
