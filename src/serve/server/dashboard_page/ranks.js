// The card of the ranks: which of them compute, and what has happened to them.

const kManyRanks = 32;  // with more, squares have no numbers

// "just now", "12 s ago", "3 min ago"
function formatAgo(seconds) {
  return seconds < 1 ? "just now" : `${formatDuration(seconds)} ago`;
}

function rankStatesHtml(states) {
  return states.map((name, rank) => `<li class="rank ${name}" title="rank ${rank}: ${name}" ` +
      `aria-label="rank ${rank}: ${name}">${states.length > kManyRanks ? "" : rank}</li>`).join("");
}

// The newest first.
function rankEventsHtml(events, now) {
  if (events.length === 0) return "<li>no rank has died or changed since the start</li>";
  return [...events].reverse().map(({time, text}) =>
      `<li title="${escapeText(text)}"><time>${formatAgo(now - time)}</time> ${escapeText(text)}</li>`).join("");
}

function drawRanks({data}) {
  const {states, wanted, degraded, events} = data.ranks;
  const count = (name) => states.filter((state) => state === name).length;
  setText("ranks-active", formatCount(count("active")));
  setText("ranks-wanted", `active of ${formatCount(wanted)} wanted`);
  const others = ["dead", "starting", "retired"].filter(count).map((name) => `${count(name)} ${name}`);
  setText("ranks-others", others.join(", "));
  document.getElementById("ranks-others").hidden = others.length === 0;
  const list = document.getElementById("rank-states");
  list.classList.toggle("many", states.length > kManyRanks);
  list.innerHTML = rankStatesHtml(states);
  document.getElementById("degraded").hidden = degraded === "";
  setText("degraded", degraded === "" ? "" : `Degraded: ${degraded}`);
  document.getElementById("rank-events").innerHTML = rankEventsHtml(events, data.now);
}
