// Which view is shown is the part of the address behind the #.

const main = document.getElementById("main");
// Episodes that were only credited have no curves.
const LEARNED = DATA.updates.length + DATA.evaluations.length > 0;
let panes = null;

function currentRow() {
  const found = /^#episode-(\d+)$/.exec(location.hash);
  return found ? ROWS[Number(found[1])] ?? null : null;
}

function go(row) {
  if (row) location.hash = `#episode-${row.number}`;
}

function step(by) {
  const rows = chosenRows();
  const at = rows.indexOf(currentRow());
  go(at < 0 ? rows[0] : rows[at + by]);
}

function showEpisodes() {
  const row = currentRow();
  if (!panes) {
    panes = { list: el("section", { class: "list", "aria-label": "episodes" }), detail: el("section", { class: "detail", "aria-label": "episode" }) };
    main.replaceChildren(el("div", { class: "panes" }, panes.list, panes.detail));
    drawTable(panes.list, row, go);
  }
  document.body.classList.toggle("open", row !== null);
  panes.detail.replaceChildren();
  if (row) drawEpisode(panes.detail, row, { go, back: () => (location.hash = "#episodes"), step });
  markRow(panes.list, row);
  panes.detail.scrollTop = 0;
}

function show() {
  hideTip();
  const view = /^#(episode|settings)/.exec(location.hash)?.[1] ?? (LEARNED ? "curves" : "episode");
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href").startsWith(`#${view}`)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view === "episode") {
    showEpisodes();
    return;
  }
  panes = null;
  document.body.classList.remove("open");
  const page = el("div", { class: "page" });
  main.replaceChildren(page);
  if (view === "settings") drawSettings(page);
  else drawCurves(page);
}

function head() {
  const settings = new Map(DATA.settings);
  const facts = ["env", "algo", "model", "seed"].filter((key) => settings.has(key)).map((key) => `${key} ${settings.get(key)}`);
  const seconds = DATA.updates.at(-1)?.seconds;
  if (LEARNED) facts.push(`${DATA.updates.length} updates`);
  else document.querySelector('nav a[href="#curves"]').remove();
  if (isNumber(seconds)) facts.push(`${number(seconds, 0)} s`);
  document.getElementById("name").textContent = visible(DATA.name);
  document.getElementById("facts").textContent = visible(facts.join(" · "));
}

const KEYS = { j: () => step(1), ArrowRight: () => step(1), k: () => step(-1), ArrowLeft: () => step(-1) };
KEYS.t = () => currentRow() && main.querySelector(".detail .chips .chip")?.click();
KEYS["/"] = () => main.querySelector("#search")?.focus();
KEYS.Escape = () => (tip.hidden ? currentRow() && (location.hash = "#episodes") : hideTip());

addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input, select, .tree-box");
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape")) return;
  event.preventDefault();
  act();
});

let drawnWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === drawnWidth) return;
  drawnWidth = innerWidth;
  show();
});
addEventListener("hashchange", show);
addEventListener("scroll", () => tip.hidden || hideTip(), true);
head();
show();
