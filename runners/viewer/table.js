// The table of episodes: sorted and filtered here, and the order that "next episode" follows.

const ROWS = DATA.groups.flatMap((group) => group.episodes.map((episode, place) => ({ group, episode, place })));
ROWS.forEach((row, number_) => {
  const { episode } = row;
  row.number = number_;
  row.turns = episode.turns ? episode.turns.length : 0;
  row.sampled = (episode.turns || []).reduce((sum, turn) => sum + turn.tokens.length, 0);
  row.result = verdict(episode);
});

// A task by its id, after the name of its environment where the run had several.
function taskOf(episode) {
  return episode.env ? `${episode.env}/${episode.task}` : episode.task;
}

const COLUMNS = [
  { name: "result", key: (row) => row.result[2], cell: (row) => el("span", { class: `verdict ${row.result[0]}`, title: row.result[2] }, row.result[1]) },
  { name: "update", number: true, key: (row) => row.episode.update },
  { name: "task", key: (row) => taskOf(row.episode), cell: (row) => visible(taskOf(row.episode)), wide: "task" },
  { name: "sample", number: true, key: (row) => row.episode.sample },
  { name: "language", key: (row) => row.episode.language, cell: (row) => visible(row.episode.language), roomy: true },
  { name: "level", number: true, key: (row) => row.episode.level, roomy: true },
  { name: "question", key: (row) => row.episode.user, cell: (row) => visible(row.episode.user.split("\n").at(-1)), roomy: true, wide: "question" },
  { name: "reward", number: true, key: (row) => row.episode.reward, cell: (row) => number(row.episode.reward) },
  { name: "turns", number: true, key: (row) => row.turns },
  { name: "tokens", number: true, key: (row) => row.sampled, roomy: true },
];

const tableState = { column: null, down: false, text: "", result: "", update: "" };

function searchable(row) {
  row.text ??= [taskOf(row.episode), row.episode.user, ...(row.episode.turns || []).flatMap((t) => [t.action, t.observation])].join("\n").toLowerCase();
  return row.text;
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -1 : 1;
}

function chosenRows() {
  const { column, down, text, result, update } = tableState;
  const found = ROWS.filter(
    (row) =>
      (!result || row.result[2] === result) &&
      (!update || String(row.episode.update) === update) &&
      (!text || searchable(row).includes(text.toLowerCase())),
  );
  if (column) found.sort((a, b) => compare(column.key(a), column.key(b)) * (down ? -1 : 1) || a.number - b.number);
  return found;
}

function headCell(column, redraw) {
  const mine = tableState.column === column;
  const order = mine ? (tableState.down ? "descending" : "ascending") : "none";
  const sort = () => {
    Object.assign(tableState, mine && tableState.down ? { column: null, down: false } : { column, down: mine });
    redraw();
  };
  const arrow = mine ? (tableState.down ? " ↓" : " ↑") : "";
  return el("th", { class: classOf(column), "aria-sort": order, scope: "col" }, el("button", { type: "button", onclick: sort }, column.name + arrow));
}

function classOf(column) {
  return [column.number ? "number" : "", column.roomy ? "roomy" : "", column.wide || ""].join(" ").trim();
}

function bodyRow(row, current, go) {
  const cells = COLUMNS.map((column) => el("td", { class: classOf(column) }, column.cell ? column.cell(row) : String(column.key(row))));
  const label = `update ${row.episode.update}, ${visible(taskOf(row.episode))}, sample ${row.episode.sample}`;
  // The task's cell holds the link, so that a row is reached by keyboard and says its name.
  cells[2].replaceChildren(el("a", { href: `#episode-${row.number}`, "aria-label": label }, visible(taskOf(row.episode))));
  return el("tr", { class: row === current ? "current" : "", "data-row": row.number, onclick: () => go(row) }, cells);
}

function option(value, label, chosen) {
  return el("option", { value, selected: value === chosen }, label);
}

function filters(redraw) {
  const change = (key) => (event) => {
    tableState[key] = event.target.value;
    redraw();
  };
  const results = [...new Set(ROWS.map((row) => row.result[2]))];
  const updates = [...new Set(ROWS.map((row) => String(row.episode.update)))];
  return el(
    "div",
    { class: "filters" },
    el("input", { type: "search", id: "search", placeholder: "Search in tasks and turns", "aria-label": "search in tasks and turns", value: tableState.text, oninput: change("text") }),
    el("select", { "aria-label": "result", onchange: change("result") }, option("", "all results", tableState.result), results.map((r) => option(r, r, tableState.result))),
    el("select", { "aria-label": "update", onchange: change("update") }, option("", "all updates", tableState.update), updates.map((u) => option(u, `update ${u}`, tableState.update))),
  );
}

// Fills ``pane``; only the rows are redrawn while someone types.
function drawTable(pane, current, go) {
  const count = el("p", { class: "count", role: "status" });
  const head = el("tr");
  const body = el("tbody");
  const refill = () => {
    const rows = chosenRows();
    count.textContent = `${rows.length} of ${ROWS.length} episodes on this page. ${DATA.chosen}`;
    head.replaceChildren(...COLUMNS.map((column) => headCell(column, refill)));
    body.replaceChildren(...rows.map((row) => bodyRow(row, current, go)));
  };
  refill();
  pane.append(filters(refill), count, el("div", { class: "table-box" }, el("table", { class: "episodes" }, el("thead", {}, head), body)));
}

function markRow(pane, row) {
  pane.querySelector("tr.current")?.classList.remove("current");
  const now = row && pane.querySelector(`tr[data-row="${row.number}"]`);
  now?.classList.add("current");
  now?.scrollIntoView({ block: "nearest" });
}
