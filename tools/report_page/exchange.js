// What ranks send each other: as a whole, in one window of iterations, and over time.

const kAllLayers = {value: "all", text: "all layers together"};

function sumOfGrids(grids) {
  return grids[0].map((row, from) => row.map((_, to) => sum(grids.map((grid) => grid[from][to]))));
}

// [from][to] of a layer, or of all, in a window.
function sentInWindow({sent}, layer) {
  return layer === "all" ? sumOfGrids(sent) : sent[Number(layer)];
}

// [from][to] over the whole run, or in the window that begins with `start`; null: not recorded.
function sentPairs(run, layer, start) {
  if (start === "all") return sumOfGrids(run.sent.map((each) => sentInWindow(each, layer)));
  const found = run.sent.find((each) => each.start === Number(start));
  return found ? sentInWindow(found, layer) : null;
}

function columnSums(grid) {
  return grid[0].map((_, to) => sum(grid.map((row) => row[to])));
}

// The first iterations of all windows of `of` ("sent" or "windows"), ascending.
function startsOf(runs, of) {
  return [...new Set(runs.flatMap((run) => run[of].map((each) => each.start)))].sort((a, b) => a - b);
}

function sentPanel(runs, index, {sent, busiest}) {
  const run = runs[index];
  if (!sent) return panelOf(runs, index, `${run.file} has no iteration in this window.`, null);
  const received = columnSums(sent);
  const map = {
    rows: run.ep_size, cols: run.ep_size,
    value: (row, col) => sent[row][col],
    rowLabel: String, colLabel: String, rowTitle: "sending rank", colTitle: "receiving rank",
    notes: {title: "sent", text: (row) => formatShort(sum(sent[row]))},
    bars: {title: "received (dashed: even share)", values: received, max: busiest, mean: sum(received) / run.ep_size},
    format: formatShort,
  };
  return panelOf(runs, index, hottest(received), map);
}

function addSenderReceiver(runs, size) {
  const starts = startsOf(runs, "sent");
  const labels = windowLabels(starts, size);
  const windows = starts.map((start, i) => ({value: String(start), text: labels[i]}));
  addSection({
    title: "Pairs from each rank to each rank",
    hint: "<b>Look for hot columns:</b> a receiver to which every rank sends much holds popular experts. Hot rows are ranks with more tokens of their own; the diagonal stays on its rank and costs no transfer.",
    controls: [layerControl(runs[0], [kAllLayers]),
               {key: "start", label: "Iterations", options: [{value: "all", text: "all"}, ...windows], value: "all", steps: true}],
    draw: ({layer, start}, parts) => {
      const sent = runs.map((run) => sentPairs(run, layer, start));
      const busiest = maxOf(sent.flatMap((each) => (each ? columnSums(each) : [0])));
      drawHeatMaps(parts, {
        shown: runs.map((_, i) => sentPanel(runs, i, {sent: sent[i], busiest})),
        unit: start === "all" ? "pairs sent, sum over iterations" : size === 1 ? "pairs sent in the iteration" : "pairs sent, sum of the window",
        where: (row, col) => (row === col ? `Rank ${row} to itself` : `Rank ${row} to rank ${col}`),
        exact: (value) => pairs(value),
      });
    },
  });
}

// [to] of one sender, of all, or of all others than the receiver.
function sentFrom(grid, from) {
  if (from === "all") return columnSums(grid);
  if (from === "others") return columnSums(grid).map((each, to) => each - grid[to][to]);
  return grid[Number(from)];
}

function sentOverTimePanel(runs, index, {starts, labels, layer, from, scale, windowTitle}) {
  const run = runs[index];
  const columns = starts.map((start) => sentPairs(run, layer, start)).map((grid) => grid && sentFrom(grid, from));
  const means = columns.map((each) => each && sum(each) / run.ep_size);
  const shares = scale === "share";
  const map = {
    rows: run.ep_size, cols: starts.length,
    value: (row, col) => columns[col] && (shares ? shareOf(columns[col][row], means[col]) : columns[col][row]),
    pairsAt: (row, col) => columns[col][row], meanAt: (col) => means[col],
    rowLabel: String, colLabel: (col) => labels[col].split("–")[0], rowTitle: "receiving rank", colTitle: windowTitle,
    bars: {title: "pairs sent", values: columns.map((each) => (each ? sum(each) : 0)),
           max: maxOf(columns.map((each) => (each ? sum(each) : 0))) || 1},
    format: shares ? formatRatio : formatShort,
  };
  return panelOf(runs, index, hottest(columnSums(columns.filter((each) => each))), map);
}

function addSentOverTime(runs, size) {
  const starts = startsOf(runs, "sent");
  if (starts.length < 2) return;
  const labels = windowLabels(starts, size);
  const windowTitle = size === 1 ? "iteration" : `first of ${size} iterations`;
  const senders = Array.from({length: runs[0].ep_size}, (_, rank) => ({value: String(rank), text: `rank ${rank}`}));
  addSection({
    title: "Pairs from a rank to each rank over time",
    hint: "<b>Look for stripes that begin or end together:</b> they are experts that have moved to another receiver, or texts that have changed. What other ranks send is what costs transfers.",
    controls: [layerControl(runs[0], [kAllLayers]),
               {key: "from", label: "Sender", options: [{value: "all", text: "all ranks"}, {value: "others", text: "all other ranks"}, ...senders], value: "others", steps: true},
               {...scaleControl([]), value: "share"}],
    draw: ({layer, from, scale}, parts) => drawHeatMaps(parts, {
      shown: runs.map((_, i) => sentOverTimePanel(runs, i, {starts, labels, layer, from, scale, windowTitle})),
      unit: scale === "share" ? "pairs ÷ mean of the receivers (1 = even)" : size === 1 ? "pairs sent" : `pairs sent in ${size} iterations`,
      where: (row, col) => `To rank ${row}, iteration${size === 1 ? "" : "s"} ${labels[col]}`,
      exact: (value, row, col, {map}) => pairsAndShare(map.pairsAt(row, col), map.meanAt(col)),
    }),
  });
}
