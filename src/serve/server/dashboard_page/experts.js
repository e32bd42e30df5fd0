// Of a model that is larger than memory: from which place the experts came that tokens have chosen,
// lately and since the start, and what the disk has read for them.

const kExpertSeconds = 10;  // with tokens: what "lately" is

function percent(part, all) {
  return all > 0 ? `${(100 * part / all).toFixed(1)} %` : "–";
}

function expertsRowHtml(rank) {
  const read = rank.read_seconds > 0 ? `${formatBytes(rank.disk_bytes)} at ${formatBytes(rank.disk_bytes / rank.read_seconds)}/s` : "nothing";
  return `<tr><th scope="row">rank ${rank.rank}</th><td>${formatCount(rank.resident)} of ${formatCount(rank.owned)}</td>` +
      `<td>${formatBytes(rank.records * rank.record_bytes)}</td>` +
      `<td>${percent(rank.hits, rank.chosen)}</td><td>${percent(rank.read_ahead, rank.chosen)}</td><td>${read}</td>` +
      `<td>${formatCount(rank.came)}</td><td>${formatCount(rank.left)}</td><td>${formatTime(1e3 * rank.waited_seconds)}</td>` +
      `<td>${rank.lost > 0 ? `<b class="worse">${formatCount(rank.lost)}</b>` : "none"}</td></tr>`;
}

function expertsLayerHtml(layer) {
  return `<tr><th scope="row">${layer.layer}</th><td>${formatCount(layer.resident)}</td><td>${percent(layer.hits, layer.chosen)}</td>` +
      `<td>${percent(layer.read_ahead, layer.chosen)}</td><td>${formatCount(layer.came)}</td></tr>`;
}

function tokensOf(second) {
  return second.context_tokens + second.generated_tokens;
}

// What a token, of a prompt or generated, has taken from each place lately. Ranks wait side by side.
function expertsNowText({seconds, end}, numRanks) {
  const lately = [...seconds.values()].filter((each) => each.experts && each.time < end).slice(-kExpertSeconds);
  const of = (value) => sum(lately.map(value)), tokens = of(tokensOf);
  if (tokens === 0 || numRanks === 0) return "";
  const waited = of((each) => each.experts.waited_seconds) / numRanks;
  return `a token takes ${formatBytes(of((each) => each.experts.memory_bytes) / tokens)} from memory, ` +
      `${formatBytes(of((each) => each.experts.disk_bytes) / tokens)} from the disk, for which it waits ` +
      `${formatRoughTime(1e3 * waited / tokens)} of ${formatRoughTime(1e3 * of((each) => each.busy_seconds) / tokens)}`;
}

function drawPlacesOfExperts(state) {
  const {data, seconds, end} = state;
  const {experts} = data;
  document.getElementById("experts-row").hidden = document.getElementById("experts-card").hidden = experts === null;
  if (experts === null) return;
  const common = {seconds, end, gaps: true};
  const share = (part) => (each) => each.experts ? 100 * part(each.experts) / each.experts.chosen : null;
  drawLines(document.getElementById("experts-chart"), {
    ...common, label: "Chosen experts by place", format: (value) => `${formatNumber(value)} %`, least: 100,
    series: [{name: "in memory", class: "after", filled: true, of: share((each) => each.hits)},
             {name: "or read ahead", class: "other", of: share((each) => each.hits + each.read_ahead)}],
  });
  drawBars(document.getElementById("experts-came-chart"), {
    ...common, label: "Experts that came into memory per second", format: formatCount, of: (each) => each.experts?.came ?? 0,
    empty: "none has come lately",
    tell: (each) => each.experts ? [`<b>${formatCount(each.experts.came)}</b> came to stay, ${formatCount(each.experts.left)} left`] : [],
  });
  const perToken = (bytes) => (each) => each.experts && tokensOf(each) > 0 ? bytes(each.experts) / tokensOf(each) / 2 ** 20 : null;
  drawLines(document.getElementById("experts-bytes-chart"), {
    ...common, label: "MiB of experts for each token", format: formatNumber, least: 0.001,
    series: [{name: "from memory", class: "after", filled: true, of: perToken((each) => each.memory_bytes)},
             {name: "from the disk", class: "before", of: perToken((each) => each.disk_bytes)}],
  });
  setText("experts-now", expertsNowText(state, experts.ranks.length));
  document.getElementById("experts").innerHTML = experts.ranks.map(expertsRowHtml).join("");
  document.getElementById("experts-layers").innerHTML = experts.layers.map(expertsLayerHtml).join("");
}
